"""The hosts of one launch, from nothing to hosts and back."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from steptime.clusters.cluster import Cluster
from steptime.clusters.findings import ClusterFindings, HostFindings, PathFindings
from steptime.errors import LaunchError
from steptime.launchers.emulation import settings
from steptime.launchers.emulation.groups import Groups, find_groups
from steptime.launchers.emulation.network import (
    NAMESPACES,
    address,
    host_name,
    hosts_file,
    make_network,
    namespace,
)
from steptime.launchers.emulation.owner import Owner, new_owner
from steptime.launchers.emulation.paths import measure_paths, message_bytes
from steptime.launchers.emulation.possible import kernel_delays
from steptime.launchers.emulation.remains import remove, remove_remains
from steptime.launchers.emulation.shaping import Shape, shape_for, shape_links
from steptime.launchers.emulation.starting import AGENT, PLAN, agent_script, entering
from steptime.launchers.emulation.users import made_users
from steptime.launchers.request import Request
from steptime.launchers.surroundings import pins

_QUOTA_CLOSE = 0.01
"""Of a core: the kernel takes whole microseconds of a period."""


@dataclass(frozen=True)
class Hosts:
    """Hosts that are there now."""

    owner: Owner
    cluster: Cluster
    request: Request
    groups: Groups | None
    users: list[Path] | None
    """What opens the hosts' user namespaces; None where nobody may make any."""
    folders: list[Path]
    """The hosts' control groups; empty where there are none."""
    paths: list[PathFindings]
    before: list[tuple[int, int]]
    """Bytes that each interface had received and sent before the launch."""

    def findings(self) -> ClusterFindings:
        """What is to be kept of them, now that the launch has ended."""
        return ClusterFindings(
            kind="emulated",
            delay_s=self.cluster.delay_s,
            delay_by="netem" if self.cluster.delay_s else None,
            cpu_groups=self.groups.words if self.groups else None,
            users=self.users is not None,
            congestion_control=settings.CONGESTION_CONTROL,
            hosts=[self._host(index) for index in range(len(self.cluster.hosts))],
            paths=self.paths,
        )

    def _host(self, index: int) -> HostFindings:
        received, sent = settings.bytes_of(self.owner, index)
        queue = settings.queue_of(self.owner, index)
        quota = self.groups.quota_of(self.folders[index]) if self.groups else None
        counted = self.groups.throttling(self.folders[index]) if self.groups and quota is not None else None
        return HostFindings(
            name=host_name(index),
            address=address(index),
            roles=_roles(self.request, self.cluster, index),
            cores=_cores(self.request, self.cluster, index),
            bandwidth_bits_per_s=queue[0] if queue else None,
            burst_bytes=queue[1] if queue else None,
            cpu_quota_cores=quota,
            received_bytes=received - self.before[index][0],
            sent_bytes=sent - self.before[index][1],
            throttled_s=counted.seconds if counted else None,
            throttled_periods=counted.throttled if counted else None,
            periods=counted.periods if counted else None,
        )


@contextmanager
def made_hosts(cluster: Cluster, request: Request) -> Iterator[Hosts]:
    """Make the hosts of a launch, hold every setting against what was asked, measure the paths, remove all at the end.

    What a dead launch left is removed first.

    Raises LaunchError when this machine cannot make such hosts, or makes others than asked.
    """
    groups = find_groups()
    remove_remains(groups)
    _refuse_impossible(cluster, groups)
    owner = new_owner()
    shapes = [shape_for(host.bandwidth_bits_per_s) for host in cluster.hosts]
    try:
        make_network(owner, [shape.gso_max_bytes if shape else None for shape in shapes])
        shape_links(owner, shapes, cluster.delay_s)
        settings.choose_congestion_control(owner, len(shapes))
        folders = _groups_of(owner, groups, cluster, request)
        settings.check_network(owner, shapes, cluster.delay_s)
        with made_users(len(shapes)) as users:
            _write_plan(owner, folders, users, request.folder.absolute(), len(shapes))
            paths = _measured(cluster, shapes, request.folder.absolute())
            before = [settings.bytes_of(owner, index) for index in range(len(shapes))]
            yield Hosts(owner, cluster, request, groups, users, folders, paths, before)
    finally:
        remove(owner, groups)


def _refuse_impossible(cluster: Cluster, groups: Groups | None) -> None:
    if cluster.delay_s and not kernel_delays():
        message = "this kernel cannot delay packets (it has no 'netem'); set the cluster's delay to 0ms"
        raise LaunchError(message)
    if groups is None and any(host.cpu_share < 1 for host in cluster.hosts):
        message = (
            "no control group of the processor (cgroup v1 or v2) can be made here, so that no host can be slowed; "
            "leave out the cluster's cpu_share"
        )
        raise LaunchError(message)


def _groups_of(owner: Owner, groups: Groups | None, cluster: Cluster, request: Request) -> list[Path]:
    if groups is None:
        return []
    quotas = [
        host.cpu_share * _width(request, cluster, index) if host.cpu_share < 1 else None
        for index, host in enumerate(cluster.hosts)
    ]
    folders = groups.make(owner, quotas)
    for index, (folder, quota) in enumerate(zip(folders, quotas, strict=True)):
        found = groups.quota_of(folder)
        if found != quota and (found is None or quota is None or abs(found - quota) > _QUOTA_CLOSE):
            message = f"the kernel gives host {index} {found} cores, not {quota}"
            raise LaunchError(message)
    if not groups.is_favoured(owner):
        message = "the kernel did not give the emulated hosts the largest share of the processor"
        raise LaunchError(message)
    return folders


def _width(request: Request, cluster: Cluster, index: int) -> int:
    """How many cores a host has: those that its workers are pinned to, or would be."""
    workers = len(cluster.ranks_on(index, "worker", request.workers))
    return len(_cores(request, cluster, index)) or max(1, workers * request.threads)


def _cores(request: Request, cluster: Cluster, index: int) -> list[int]:
    cores = pins(request)
    return sorted({core for rank in cluster.ranks_on(index, "worker", len(cores)) for core in cores[rank]})


def _roles(request: Request, cluster: Cluster, index: int) -> list[str]:
    counts = {"scheduler": int(request.scheduler), "server": request.servers, "worker": request.workers}
    return [f"{role}-{rank}" for role, count in counts.items() for rank in cluster.ranks_on(index, role, count)]


def _write_plan(owner: Owner, folders: list[Path], users: list[Path] | None, run_folder: Path, count: int) -> None:
    table = run_folder / "hosts"
    table.write_text(hosts_file(count))
    plan = {
        "hosts_file": str(table),
        "hosts": [
            {
                "name": host_name(index),
                "namespace": str(NAMESPACES / namespace(owner, index)),
                "group": str(folders[index]) if folders else None,
                "users": str(users[index]) if users else None,
            }
            for index in range(count)
        ],
    }
    (run_folder / PLAN).write_text(json.dumps(plan, indent=1))
    agent = run_folder / AGENT
    agent.write_text(agent_script(run_folder))
    agent.chmod(0o700)


def _measured(cluster: Cluster, shapes: list[Shape | None], folder: Path) -> list[PathFindings]:
    rates = [host.bandwidth_bits_per_s for host in cluster.hosts if host.bandwidth_bits_per_s]
    bursts = [shape.burst_bytes for shape in shapes if shape]
    return measure_paths(
        [address(index) for index in range(len(shapes))],
        message_bytes(min(rates, default=None), max(bursts, default=0)),
        lambda host, program: list(entering(str(folder / PLAN), host, [sys.executable, "-I", "-S", *program])),
    )
