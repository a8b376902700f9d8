"""The sockets on which launches listen, as another user of the machine sees them, with and without isolation.

::

    python benchmarks/isolation/listening_sockets.py [FRAMEWORK ...]

Every strategy of every installed framework is launched with two workers, twice: without a network of its own, and with
one. During the launch ``ss -ltn`` is run as the user 65534, and its sockets are counted that belong to processes of the
launch, as ``ss -ltnp`` tells root. Needs root, ``ss`` and ``setpriv``; prints a table in Markdown.
"""

import argparse
import re
import subprocess
import tempfile
import threading
from collections import Counter
from pathlib import Path

import psutil

from steptime.catalog.manifest import load_manifests
from steptime.catalog.workloads.table import build_workload
from steptime.environments.kinds import find_ready
from steptime.execution.executor import Executor
from steptime.execution.host import usable_cores
from steptime.execution.jobs import TimingSchedule, timing_job
from steptime.runner.plan import plan_study
from steptime.runner.preparation import environment_spec, loader_of
from steptime.study.trial import Trial

STUDY = """
version: 1
workloads: [{name: lenet5, batch_per_worker: 8}]
strategies: all
workers: 2
loaders: synthetic
"""
SCHEDULE = TimingSchedule(warmup_steps=3, seconds=6.0, min_steps=3, max_steps=100_000)
AS_SOMEBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
LIMIT_S = 240.0
EVERYWHERE = ("0.0.0.0", "*", "[::]")  # noqa: S104 - as ss writes them


def listening(before: list[str] = []) -> dict[str, set[int]]:  # noqa: B006 - never changed
    """Return ``{address:port: processes}`` of all listening TCP sockets; processes are told to their own user only."""
    said = subprocess.run([*before, "ss", "-Hltnp"], capture_output=True, text=True, check=True, cwd="/").stdout
    return {line.split()[3]: set(map(int, re.findall(r"pid=(\d+)", line))) for line in said.splitlines()}


def processes_in(folder: Path) -> set[int]:
    """Return the processes whose current folder is a run folder."""
    found = set()
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(folder):
                found.add(process.pid)
        except psutil.Error:
            continue
    return found


def watch(folder: Path, ended: threading.Event) -> Counter[str]:
    """Return how many sockets of a launch another user saw at most at once, by address."""
    most: Counter[str] = Counter()
    while not ended.wait(0.2):
        own, seen = processes_in(folder), listening(AS_SOMEBODY)
        of_launch = [socket for socket, pids in listening().items() if pids & own and socket in seen]
        hosts = (socket.rpartition(":")[0] for socket in of_launch)
        most |= Counter("every address" if host in EVERYWHERE else host for host in hosts)
    return most


def sockets_of(executor: Executor, trial: Trial, folder: Path) -> str:
    """Launch a trial, and say on which addresses another user saw it listen."""
    ended = threading.Event()
    counts: list[Counter[str]] = []
    watcher = threading.Thread(target=lambda: counts.append(watch(folder, ended)))
    watcher.start()
    workload = build_workload(trial.workload, trial.input_shape, trial.classes)
    try:
        result = executor.launch(trial, timing_job(trial, workload, loader_of(trial, {}), SCHEDULE), folder)
    finally:
        ended.set()
        watcher.join()
    if result.reason:
        return f"failed: {result.reason}"
    return ", ".join(f"{address}: {count}" for address, count in sorted(counts[0].items())) or "none"


def main() -> None:
    """Launch, watch and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("frameworks", nargs="*", help="all that are installed by default")
    manifests = load_manifests()
    ready = {name: found for name, each in manifests.items() if (found := find_ready(environment_spec(each)))}
    print("| framework | strategy | without isolation | with isolation |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        study = Path(scratch, "sockets.yaml")
        study.write_text(STUDY + f"frameworks: [{', '.join(parser.parse_args().frameworks or ready)}]\n")
        for trial in plan_study(str(study), [], Path(scratch, "results"), None).expansion.trials:
            if trial.strategy == "single" or trial.framework not in ready:
                continue
            executors = [
                Executor(manifests, ready, usable_cores(), LIMIT_S, "off"),
                Executor(manifests, ready, usable_cores(), LIMIT_S, "required"),
            ]
            cells = [sockets_of(each, trial, Path(scratch, f"{trial.id}-{each.isolation}")) for each in executors]
            print(f"| {trial.framework} | {trial.strategy} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
