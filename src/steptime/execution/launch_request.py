"""The request of a launch: the one place where it is derived from a configuration.

The executor starts what comes out of here, and the dry run prints it.
"""

import threading
from pathlib import Path
from typing import Literal

from steptime.catalog.choices import SYNTHETIC
from steptime.catalog.cluster import Cluster, cluster_for
from steptime.catalog.found_site import Site
from steptime.catalog.manifest import Manifest
from steptime.execution.host import device_cores
from steptime.launchers.request import Isolation, Request
from steptime.results.net_records import NetSetting
from steptime.study.trial import Trial

Launchable = Trial | NetSetting
"""A configuration that processes can be started for."""


EnvironmentKey = tuple[str, Literal["cpu", "cuda"], str, str | None]
"""Framework, device, loader and the name that the study gives it decide the environment of a launch."""


def environment_key(configuration: Launchable) -> EnvironmentKey:
    """Return what decides the environment of a configuration; messages are timed without any input."""
    if isinstance(configuration, Trial):
        loader, name = configuration.loader, configuration.environment_name
    else:
        loader, name = SYNTHETIC.name, None
    return configuration.framework, configuration.device, loader, name


def request_of(  # noqa: PLR0913 - what a configuration does not say of its launch
    configuration: Launchable,
    manifest: Manifest,
    *,
    folder: Path,
    interpreter: Path,
    cores: tuple[int, ...],
    time_limit_s: float,
    site: Site | None = None,
    isolation: Isolation = "preferred",
    environment: Path | None = None,
    container: tuple[str, ...] = (),
    cancelled: threading.Event | None = None,
) -> Request:
    """Return what the launcher of a configuration is asked for.

    Args:
        configuration: a trial or a setting of the network benchmark.
        manifest: of its framework.
        folder: the run folder.
        interpreter: the Python of the framework's environment.
        cores: that processes are pinned to; none leaves them unpinned.
        time_limit_s: after which the launch has failed.
        site: the hosts that are there; launches that run on this host alone, or on hosts that are made, get none.
        isolation: whether others are kept from the launch's sockets.
        environment: the folder of the framework's environment, if steptime made it.
        container: the words by which the interpreter is started in a container.
        cancelled: ends the launch early when it is set.
    """
    cluster, on_devices = _cluster(configuration), configuration.device == "cuda"
    return Request(
        folder=folder,
        interpreter=interpreter,
        workers=configuration.workers,
        servers=configuration.servers,
        colocated_servers=configuration.server_placement == "colocated",
        scheduler=manifest.strategies[configuration.strategy].scheduler,
        threads=configuration.threads,
        cores_per_worker=configuration.cores_per_worker,
        environment_variables=configuration.environment_variables,
        cores=cores,
        device_cores=device_cores(cores) if cores and on_devices else (),
        on_devices=on_devices,
        mpi=manifest.launcher_for(configuration.strategy, configuration.options) == "mpi",
        cluster=cluster,
        site=site if cluster is not None and cluster.kind == "found" else None,
        isolation=isolation,
        environment=environment,
        container=container,
        time_limit_s=time_limit_s,
        cancelled=cancelled or threading.Event(),
    )


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
