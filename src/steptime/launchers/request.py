"""The request that a launcher gets, the processes that it plans, and the outcome that it returns."""

import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import ConfigDict

from steptime.catalog.cluster import Cluster
from steptime.catalog.cluster_findings import ClusterFindings
from steptime.catalog.found_site import Site

Isolation = Literal["required", "preferred", "off"]
LATE = "not finished after the time limit"
"""How the reason of a launch begins that was ended because it took too long."""


@dataclass(frozen=True)
class Request:
    """One launch: a staged run folder and who is to run in it."""

    __pydantic_config__ = ConfigDict(arbitrary_types_allowed=True)

    folder: Path
    """The run folder, which holds ``start.py`` and ``job.json``."""
    interpreter: Path
    """The Python of the framework's environment; of a container a path in it, or a command that it finds."""
    workers: int
    servers: int = 0
    colocated_servers: bool = False
    """Whether servers share the workers' cores, server k those of worker k, instead of having cores of their own."""
    scheduler: bool = False
    threads: int = 1
    """Compute threads of each worker and each server."""
    cores_per_worker: int | None = None
    """Cores that a worker is pinned to; None for as many as it has threads, on devices for its share of those near."""
    environment_variables: dict[str, str] = field(default_factory=dict)
    """What the study sets in the environment of every process, beside what the launcher sets."""
    cores: tuple[int, ...] = ()
    """The cores that may be used; empty means: do not pin."""
    device_cores: tuple[tuple[int, ...], ...] = ()
    """For each device that workers use, those of ``cores`` that are nearest to it; empty if unknown."""
    on_devices: bool = False
    """Whether workers compute on a device each, by local rank, and belong next to it."""
    mpi: bool = False
    """Whether the workers must be started by an mpiexec; to launchers that may start them in more than one way."""
    cluster: Cluster | None = None
    """The hosts to make, for the launcher that makes them, or to use, out of those of the site; None leaves them to
    the launcher."""
    environment: Path | None = None
    """The folder of the framework's environment, which hosts may copy; None for an interpreter of the user's own."""
    container: tuple[str, ...] = ()
    """The words by which the interpreter is started in a container; empty where it runs in none."""
    site: Site | None = None
    """The hosts that are there, for the launchers that use some."""
    isolation: Isolation = "preferred"
    """Whether the launch must have a network of its own, has one where the system allows it, or has none."""
    time_limit_s: float = 300.0
    cancelled: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)
    """Set from another thread to end the launch early."""

    @property
    def command(self) -> tuple[str, ...]:
        """The command of every worker, server and scheduler.

        Outside of containers it begins in the run folder; a container may begin its programs in another folder.
        """
        files = (Path("start.py"), Path("job.json"))
        if self.container:
            files = (self.folder.absolute() / "start.py", self.folder.absolute() / "job.json")
        return (*self.container, str(self.interpreter), *map(str, files))

    @property
    def cores_of_each(self) -> int:
        """How many cores a worker is pinned to."""
        return self.cores_per_worker or self.threads

    def on_one_host(
        self, workers: int, servers: int, cores: tuple[int, ...], device_cores: tuple[tuple[int, ...], ...] = ()
    ) -> Self:
        """Return the part of the launch that runs on one host with ``cores`` of its own, next to its own devices."""
        near = device_cores if self.on_devices else ()
        return replace(self, workers=workers, servers=servers, cores=cores, device_cores=near, site=None, cluster=None)


@dataclass(frozen=True)
class Process:
    """One process to be started."""

    name: str
    """``worker-0``, ``server-1``, ``scheduler-0``, or ``mpiexec`` for a launcher that starts the workers itself."""
    argv: tuple[str, ...]
    environment: dict[str, str] = field(repr=False)
    """What is set besides the inherited environment."""
    entry: tuple[str, ...] = ()
    """The command that enters the launch's own network and then becomes ``argv``, which can be typed without it."""


@dataclass(frozen=True)
class HostLoad:
    """The counters of one host of a launch, just before its processes were started and after the last had ended."""

    host: str
    before: dict[str, Any]
    after: dict[str, Any]


@dataclass(frozen=True)
class LaunchOutcome:
    """How a launch ended."""

    ok: bool
    reason: str | None
    """Who ended it and how, in one sentence; None when all workers reached their end."""
    wall_s: float
    commands: list[list[str]]
    """The argument list of every process, in the order of their start."""
    cluster: ClusterFindings | None = None
    """What was found of the hosts that the launcher made or used, if there were any."""
    isolation: str | None = None
    """What kept others out of the launch's sockets; None if nothing did."""
    host_loads: list[HostLoad] = field(default_factory=list)
    """Of a launch on other hosts: what their counters say; empty where all processes ran on this host."""
    passed: dict[str, str] | None = None
    """The variables that processes inherited of their hosts although they change speed; None if all ran on this
    host, and had those of this process."""
    lost_hosts: list[str] = field(default_factory=list)
    """The names of hosts that were not heard any more, of which at least one has died."""
