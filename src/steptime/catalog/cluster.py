"""The cluster of a trial: its hosts, the links between them, and the host of each process."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from steptime.units import format_bit_rate, format_seconds


class _Settled(BaseModel):
    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Host(_Settled):
    """One host and its link to the switch that joins all hosts."""

    bandwidth_bits_per_s: float | None = None
    """Of its link, in each direction; None if nothing limits it."""
    cpu_share: float = 1.0
    """Of its cores that its processes may use; below 1 on a host that is meant to be slow."""


class Cluster(_Settled):
    """Hosts on one switch: first those of workers, then those that servers have for themselves.

    No host is there that no process runs on.
    """

    kind: Literal["emulated", "found"] = "emulated"
    """Whether a launcher makes the hosts of this machine, or uses those of a site."""
    hosts: tuple[Host, ...]
    worker_hosts: int
    """How many of the hosts run workers."""
    workers_per_host: int = 1
    delay_s: float = 0.0
    """From one host to another, one way, besides what the link itself takes."""

    def host_of(self, role: str, rank: int) -> int:
        """Return the index of the host that a process runs on.

        Workers fill one host after the other. Server k has a host of its own if there is one, otherwise it runs on
        host k and starts over when hosts run out. The scheduler runs on the first host.
        """
        if role == "worker":
            return rank // self.workers_per_host
        if role == "server":
            own = len(self.hosts) - self.worker_hosts
            return self.worker_hosts + rank % own if own else rank % self.worker_hosts
        return 0

    def most_workers_of_a_host(self, workers: int) -> int:
        """Return how many of ``workers`` run on the host that has the most of them."""
        return min(workers, self.workers_per_host)

    def in_words(self) -> str:
        """Return what of it changes the time of a step; not how many hosts, which depends on the strategy."""
        rates = [host.bandwidth_bits_per_s for host in self.hosts]
        usual = max(rates, key=rates.count)
        others = [
            f"host {index} on {format_bit_rate(rate) if rate else 'a link without limit'}"
            for index, rate in enumerate(rates)
            if rate != usual
        ]
        slow = [f"host {index} at {host.cpu_share:.0%}" for index, host in enumerate(self.hosts) if host.cpu_share < 1]
        parts = [
            f"hosts of {self.workers_per_host}",
            *([f"links of {format_bit_rate(usual)}"] if usual else []),
            *others,
            *([f"{format_seconds(self.delay_s)} delay"] if self.delay_s else []),
            *slow,
        ]
        return ("emulated " if self.kind == "emulated" else "") + ", ".join(parts)

    def ranks_on(self, host: int, role: str, count: int) -> list[int]:
        """Return which of ``count`` processes of a role run on ``host``."""
        return [rank for rank in range(count) if self.host_of(role, rank) == host]


def cluster_for(  # noqa: PLR0913 - these are the degrees of freedom of a cluster
    *,
    workers: int,
    own_servers: int,
    workers_per_host: int = 1,
    bandwidth_bits_per_s: float | None = None,
    host_bandwidths: dict[int, float] | None = None,
    delay_s: float = 0.0,
    cpu_shares: dict[int, float] | None = None,
    kind: Literal["emulated", "found"] = "emulated",
) -> Cluster:
    """Return the cluster that so many processes need.

    Args:
        workers: of the trial.
        own_servers: servers that have a host each; 0 where they share the hosts of workers.
        workers_per_host: at most; the last host may have fewer.
        bandwidth_bits_per_s: of every link.
        host_bandwidths: of the links of those workers' hosts that have another one, in bits per second.
        delay_s: between any two hosts.
        cpu_shares: of the workers' hosts that have not all of their cores' time.
        kind: whether the hosts are made, or those of a site.

    What names no host of workers of this trial means nothing to it.
    """
    worker_hosts = -(-workers // workers_per_host)
    shares, rates = cpu_shares or {}, host_bandwidths or {}
    hosts = [
        Host(
            bandwidth_bits_per_s=rates.get(index, bandwidth_bits_per_s)
            if index < worker_hosts
            else bandwidth_bits_per_s,
            cpu_share=shares.get(index, 1.0) if index < worker_hosts else 1.0,
        )
        for index in range(worker_hosts + own_servers)
    ]
    return Cluster(
        kind=kind,
        hosts=tuple(hosts),
        worker_hosts=worker_hosts,
        workers_per_host=workers_per_host,
        delay_s=delay_s,
    )
