"""One launch, from a job to what its processes wrote."""

import re
import shutil
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from steptime.clusters.cluster import Cluster
from steptime.environments.table import ReadyEnvironment
from steptime.errors import LaunchError
from steptime.frameworks.manifest import Manifest
from steptime.launchers.request import Outcome, Request
from steptime.launchers.table import launcher_named
from steptime.runner.collecting import Collected, collect, stderr_tails
from steptime.runner.stage import stage
from steptime.study.trial import OptionValue

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
        stage(folder, self.manifests[trial.framework].folder, dict(job))
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
