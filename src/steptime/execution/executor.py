"""One launch from its job to the records of its processes, with the load of the machine meanwhile."""

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import steptime
from steptime.catalog.found_site import Site
from steptime.catalog.manifest import Manifest
from steptime.environments.kinds import ReadyEnvironment
from steptime.errors import LaunchError, StoreError
from steptime.execution.collected import Collected, collect
from steptime.execution.host import SharedCores, usable_cores
from steptime.execution.launch_request import EnvironmentKey, Launchable, environment_key, request_of
from steptime.execution.living_hosts import LivingHosts
from steptime.execution.run_folder import make_run_folder, stderr_tails
from steptime.flags import stored, stored_flag_text
from steptime.launchers.base import AbstractLauncher
from steptime.launchers.fork_servers import Preloading, await_copies, import_of
from steptime.launchers.request import LATE, Isolation, LaunchOutcome, Request
from steptime.launchers.table import launcher_named
from steptime.plain_file import PlainFolder
from steptime.results.gpus import GpuSamples
from steptime.results.machine import machine_id
from steptime.results.noise import difference, flags, of_counters, snapshot, worst
from steptime.study.environment_variables import passed

Item = TypeVar("Item")

"""Steps on such numbers may take another time, and old frameworks die of them: Caffe's pooling then writes in front of
its memory."""
OUT_OF_MEMORY = "out of memory, which is a finding and no fault"
_ENDED_BY = {
    "crash": (r"was ended by SIG(?!KILL|TERM|INT)", "6|11|132|134|135|136|139"),
    "killed": (r"was ended by SIG(?:HUP|INT|KILL|TERM)\b|stopped by a signal", "129|130|137|143"),
}
"""By what ended a process: what a launch's reason has of it, and the exit codes that mpiexec makes of the signals. A
crash has none by which somebody ends a process on purpose; killed is what somebody, or the system for want of memory,
has ended. A hangup is either."""
_SIGNS = {how: re.compile(rf"{signals}|exit code (?:{codes})\b") for how, (signals, codes) in _ENDED_BY.items()}


def was_killed(reason: str | None) -> bool:
    """Say whether somebody, or the system for want of memory, ended a launch that failed for a ``reason``."""
    return _SIGNS["killed"].search(reason or "") is not None


_NO_MEMORY = (
    "cuda out of memory",
    "cuda_error_out_of_memory",
    "resource_exhausted",
    "cudamalloc",
    "status_alloc_failed",
    "oom when allocating",
    "out of memory",
    "can't allocate memory",
    "unable to allocate",
    "memoryerror",
    "std::bad_alloc",
    "failed to allocate",
)
"""What torch, TensorFlow, JAX, CuPy, MXNet, cuBLAS and cuDNN write when a device is full (never seen, but read in their
sources), and what they and numpy write about the host's memory."""
_PORT_TAKEN = ("address already in use", "eaddrinuse", "errno: 98", "errno 98")


@dataclass(frozen=True)
class LaunchResult:
    """How one launch ended, the records of its processes, and the load of the machine meanwhile."""

    outcome: LaunchOutcome
    collected: Collected
    reason: str | None
    """Why the launch failed, in one sentence; None when it did not."""
    stderr: dict[str, str]
    """The last lines of each process's standard error; empty for a good launch."""
    started_at: str = ""
    """UTC, ISO 8601."""
    wall_s: float = 0.0
    noise: dict[str, float | None] = field(default_factory=dict)
    site: list[str] | None = None
    """The names of the hosts that the run could use; None if it uses this one."""
    shared_import: str | None = None
    """Names the process that its processes are forks of; None of fresh ones."""

    @property
    def crashed(self) -> bool:
        """Whether a signal ended a process first, as it now and then does with old software."""
        return _SIGNS["crash"].search(self.outcome.reason or "") is not None

    @property
    def is_late(self) -> bool:
        """Whether the launch was ended because it took too long."""
        return LATE in (self.outcome.reason or "")

    @property
    def out_of_memory(self) -> bool:
        """Whether a process said that it got no memory."""
        return self.reason is not None and OUT_OF_MEMORY in self.reason

    @property
    def port_was_taken(self) -> bool:
        """Whether a process could not listen on its port."""
        said = " ".join([self.reason or "", *self.stderr.values()]).lower()
        return self.reason is not None and any(sign in said for sign in _PORT_TAKEN)


@dataclass(frozen=True)
class Executor:
    """Runs launches with the manifests, environments and cores of this machine."""

    manifests: Mapping[str, Manifest]
    environments: Mapping[str, ReadyEnvironment]
    """By their names; a framework's own is named after it."""
    cores: tuple[int, ...]
    time_limit_s: float
    """Of one launch."""
    isolation: Isolation = "preferred"
    """Whether others are kept from the sockets of a launch."""
    results: Path | None = None
    """The folder below which run folders are made and reached through no link; None for the one around each."""
    environment_names: Mapping[EnvironmentKey, str] = field(default_factory=dict)
    """The environment of a framework on a device with a loader, where it is not named after the framework alone."""
    hosts: LivingHosts | None = None
    """Of launches that use some; None if all run on this host."""
    cancelled: threading.Event = field(default_factory=threading.Event)
    """Set to end launches that run in other threads."""
    preloading: Preloading = field(default_factory=Preloading)
    """Of the processes of launches."""
    forks: int = 0
    """Launches of one trial that are timed and that one import serves; with 0 their processes are fresh."""
    shared_cores: SharedCores = field(default_factory=lambda: SharedCores(len(usable_cores())))
    """That launches which are not pinned run on."""

    def do_side_by_side(self, work: Callable[[Item], None], items: Iterable[Item], at_once: int = 1) -> None:
        """Do ``work`` that launches and times nothing with all ``items``, so many ``at_once``, until it is cancelled.

        What it raises sets ``cancelled``, which ends the other launches. What was preloaded for them ends with it, but
        for that of timed launches.

        Threads only start processes and wait; a thread that ends does not end what is tied to this process's main
        thread, because every launch is over when its thread goes on.
        """

        def begin(item: Item) -> None:
            if not self.cancelled.is_set():
                work(item)

        with contextlib.ExitStack() as held, ThreadPoolExecutor(max_workers=at_once) as pool:
            held.callback(self.preloading.close_but_timed if self.forks else self.preloading.close)
            futures = [pool.submit(begin, item) for item in items]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                self.cancelled.set()
                for future in futures:
                    future.cancel()
                raise

    def environment(self, configuration: Launchable) -> ReadyEnvironment:
        """Return the environment that a configuration is launched in."""
        name = self.environment_names.get(environment_key(configuration), configuration.framework)
        return self.environments[name]

    def launch(  # noqa: PLR0913 - the last four differ between checks, measured launches and trainings
        self,
        configuration: Launchable,
        job: Mapping[str, Any],
        folder: Path,
        *,
        last_record: str = "done",
        pinned: bool = True,
        keep_folder: bool = True,
        at_most_s: float | None = None,
    ) -> LaunchResult:
        """Fill the run folder, start the processes of one launch, wait for their end and read their records.

        A port that another program took between its choice and its use is no fault of the framework: such a launch
        is repeated once with other ports. Raises Unfinished where too many hosts have died since the last launch.

        Args:
            configuration: a trial or a setting of the network benchmark.
            job: its ``job.json``.
            folder: the run folder, made anew.
            last_record: the kind of record that every worker must have written at its end.
            pinned: whether workers are pinned to cores, as those are that are timed; those of others may start with
                their framework imported, and these where ``forks`` allows it.
            keep_folder: whether the run folder stays after a good launch; that of a failed one always does.
            at_most_s: ends the launch ahead of the time limit of all; None for that one.
        """
        manifest = self.manifests[configuration.framework]
        limit_s = self.time_limit_s if at_most_s is None else max(0.0, min(self.time_limit_s, at_most_s))
        site = self.hosts.current() if self.hosts else None
        fresh = self._request(configuration, folder, limit_s, site, pinned=pinned)
        launcher = launcher_named(configuration.launcher)
        began = time.monotonic()
        request = self._preloaded(configuration, fresh, pinned=pinned)
        with contextlib.ExitStack() as held:
            if not pinned and site is None and not request.on_devices:
                held.enter_context(self.shared_cores.taken(configuration.workers, self.cancelled))
            result = self._measured(launcher, request, manifest, job, last_record)
        if pinned and request is not fresh:
            if result.crashed and not self.cancelled.is_set():  # as where somebody has ended what it is forked from
                request = fresh
                result = self._measured(launcher, request, manifest, job, last_record)
            result = _forked_result(result, request, fresh, time.monotonic() - began)
        result = replace(result, site=site.names if site else None)
        if self.hosts:
            self.hosts.doubt(result.outcome.lost_hosts)
        if not keep_folder and not result.reason:
            self.remove(folder)
        return result

    def import_for(self, configurations: Iterable[Launchable]) -> None:
        """Have processes import that the next timed launch of each configuration is forked from, side by side."""
        for each in filter(self._may_be_forked, configurations):
            request = self._request(each, Path(), self.time_limit_s, None, pinned=True)
            self.preloading.begin_import(request, self.manifests[each.framework], each.id, self.forks)
        self.preloading.await_imports(self.time_limit_s, self.cancelled)

    def _preloaded(self, configuration: Launchable, fresh: Request, *, pinned: bool) -> Request:
        manifest = self.manifests[configuration.framework]
        if not self._may_be_forked(configuration):
            return fresh
        if pinned:
            return self.preloading.timed_request(fresh, manifest, configuration.id, self.forks)
        return self.preloading.request(fresh, manifest)

    def _may_be_forked(self, configuration: Launchable) -> bool:
        """Whether it runs on this host, and no option was chosen that may act when the framework is imported."""
        manifest, options = self.manifests[configuration.framework], configuration.options
        return launcher_named(configuration.launcher).name == "local" and (
            manifest.preloading.whatever_options
            or all(
                manifest.options[name].default == value for name, value in options.items() if name in manifest.options
            )
        )

    def _request(
        self, configuration: Launchable, folder: Path, limit_s: float, site: Site | None, *, pinned: bool
    ) -> Request:
        """Return what a launch in fresh processes asks for."""
        environment = self.environment(configuration)
        return request_of(
            configuration,
            self.manifests[configuration.framework],
            folder=folder,
            interpreter=environment.interpreter,
            cores=self.cores if pinned else (),
            time_limit_s=limit_s,
            site=site,
            isolation=self.isolation,
            environment=environment.folder,
            container=environment.container,
            cancelled=self.cancelled,
        )

    def _measured(
        self,
        launcher: AbstractLauncher,
        request: Request,
        manifest: Manifest,
        job: Mapping[str, Any],
        last_record: str,
    ) -> LaunchResult:
        """Run a launch, once more where a port was taken; return how it ended, and the load meanwhile."""
        started_at, before, own_before = datetime.now(UTC), snapshot(), self.preloading.processor_s()
        started = time.monotonic()
        for _ in range(2):
            outcome, collected, samples = self._attempt(launcher, request, manifest, job)
            reason = _failure(outcome, collected, request, last_record)
            own_noise = difference(before, snapshot(), self.preloading.processor_s() - own_before)
            of_gpus = samples.noise(*collected.timed(), request.workers) if samples else {}
            result = LaunchResult(
                outcome=outcome,
                collected=collected,
                reason=reason,
                stderr=stderr_tails(request.folder) if reason else {},
                started_at=started_at.isoformat(timespec="milliseconds"),
                wall_s=time.monotonic() - started,
                noise=_noise_of_hosts(outcome) or {**own_noise, **of_gpus},
            )
            if not result.port_was_taken:
                break
        return result

    def _attempt(
        self, launcher: AbstractLauncher, request: Request, manifest: Manifest, job: Mapping[str, Any]
    ) -> tuple[LaunchOutcome, Collected, GpuSamples | None]:
        """Make the run folder, run the launch, and return how it ended, its records and what GPUs did meanwhile."""
        folder, around = request.folder, self._parent_of(request.folder)
        samples: GpuSamples | None = None
        try:
            around.remove(folder)
            around.make(folder, mode=0o700)
            make_run_folder(folder, manifest.folder, job, manifest.libraries, manifest.name)
            with GpuSamples() if request.on_devices else contextlib.nullcontext() as samples:
                outcome = launcher.run(request)
            await_copies(folder)
            return outcome, collect(folder), samples
        except (LaunchError, StoreError) as error:
            reason = str(error)
        except OSError as error:  # a full disk, or somebody removes the folder meanwhile
            reason = f"the run folder {folder} cannot be used: {error.strerror} ({error.filename})"
        return _not_launched(reason), Collected({}), samples

    def remove(self, folder: Path) -> None:
        """Remove a run folder, or one that holds some, as far as the system lets it."""
        with contextlib.suppress(OSError):
            self._parent_of(folder).remove(folder)

    def _parent_of(self, folder: Path) -> PlainFolder:
        return PlainFolder(self.results or folder.parent)

    def _workers_and_cores_of_a_host(self, configuration: Launchable) -> tuple[int, int]:
        """Return how many workers share a host, and the fewest cores that a host has for them."""
        cluster = configuration.cluster
        if self.hosts is None or cluster is None or cluster.kind == "emulated":
            return configuration.workers, len(self.cores)
        fewest = self.hosts.site.fewest_cores(len(cluster.hosts))
        return cluster.most_workers_of_a_host(configuration.workers), fewest

    def _differing_hosts(self, configuration: Launchable) -> list[str]:
        """Return the flag of a launch whose hosts are not all of one kind, and in what they differ."""
        cluster = configuration.cluster
        if self.hosts is None or cluster is None or cluster.kind == "emulated":
            return []
        differences = self.hosts.site.differences(len(cluster.hosts))
        return [stored("hosts_differ", ", ".join(differences))] if differences else []

    def record_fields(self, configuration: Launchable, result: LaunchResult) -> dict[str, Any]:
        """Return the fields that the records of all kinds of launches have."""
        inherited = passed(os.environ) if result.outcome.passed is None else result.outcome.passed
        diverged = [stored("diverged")] if result.collected.diverged() else []
        noise_flags = flags(result.noise, *self._workers_and_cores_of_a_host(configuration), configuration.threads)
        return {
            "status": "failed" if result.reason else "ok",
            "reason": "; ".join([result.reason, *map(stored_flag_text, diverged)]) if result.reason else None,
            "started_at": result.started_at,
            "wall_s": result.wall_s,
            "steptime": steptime.__version__,
            "machine": machine_id(),
            "environment": _environment_json(self.environment(configuration)),
            "noise": result.noise,
            "flags": noise_flags + diverged + self._differing_hosts(configuration),
            "stderr": result.stderr,
            "cluster": result.outcome.cluster.to_json() if result.outcome.cluster else None,
            "isolation": result.outcome.isolation,
            "environment_variables": {**inherited, **configuration.environment_variables},
            "site": result.site,
            "lost_hosts": result.outcome.lost_hosts,
        }


def _noise_of_hosts(outcome: LaunchOutcome) -> dict[str, float | None]:
    """Return the noise of a launch on hosts, of each quantity that of the worst host; empty of one on this host."""
    return worst([of_counters(load.before, load.after) for load in outcome.host_loads])


def _forked_result(result: LaunchResult, request: Request, fresh: Request, wall_s: float) -> LaunchResult:
    """Return a result with the import that it was forked from, the commands of a fresh one, and the time of both."""
    stand_in, interpreter = str(request.interpreter), str(fresh.interpreter)
    commands = [[interpreter if word == stand_in else word for word in command] for command in result.outcome.commands]
    outcome = replace(result.outcome, commands=commands)
    return replace(result, outcome=outcome, wall_s=wall_s, shared_import=import_of(request))


def _not_launched(reason: str) -> LaunchOutcome:
    return LaunchOutcome(ok=False, reason=reason, wall_s=0.0, commands=[])


def _failure(outcome: LaunchOutcome, collected: Collected, request: Request, last_record: str) -> str | None:
    """Return why a launch failed, where memory was exhausted with that ahead; None of a good one."""
    first_error = collected.first_error(request.site.clock_offsets_s if request.site else {})
    reason = _reason(outcome, first_error, collected.missing(request.workers, last_record))
    if reason and any(sign in reason.lower() for sign in _NO_MEMORY):
        return f"{OUT_OF_MEMORY}: {reason}"
    return reason


def _reason(outcome: LaunchOutcome, error: str | None, missing: Sequence[int]) -> str | None:
    if outcome.reason:
        return f"{error} ({outcome.reason})" if error else outcome.reason
    if error:
        return error
    if missing:
        return f"worker {', '.join(map(str, missing))} ended without its result"
    return None


def _environment_json(ready: ReadyEnvironment) -> dict[str, Any]:
    return {
        "name": ready.name,
        "kind": ready.kind,
        **({"container": list(ready.container)} if ready.container else {}),
        "interpreter": str(ready.interpreter),
        "python": ready.python_version,
        "packages": ready.packages,
    }
