"""One launch of a trial, whatever it is for, with what else the machine did meanwhile."""

import resource
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from steptime.environments.table import ReadyEnvironment
from steptime.measurements.noise import difference, flags, snapshot
from steptime.runner.bench import Bench, Ran, Startable
from steptime.study.trial import Trial

DIVERGED = "training diverged: its loss is no number (lower optimizer.learning_rate)"
"""Steps on such numbers may take another time, and old frameworks die of them: Caffe's pooling then writes in front of
its memory."""


@dataclass(frozen=True)
class Launched:
    """A launch that has ended, well or not."""

    ran: Ran
    shared: dict[str, Any]
    """The fields that every kind of launch record has."""


def launch_once(bench: Bench, trial: Startable, job: Mapping[str, Any], folder: Path, *, keep_folder: bool) -> Launched:
    """Launch ``trial`` in fresh processes and wait for its end.

    Args:
        bench: the environments and cores.
        trial: who runs and how.
        job: its ``job.json``.
        folder: the run folder, made anew. That of a failed launch always stays, to be looked into.
        keep_folder: whether it stays after a good launch too.
    """
    started_at, before, own_before = datetime.now(UTC), snapshot(), _children_cpu_s()
    started = time.monotonic()
    ran = bench.run(trial, job, folder, "done")
    wall_s = time.monotonic() - started
    if not keep_folder and not ran.reason:
        shutil.rmtree(folder, ignore_errors=True)
    diverged = [DIVERGED] if ran.collected.diverged() else []
    noise = difference(before, snapshot(), _children_cpu_s() - own_before)
    shared = {
        "trial": trial.id,
        "status": "failed" if ran.reason else "ok",
        "reason": "; ".join([ran.reason, *diverged]) if ran.reason else None,
        "started_at": started_at.isoformat(timespec="milliseconds"),
        "wall_s": wall_s,
        "environment": _environment(bench.environments[trial.framework]),
        "noise": noise,
        "flags": flags(noise, trial.workers, len(bench.cores), trial.threads) + diverged,
        "stderr": ran.stderr,
        "cluster": ran.outcome.cluster.to_json() if ran.outcome.cluster else None,
    }
    return Launched(ran, shared)


def describe(trial: Trial, launch: int) -> str:
    """Return a trial's launch in a few words."""
    workers = "1 worker" if trial.workers == 1 else f"{trial.workers} workers"
    return f"{trial.framework} {trial.strategy}, {trial.workload}, {workers}, launch {launch + 1}"


def _children_cpu_s() -> float:
    """Processor seconds of all ended and awaited children of this process."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _environment(ready: ReadyEnvironment) -> dict[str, Any]:
    return {
        "name": ready.name,
        "kind": ready.kind,
        "interpreter": str(ready.interpreter),
        "python": ready.python_version,
        "packages": ready.packages,
    }
