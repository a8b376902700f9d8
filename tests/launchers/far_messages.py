"""``python far_messages.py FOLDER REACH HOSTS``: long messages to and from host agents, on a node of a bed.

Each agent is asked to start programs whose names are too long for any system, which it answers with these names, and
one with a large environment, which writes what it has. Printed as JSON: the answers of each host that are not right.
"""

import json
import sys
from pathlib import Path

from steptime.catalog.found_site import FoundHost
from steptime.launchers.hosts.commands import reach_commands
from steptime.launchers.hosts.connections import Lines

PROGRAMS, NAME_BYTES, VARIABLES, VALUE_BYTES = 20, 20_000, 4, 100_000
WRITE_SIZES = """
import json, os, socket
with open(socket.gethostname(), "w") as file:
    json.dump([len(value) for value in os.environ.values() if len(value) > 9999], file)
"""


def main() -> None:
    """Ask all hosts at once, and compare."""
    folder, reach, names = Path(sys.argv[1]), sys.argv[2], sys.argv[3].split(",")
    hosts = [FoundHost(name, "", "eth0", (0,)) for name in names]
    large = {f"LARGE_{index}": "x" * VALUE_BYTES for index in range(VARIABLES)}
    with Lines(reach_commands(hosts, reach), names, folder) as lines:
        stripped = {"names": [], "prefixes": [], "passed": []}
        lines.send(plan={"hosts": names, "folder": str(folder), "silence_s": 60.0, "stripped": stripped})
        lines.gather("ready", 60.0)
        wanted = {}
        for host in range(len(names)):
            programs = {f"p{index}": chr(97 + host) * NAME_BYTES + str(index) for index in range(PROGRAMS)}
            start = [{"name": name, "argv": [program], "environment": {}} for name, program in programs.items()]
            writes = {"name": "writes", "argv": [sys.executable, "-c", WRITE_SIZES], "environment": large}
            lines.send(**{"for": host, "start": [*start, writes]})
            wanted.update({(host, name): program for name, program in programs.items()})
        ended = set()
        while (wanted or len(ended) < len(names)) and not (failure := lines.failure()):
            message = lines.receive()
            if message and message.get("ended") == "writes":
                ended.add(message["host"])
            elif message and "ended" in message:
                program = wanted.pop((message["host"], message["ended"]))
                assert message["error"] == f"could not start {program}: File name too long"
    print(json.dumps({"missing": len(wanted), "failure": failure if wanted else None}))  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main()
