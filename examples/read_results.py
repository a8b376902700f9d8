"""Work with results in a program of your own: how long would a whole training take, and what would it cost?

::

    .venv/bin/python examples/read_results.py steptime-results/two-frameworks --epochs 90 --samples 60000 --price 0.05

``steptime report DIR --json`` is the interface (docs/report-json.md): nothing of steptime is imported here, so that a
new version cannot break this as long as the schema stays. The price is that of one worker for one hour.
"""

import argparse
import json
import subprocess
import sys
from typing import Any

SCHEMA = 2
"""The form of the report that this program knows."""


def load(folder: str) -> dict[str, Any]:
    """Return the report of a results folder as the documented JSON."""
    command = [sys.executable, "-m", "steptime", "report", folder, "--json"]
    report: dict[str, Any] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    if report["schema"] != SCHEMA:
        sys.exit(f"this program knows schema {SCHEMA}, not {report['schema']}")
    return report


def hours(trial: dict[str, Any], samples: int) -> tuple[float, float, float]:
    """Return the hours that ``samples`` samples take: expected, shortest and longest."""
    rate = trial["throughput_samples_per_s"]
    # The highest rate that is plausible gives the shortest time.
    return samples / rate["value"] / 3600, samples / rate["high"] / 3600, samples / rate["low"] / 3600


def main() -> None:
    """Print one line per configuration, the cheapest first, and what was left out and why."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="a results folder")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--samples", type=int, default=60_000, help="per epoch")
    parser.add_argument("--price", type=float, default=1.0, help="of one worker for one hour")
    arguments = parser.parse_args()

    trials = load(arguments.folder)["trials"]
    rows = []
    for trial in trials:
        if trial["status"] != "ok":
            print(f"left out: {trial['id']}: {trial['reason']}")
            continue
        expected, shortest, longest = hours(trial, arguments.epochs * arguments.samples)
        cost = expected * trial["workers"] * arguments.price
        name = f"{trial['framework']} {trial['strategy']}, {trial['workload']}, {trial['loader']}"
        time = f"{expected:8.3f} h ({shortest:.3f} to {longest:.3f})"
        rows.append((cost, f"{cost:10.4f}  {time}  {name}, {trial['workers']} worker(s)"))
    for _, line in sorted(rows):
        print(line)


if __name__ == "__main__":
    main()
