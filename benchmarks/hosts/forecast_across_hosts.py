"""The forecast for four hosts from a results folder of one and two, beside the measurement on four.

::

    python benchmarks/hosts/forecast_across_hosts.py FOLDER [--frameworks reference pytorch] [--launches 3]

The hosts are nodes of a bed (``tests/launchers/cluster_bed.py``) with links shaped by ``tc``. Nodes are dealt out to
the cores, and each has 45 % of one, so that four nodes on two cores compute as fast as one does. The commands are those
that a user types: ``run``, ``net``, ``fit``, ``predict``, and ``run`` with four hosts. FOLDER is measured once. Needs
root; prints a table in Markdown, with the forecast's interval of 90 % and the measurement's of 95 %.
"""

import argparse
import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "launchers"))
from cluster_bed import HEAD, ClusterBed, running_bed

from steptime.launchers.emulation.control_groups import find_groups, new_owner

STUDY = """\
version: 1
name: forecast
workloads: [{{name: lenet5, batch_per_worker: 16}}]
frameworks: [{frameworks}]
strategies: [single, allreduce]
workers: [1, 2]
loaders: synthetic
device: cpu
launcher: ssh
hosts: [n0, n1, n2, n3]
exclude: [{{strategies: allreduce, workers: 1}}]
launches: {{min: {launches}, max: {launches}}}
seconds_per_launch: 2
breakdown: {{launches: {launches}, seconds: 2}}
equivalence: {{enabled: false}}
time_limit: 900
"""
NODES = 4
SHARE = 0.45
"""Of a core."""
BACK_ENDS = {"reference": "star", "pytorch": "gloo"}
LIMIT_S = 7200.0


@contextlib.contextmanager
def shaped_bed(rate: str) -> Iterator[ClusterBed]:
    """Make a bed, give every link a rate in both directions, and every node a core and a share of its time."""
    groups, owner = find_groups(), new_owner()
    if groups is None:
        sys.exit("no control groups can be made here, so that nodes would take processor time from each other")
    cores = sorted(os.sched_getaffinity(0))
    queue = ["root", "tbf", "rate", rate, "burst", "16kb", "latency", "50ms"]
    try:
        with running_bed(NODES) as bed:
            for index, (name, group) in enumerate(zip(bed.nodes, groups.make(owner, [SHARE] * NODES), strict=True)):
                checked(bed, ["tc", "qdisc", "replace", "dev", "eth0", *queue], name)
                checked(bed, ["tc", "qdisc", "replace", "dev", f"p{index}", *queue])
                of_each = f"taskset -acp {cores[index % len(cores)]} $pid; echo $pid >{group}/cgroup.procs"
                # The list has the ps itself, which has ended by then.
                checked(bed, ["sh", "-c", f"for pid in $(ps -eo pid --no-headers); do {of_each}; done; true"], name)
            yield bed
    finally:
        groups.remove(owner)


def checked(bed: ClusterBed, command: list[str], node: str = HEAD) -> str:
    """Run a command on a node; return what it printed, and end this program where it failed."""
    done = bed.run(*command, node=node, limit_s=LIMIT_S)
    if done.returncode:
        sys.exit(f"{' '.join(command)} on {node} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def measure(bed: ClusterBed, folder: Path, frameworks: list[str], launches: int) -> None:
    """Measure one and two hosts, fit, predict four, and measure four."""
    steptime = [sys.executable, "-m", "steptime"]
    study, known, beyond = folder / "forecast.yaml", folder / "known", folder / "beyond"
    study.write_text(STUDY.format(frameworks=", ".join(frameworks), launches=launches))
    checked(bed, [*steptime, "run", str(study), "-o", str(known)])
    short = ["--launches", str(launches), "--repeats", "20", "-o", str(known)]
    checked(bed, [*steptime, "net", *(BACK_ENDS[each] for each in frameworks), "--hosts", "n0,n1", *short])
    profile = folder / "profile.json"
    (folder / "fit.txt").write_text(checked(bed, [*steptime, "fit", str(known), "-o", str(profile)]))
    predicted = checked(bed, [*steptime, "predict", str(profile), "--workers", "4", "--json"])
    (folder / "predicted.json").write_text(predicted)
    larger = ["workers=4", "strategies=allreduce", "exclude=null", "breakdown=null"]
    checked(bed, [*steptime, "run", str(study), *larger, "-o", str(beyond)])
    (folder / "measured.json").write_text(checked(bed, [*steptime, "report", str(beyond), "--json"]))


def milliseconds(found: dict[str, Any], value: str) -> str:
    """Return a step time with its bounds."""
    numbers = [found[name] for name in (value, "low", "high")]
    shown = ["?" if number is None else f"{1e3 * number:.1f}" for number in numbers]
    return f"{shown[0]} ({shown[1]} to {shown[2]})"


def print_table(folder: Path) -> None:
    """Print the forecast beside the measurement."""
    trials = json.loads((folder / "measured.json").read_text())["trials"]
    measured = {(trial["framework"], trial["strategy"]): trial["step_time_s"] for trial in trials}
    print("| framework, strategy | forecast for 4 hosts, ms | measured, ms | error | within |\n|---|---|---|---|---|")
    for each in json.loads((folder / "predicted.json").read_text())["predictions"]:
        key = (each["framework"], each["strategy"])
        if key not in measured:
            continue
        name, real, forecast = ", ".join(key), measured[key], each["step_time_s"]
        if each["refused"] or not real:
            print(f"| {name} | refused: {each['refused']} | {milliseconds(real, 'mean') if real else 'failed'} | | |")
            continue
        error = forecast["value"] / real["mean"] - 1.0
        within = forecast["low"] <= real["mean"] <= forecast["high"]
        shown = [milliseconds(forecast, "value"), milliseconds(real, "mean")]
        print(f"| {name} | {shown[0]} | {shown[1]} | {error:+.0%} | {'yes' if within else 'no'} |")


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--frameworks", nargs="*", default=["reference", "pytorch"], choices=BACK_ENDS)
    parser.add_argument("--rate", default="200mbit", help="of every link, as tc writes it")
    parser.add_argument("--launches", type=int, default=3, help="of each trial and back end")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the bed is to be taken down
    folder = given.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "measured.json").exists():
        with shaped_bed(given.rate) as bed:
            measure(bed, folder, given.frameworks, given.launches)
    print_table(folder)


if __name__ == "__main__":
    main()
