"""The processes of one launch: the one place where a launch's request is derived from its configuration.

The executor starts what comes out of here, and the dry run prints it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from steptime.clusters.cluster import Cluster, cluster_for
from steptime.frameworks.manifest import Manifest
from steptime.launchers.request import Isolation, Process, Request
from steptime.launchers.table import launcher_named
from steptime.measurements.net.records import NetSetting
from steptime.runner.host import device_cores
from steptime.study.loaders import SYNTHETIC
from steptime.study.trial import Trial

Launchable = Trial | NetSetting
"""A configuration that processes can be started for."""
EnvironmentKey = tuple[str, Literal["cpu", "cuda"], str]
"""Framework, device and loader, which decide the environment of a launch."""


def environment_key(configuration: Launchable) -> EnvironmentKey:
    """Return what decides the environment of a configuration; messages are timed without any input."""
    loader = configuration.loader if isinstance(configuration, Trial) else SYNTHETIC.name
    return configuration.framework, configuration.device, loader


@dataclass(frozen=True)
class LaunchSpec:
    """The processes of a launch of one configuration, before a run folder, an interpreter and ports are known."""

    launcher: str
    workers: int
    servers: int
    colocated_servers: bool
    scheduler: bool
    threads: int
    cores_per_worker: int | None
    environment_variables: dict[str, str]
    device: str
    mpi: bool
    """Whether the framework's workers must be started by an mpiexec."""
    cluster: Cluster | None

    @classmethod
    def of(cls, configuration: Launchable, manifest: Manifest) -> Self:
        """Return the spec of a configuration; ``manifest`` is its framework's."""
        return cls(
            launcher=configuration.launcher,
            workers=configuration.workers,
            servers=configuration.servers,
            colocated_servers=configuration.server_placement == "colocated",
            scheduler=manifest.strategies[configuration.strategy].scheduler,
            threads=configuration.threads,
            cores_per_worker=configuration.cores_per_worker,
            environment_variables=configuration.environment_variables,
            device=configuration.device,
            mpi=manifest.launcher_for(configuration.strategy, configuration.options) == "mpi",
            cluster=_cluster(configuration),
        )

    @property
    def on_site(self) -> bool:
        """Whether the launch uses hosts that are there, and neither this one alone nor such as are made."""
        return self.cluster is not None and self.cluster.kind == "found"

    def request(
        self,
        folder: Path,
        interpreter: Path,
        cores: tuple[int, ...],
        time_limit_s: float,
        isolation: Isolation = "preferred",
    ) -> Request:
        """Return what the launcher is asked for.

        Args:
            folder: the run folder.
            interpreter: the Python of the framework's environment.
            cores: that processes are pinned to; none leaves them unpinned.
            time_limit_s: after which the launch has failed.
            isolation: whether nobody else may reach the launch's sockets.
        """
        return Request(
            folder=folder,
            interpreter=interpreter,
            workers=self.workers,
            servers=self.servers,
            colocated_servers=self.colocated_servers,
            scheduler=self.scheduler,
            threads=self.threads,
            cores_per_worker=self.cores_per_worker,
            environment_variables=self.environment_variables,
            cores=cores,
            device_cores=device_cores(cores) if cores and self.device == "cuda" else (),
            on_devices=self.device == "cuda",
            mpi=self.mpi,
            cluster=self.cluster,
            time_limit_s=time_limit_s,
            isolation=isolation,
        )

    def processes(self, request: Request, ports: Sequence[int]) -> list[Process]:
        """Return the processes that ``request`` would start on ``ports``; raises LaunchError where it cannot."""
        return launcher_named(self.launcher).plan(request, "RUN", ports)


def _cluster(configuration: Launchable) -> Cluster | None:
    """Return the hosts of a configuration; of a site only those that its processes need, which may be a copy's."""
    cluster = configuration.cluster
    if cluster is None or cluster.kind == "emulated":
        return cluster
    return cluster_for(
        workers=configuration.workers,
        own_servers=configuration.servers if configuration.server_placement == "own" else 0,
        workers_per_host=cluster.workers_per_host,
        kind="found",
    )
