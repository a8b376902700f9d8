"""How long ``steptime --help`` or that of a verb takes, beside an interpreter that does nothing.

::

    python benchmarks/core/help_time.py [VERB]

Both are started in turn, so that other load meets both alike. What is to stay under the limit is the median of the
program; the ratio tells how much of it is Python's own start.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

LIMIT_S = 0.3
PROGRAM = str(Path(sys.executable).with_name("steptime"))


def seconds(command: list[str]) -> tuple[float, float]:
    """Return wall and CPU seconds of one run."""
    before = os.times()
    started = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    wall = time.perf_counter() - started
    after = os.times()
    cpu = after.children_user - before.children_user + after.children_system - before.children_system
    return wall, cpu


def main() -> int:
    """Measure and print; the exit code is 1 above the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("verb", nargs="?")
    arguments = parser.parse_args()
    repeats, verb = arguments.repeats, [arguments.verb] if arguments.verb else []
    commands = {"help": [PROGRAM, *verb, "--help"], "python": [sys.executable, "-c", "pass"]}
    for command in commands.values():
        seconds(command)  # fills the caches of the disk and of compiled modules
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(repeats):
        for name, command in commands.items():
            runs[name].append(seconds(command))
    medians = {name: statistics.median(wall for wall, _ in each) for name, each in runs.items()}
    result = {
        "benchmark": shlex.join(["steptime", *verb, "--help"]),
        "repeats": repeats,
        "median_s": medians["help"],
        "fastest_s": min(wall for wall, _ in runs["help"]),
        "median_cpu_s": statistics.median(cpu for _, cpu in runs["help"]),
        "python_median_s": medians["python"],
        "ratio_to_python": medians["help"] / medians["python"],
        "limit_s": LIMIT_S,
        "within_limit": medians["help"] < LIMIT_S,
        "load_average": os.getloadavg()[0],
    }
    print(json.dumps(result, indent=1))
    return 0 if result["within_limit"] else 1


if __name__ == "__main__":
    sys.exit(main())
