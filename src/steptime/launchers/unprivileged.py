"""``python -m steptime.launchers.unprivileged``: one launch on emulated hosts, as root of a user namespace.

The request comes by standard input; the outcome or the reason of a refusal goes to standard output, both as JSON. An
interrupt cancels the launch; when the process that asked is killed, this one is killed too.
"""

import json
import os
import signal
import sys
import threading
from pathlib import Path

from steptime.errors import LaunchError
from steptime.launchers.emulation.network import attempt
from steptime.launchers.emulation.rootless import outcome_to_text, request_from_text
from steptime.launchers.table import EmulatedLauncher
from steptime.worker.tether import die_with_parent


def main() -> None:
    """Run the launch; nothing of the machine's own namespaces is seen from here on."""
    die_with_parent()
    cancelled = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: cancelled.set())
    request = request_from_text(sys.stdin.readline(), cancelled)
    attempt("mount", "-t", "tmpfs", "none", "/run")
    Path("/run/netns").mkdir(exist_ok=True)
    try:
        answer = outcome_to_text(EmulatedLauncher().run(request))
    except LaunchError as error:
        answer = json.dumps({"refused": str(error)})
    print(answer, flush=True)  # noqa: T201 - whoever asked reads it


if __name__ == "__main__":
    os.environ.pop("STEPTIME_PARENT", None)
    main()
