"""One launch, from a job to what its processes wrote.

One launch of a trial, whatever it is for, with what else the machine did meanwhile.
"""

import re
import resource
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from steptime.clusters.cluster import Cluster
from steptime.environments.kinds import ReadyEnvironment
from steptime.errors import LaunchError
from steptime.frameworks.manifest import Manifest
from steptime.launchers.request import Outcome, Request
from steptime.launchers.table import launcher_named
from steptime.measurements.noise import difference, flags, snapshot
from steptime.runner.collection import Collected, collect, stderr_tails
from steptime.runner.run_folder import make_run_folder
from steptime.study.trial import OptionValue, Trial

_CRASH = re.compile(r"was ended by SIG(?!KILL|TERM|INT)|exit code (?:6|11|132|134|135|136|139)\b")
"""A signal other than those by which somebody ends a process on purpose, or the exit code that mpiexec makes of one."""
_PORT_TAKEN = ("address already in use", "eaddrinuse", "errno: 98", "errno 98")


class Startable(Protocol):
    """What must be known of a launch to start its processes: a trial, or a setting of the network benchmark."""

    @property
    def id(self) -> str: ...
    @property
    def framework(self) -> str: ...
    @property
    def strategy(self) -> str: ...
    @property
    def options(self) -> Mapping[str, OptionValue]: ...
    @property
    def workers(self) -> int: ...
    @property
    def servers(self) -> int: ...
    @property
    def server_placement(self) -> str | None: ...
    @property
    def threads(self) -> int: ...
    @property
    def launcher(self) -> str: ...
    @property
    def cluster(self) -> Cluster | None: ...


@dataclass(frozen=True)
class Ran:
    """What one launch left: how it ended, what its processes wrote, and why it failed, if it did."""

    outcome: Outcome
    collected: Collected
    reason: str | None
    stderr: dict[str, str]

    @property
    def crashed(self) -> bool:
        """Whether a signal ended a process first, as it now and then does with old software."""
        return _CRASH.search(self.outcome.reason or "") is not None


@dataclass(frozen=True)
class Bench:
    """Where launches run: the rooms, their environments, the cores and the time limit of one launch."""

    manifests: Mapping[str, Manifest]
    environments: Mapping[str, ReadyEnvironment]
    cores: tuple[int, ...]
    time_limit_s: float
    cancelled: threading.Event = field(default_factory=threading.Event)
    """Set to end launches that run in other threads."""

    def request(self, trial: Startable, folder: Path, *, pinned: bool = True) -> Request:
        """Return the request that runs ``trial`` in ``folder``."""
        manifest = self.manifests[trial.framework]
        support = manifest.strategies[trial.strategy]
        return Request(
            folder=folder,
            interpreter=self.environments[trial.framework].interpreter,
            workers=trial.workers,
            servers=trial.servers,
            colocated_servers=trial.server_placement == "colocated",
            scheduler=support.scheduler,
            threads=trial.threads,
            cores=self.cores if pinned else (),
            mpi=manifest.launcher_for(trial.strategy, trial.options) == "mpi",
            cluster=trial.cluster,
            time_limit_s=self.time_limit_s,
            cancelled=self.cancelled,
        )

    def run(self, trial: Startable, job: Mapping[str, Any], folder: Path, done: str, *, pinned: bool = True) -> Ran:
        """Stage ``folder``, run the launch and read its records.

        A port that somebody took between its choice and its use is no fault of the framework: that launch is
        repeated once with other ports.

        Args:
            trial: who runs and how.
            job: its ``job.json``.
            folder: made anew.
            done: the kind of record that every worker must have written.
            pinned: whether workers are pinned to cores.
        """
        ran = self._run_once(trial, job, folder, done, pinned=pinned)
        if ran.reason and any(sign in _said(ran) for sign in _PORT_TAKEN):
            ran = self._run_once(trial, job, folder, done, pinned=pinned)
        return ran

    def _run_once(self, trial: Startable, job: Mapping[str, Any], folder: Path, done: str, *, pinned: bool) -> Ran:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o700)
        manifest = self.manifests[trial.framework]
        make_run_folder(folder, manifest.folder, job, manifest.libraries, manifest.name)
        try:
            outcome = launcher_named(trial.launcher).run(self.request(trial, folder, pinned=pinned))
        except LaunchError as error:
            outcome = Outcome(ok=False, reason=str(error), wall_s=0.0, commands=[])
        collected = collect(folder)
        reason = _reason(outcome, collected, collected.missing(trial.workers, done))
        return Ran(outcome, collected, reason, stderr_tails(folder) if reason else {})


def _reason(outcome: Outcome, collected: Collected, missing: Sequence[int]) -> str | None:
    error = collected.first_error()
    if outcome.reason:
        return f"{error} ({outcome.reason})" if error else outcome.reason
    if error:
        return error
    if missing:
        return f"worker {', '.join(map(str, missing))} ended without its result"
    return None


def _said(ran: Ran) -> str:
    return " ".join([ran.reason or "", *ran.stderr.values()]).lower()


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
