"""A study on hosts of which one is killed while they train: its launch fails, and the study goes on without it."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from cluster_bed import ClusterBed

from steptime.results.store import Store

STUDY = """\
workloads: lenet5
frameworks: reference
workers: {workers}
device: cpu
launcher: {launcher}
loaders: synthetic
launches: {{min: 1, max: 1}}
seconds_per_launch: 3
steps: {{warmup: 3, min: 5, max: 1000000}}
"""
LIMIT_S = 400.0


def study_command(folder: Path, launcher: str, workers: int) -> list[str]:
    """Return the command that runs a study with its checks; its results are ``folder / 'results'``."""
    (folder / "race.yaml").write_text(STUDY.format(launcher=launcher, workers=workers))
    words = [sys.executable, "-P", "-m", "steptime", "run", str(folder / "race.yaml")]
    return [*words, "-o", str(folder / "results")]


def hosts_of_probe(results: Path) -> tuple[str, list[str]]:
    """Return where hosts are from, and their names in their order."""
    (site,) = (Store.open(results).get("sites") or {})["sites"][:1]
    return site["source"], [host["name"] for host in site["hosts"]]


def is_timing(results: Path) -> bool:
    """Return whether the check has ended and workers of a timed launch write their records."""
    checked = results / "equivalence.jsonl"
    if not checked.exists():
        return False
    since = checked.stat().st_mtime_ns
    records = results.rglob("worker-1.jsonl")
    return any(record.stat().st_mtime_ns > since for record in records if record.exists())


def kill_the_second(bed: ClusterBed, results: Path, has_ended: Callable[[], bool]) -> list[str]:
    """Kill the second host while workers run, and wait until the study has ended; return the hosts in their order."""
    deadline = time.monotonic() + LIMIT_S
    while not is_timing(results) and not has_ended() and time.monotonic() < deadline:
        time.sleep(0.05)
    _, names = hosts_of_probe(results)
    bed.kill(next(node for node in bed.nodes if names[1] in {node, bed.address(node)}))
    while not has_ended() and time.monotonic() < deadline:
        time.sleep(0.1)
    return names


def went_on_without(bed: ClusterBed, results: Path, names: list[str]) -> bool:
    """Return whether one launch failed for the killed host, and the next ran on the others, with its check passed."""
    nodes = {bed.address(node): node for node in bed.nodes}
    others = {nodes.get(name, name) for name in (names[0], *names[2:])}
    store = Store.open(results)
    launches = [launch for trial in store.trials() for launch in store.launches(trial.id)]
    failed, good = launches[0], launches[1:]
    return (
        [launch.status for launch in launches].count("ok") == 1
        and failed.status != "ok"
        and names[1] in failed.reason
        and {worker.host for launch in good for worker in launch.workers} == others
        and [check.passed for check in store.equivalence()] == [True]
    )
