"""The emulated hosts of one launch: made, checked, measured and removed."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from steptime.catalog.cluster import Cluster
from steptime.catalog.cluster_findings import ClusterFindings, HostFindings, PathFindings
from steptime.errors import LaunchError
from steptime.interruption import shielded
from steptime.launchers.emulation import verification as settings
from steptime.launchers.emulation.commands import AGENT, PLAN, agent_script, cores_on, enter_command
from steptime.launchers.emulation.control_groups import Groups, Owner, find_groups, new_owner, owner_of
from steptime.launchers.emulation.network import (
    NAMESPACES,
    address,
    can_switch,
    host_name,
    hosts_file,
    make_network,
    namespace,
    remove_network,
    running_switch,
    shape_for,
    shape_links,
)
from steptime.launchers.emulation.rootless import made_users
from steptime.launchers.emulation.verification import kernel_delays, measure_paths, message_bytes
from steptime.launchers.process_env import pins
from steptime.launchers.request import Request
from steptime.plain_file import PlainFolder
from steptime.units import format_seconds

_LEAST_DELAY = 0.95
"""Of what was asked for: a byte that arrives sooner was not delayed by as much."""
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
    """What opens the hosts' user namespaces; None if none may be made."""
    folders: list[Path]
    """The hosts' control groups; empty where there are none."""
    paths: list[PathFindings]
    before: list[tuple[int, int]]
    """Bytes that each interface had received and sent before the launch."""
    delay_by: str | None
    switch: subprocess.Popen[str] | None
    """The program that joins the hosts, where the kernel does not."""

    def broken(self) -> str | None:
        """Say what of the hosts ended before the launch did; None if all is still there."""
        if self.switch is None or self.switch.poll() is None:
            return None
        return "the delay switch between the emulated hosts ended before the launch did"

    def findings(self) -> ClusterFindings:
        """What is to be kept of them, now that the launch has ended."""
        return ClusterFindings(
            kind="emulated",
            delay_s=self.cluster.delay_s,
            delay_by=self.delay_by,
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
            bandwidth_bits_per_s=queue[0] if queue else self._by_switch(index),
            burst_bytes=queue[1] if queue else None,
            cpu_quota_cores=quota,
            received_bytes=received - self.before[index][0],
            sent_bytes=sent - self.before[index][1],
            throttled_s=counted.seconds if counted else None,
            throttled_periods=counted.throttled if counted else None,
            periods=counted.periods if counted else None,
        )

    def _by_switch(self, index: int) -> float | None:
        return self.cluster.hosts[index].bandwidth_bits_per_s if self.switch else None


@contextmanager
def made_hosts(cluster: Cluster, request: Request) -> Iterator[Hosts]:
    """Make the hosts of a launch, hold every setting against what was asked, measure the paths, remove all at the end.

    What a dead launch left is removed first.

    Raises LaunchError when this machine cannot make such hosts, or makes others than asked.
    """
    groups = find_groups()
    remove_orphans(groups)
    delay_by = _delay_by(cluster)
    if groups is None and any(host.cpu_share < 1 for host in cluster.hosts):
        message = (
            "no control group of the processor (cgroup v1 or v2) can be made here, so that no host can be slowed; "
            "leave out the cluster's cpu_share"
        )
        raise LaunchError(message)
    owner = new_owner()
    try:
        with _links(owner, cluster, delay_by) as switch, made_users(len(cluster.hosts)) as users:
            folders = _groups_of(owner, groups, cluster, request)
            _write_plan(owner, folders, users, request, cluster)
            paths = _measured(cluster, request.folder.absolute())
            _check_delay(cluster, paths)
            before = [settings.bytes_of(owner, index) for index in range(len(cluster.hosts))]
            yield Hosts(owner, cluster, request, groups, users, folders, paths, before, delay_by, switch)
    finally:
        with shielded():
            remove(owner, groups)


def _delay_by(cluster: Cluster) -> str | None:
    """Say what can delay packets here, if they are to be delayed; raises LaunchError where nothing can."""
    if not cluster.delay_s:
        return None
    if kernel_delays():
        return "netem"
    if can_switch():
        return "switch"
    message = (
        "nothing can delay packets here: the kernel has no 'netem', and /dev/net/tun cannot be opened; "
        "set the cluster's delay to 0ms"
    )
    raise LaunchError(message)


@contextmanager
def _links(owner: Owner, cluster: Cluster, delay_by: str | None) -> Iterator[subprocess.Popen[str] | None]:
    """Join the hosts by the kernel's switch, or by a program's where only that can delay packets; hold it to it."""
    count = len(cluster.hosts)
    if delay_by == "switch":
        with running_switch(owner, [host.bandwidth_bits_per_s for host in cluster.hosts], cluster.delay_s) as switch:
            settings.choose_congestion_control(owner, count)
            settings.check_hosts(owner, count)
            yield switch
        return
    shapes = [shape_for(host.bandwidth_bits_per_s) for host in cluster.hosts]
    make_network(owner, [shape.gso_max_bytes if shape else None for shape in shapes])
    shape_links(owner, shapes, cluster.delay_s)
    settings.choose_congestion_control(owner, count)
    settings.check_network(owner, shapes, cluster.delay_s)
    yield None


def _check_delay(cluster: Cluster, paths: list[PathFindings]) -> None:
    for path in paths:
        if path.alpha_s < _LEAST_DELAY * cluster.delay_s:
            message = (
                f"a byte reaches host {path.target} in {format_seconds(path.alpha_s)}, "
                f"sooner than after the delay of {format_seconds(cluster.delay_s)} that was asked for"
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


def _write_plan(
    owner: Owner, folders: list[Path], users: list[Path] | None, request: Request, cluster: Cluster
) -> None:
    run_folder, count = request.folder.absolute(), len(cluster.hosts)
    table = run_folder / "hosts"
    files = PlainFolder(run_folder)
    files.put(table, hosts_file(count).encode())
    plan = {
        "hosts_file": str(table),
        "hosts": [
            {
                "name": host_name(index),
                "namespace": str(NAMESPACES / namespace(owner, index)),
                "group": str(folders[index]) if folders else None,
                "users": str(users[index]) if users else None,
                "variables": cores_on(request, cluster, index),
            }
            for index in range(count)
        ],
    }
    files.put(run_folder / PLAN, json.dumps(plan, indent=1).encode())
    files.put(run_folder / AGENT, agent_script(run_folder).encode(), mode=0o700)


def _measured(cluster: Cluster, folder: Path) -> list[PathFindings]:
    rates = [host.bandwidth_bits_per_s for host in cluster.hosts if host.bandwidth_bits_per_s]
    bursts = [shape.burst_bytes for rate in rates if (shape := shape_for(rate))]
    return measure_paths(
        [address(index) for index in range(len(cluster.hosts))],
        message_bytes(min(rates, default=None), max(bursts, default=0), cluster.delay_s),
        lambda host, program: list(enter_command(str(folder / PLAN), host, [sys.executable, "-I", "-S", *program])),
    )


def remove_orphans(groups: Groups | None) -> list[Owner]:
    """Remove the namespaces and control groups of launches whose process was killed; return their owners."""
    owners = {owner_of(path.name) for path in NAMESPACES.glob("steptime-*")}
    owners |= set(groups.owners()) if groups else set()
    dead = [owner for owner in owners if owner and not owner.lives]
    for owner in dead:
        remove(owner, groups)
    return dead


def remove(owner: Owner, groups: Groups | None) -> None:
    """Remove everything that carries the mark of ``owner``, processes first."""
    if groups:
        groups.remove(owner)
    remove_network(owner)
