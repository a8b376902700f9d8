"""The cluster of a trial: its hosts, the links that join them, and the host of each process.

The findings of a launch about its cluster are stored with the launch.

The hosts of a real cluster: which there are, and what was found on each before anything was launched.

A trial's ``Cluster`` has the number of hosts it needs and who runs on which; a site names these hosts. Trials keep
their ids on another site; records name the site.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from steptime.units import format_bit_rate, format_bytes, format_count, format_seconds


class _Settled(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


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


_STORED = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)
"""Findings are read back from records, which somebody else may have written."""


@dataclass(frozen=True)
class HostFindings:
    """One host: its settings as they were read back, and what happened on it while the launch ran."""

    __pydantic_config__ = _STORED

    name: str
    address: str
    roles: list[str]
    """``worker-0``, ``server-1``, …: who ran on it."""
    cores: list[int]
    """That its workers were pinned to; empty if none was."""
    bandwidth_bits_per_s: float | None
    """Of its link: by the kernel, or as the switch was set where a program joins the hosts; None if unlimited."""
    burst_bytes: int | None
    cpu_quota_cores: float | None
    """Cores' worth of time that the host may use; None if it has no limit."""
    received_bytes: int
    """By its interface while the launch ran."""
    sent_bytes: int
    throttled_s: float | None = None
    """How long the limit of processor time held the host back; None if there is none, or it is not counted."""
    throttled_periods: int | None = None
    periods: int | None = None


@dataclass(frozen=True)
class PathFindings:
    """From one host to another and back, measured with plain sockets before the launch."""

    __pydantic_config__ = _STORED

    source: int
    target: int
    alpha_s: float
    """Half the time of a round trip of one byte each way, median."""
    bandwidth_bits_per_s: float
    """Of a message of ``message_bytes``, median, with the short round trip taken off."""
    message_bytes: int


@dataclass(frozen=True)
class ClusterFindings:
    """A cluster as one launch had it."""

    __pydantic_config__ = _STORED

    kind: str
    """``emulated``: hosts are namespaces of one machine; ``found``: hosts of a site, as they are."""
    delay_s: float
    delay_by: str | None
    """What makes the delay, ``netem`` of the kernel or a program, ``switch``; None if none was asked for."""
    cpu_groups: str | None
    """``cgroup v1`` or ``cgroup v2``; None if the machine has neither, and load of other processes is not kept away."""
    users: bool
    """Whether hosts have user namespaces of their own, without which some libraries see that they are one machine."""
    congestion_control: str
    hosts: list[HostFindings] = field(default_factory=list)
    paths: list[PathFindings] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Its form in the launch's record."""
        return asdict(self)


Reach = Literal["ssh", "slurm", "ray"]
"""How a program is started on a host."""
_CLOSE_CLOCK_S = 0.5


@dataclass(frozen=True)
class FoundGpu:
    """One GPU of a host, as a worker there sees it; None if unknown."""

    model: str | None = None
    cores: tuple[int, ...] = ()
    """Of the host's cores those on the GPU's NUMA node."""
    capability: str | None = None
    """The compute capability, as ``8.0``."""
    memory_bytes: float | None = None


@dataclass(frozen=True)
class FoundHost:
    """One host: its name, and what the probe found; before the probe only the name is known."""

    name: str
    """By which ssh or Slurm reaches it; in a Ray cluster its address there."""
    address: str = ""
    """Of the interface by which launches communicate; the name before the probe."""
    interface: str = ""
    cores: tuple[int, ...] = ()
    """That processes there may use."""
    memory_bytes: float | None = None
    """That processes may still take: available when it was probed, and no more than a job's limit."""
    cpu: str = ""
    """The processor's name, as its kernel has it."""
    gpus: tuple[FoundGpu, ...] = ()
    """That a worker there sees, in its order: of the bus, or of CUDA_VISIBLE_DEVICES."""
    gpu_driver: str | None = None
    own_name: str = ""
    """That the host gives itself, and that the records of its workers have; empty before the probe."""
    boot: str = ""
    ended: int = 0
    """Processes that a killed run had left there, and that the probe has ended."""
    clock_offset_s: float = 0.0
    """Wall clock of the host minus that of the controller."""
    shown_s: float | None = None
    """After how long a new file of the shared folder showed there."""
    import_s: float | None = None
    """What an interpreter of steptime's own takes there until numpy is imported."""
    mpiexec: str | None = None
    """The mpiexec on PATH there; None if there is none, and before the probe."""
    is_open_mpi: bool = False
    """Whether that is Open MPI's, and not one of MPICH's family."""
    ray_address: str = ""
    """Of the Ray cluster that reaches it; empty where none does."""
    niceness: int = 0
    """Of the processes of launches there: above 0, other programs come first."""

    @property
    def is_probed(self) -> bool:
        """Whether the host has said what it has."""
        return bool(self.boot)

    @property
    def gpu_cores(self) -> tuple[tuple[int, ...], ...]:
        """For each GPU those of ``cores`` on its NUMA node."""
        return tuple(gpu.cores for gpu in self.gpus)

    @property
    def gpus_in_words(self) -> str:
        """How many GPUs of which models, as ``4 GPUs (NVIDIA A100)``."""
        models = " and ".join(dict.fromkeys(gpu.model or "model unknown" for gpu in self.gpus))
        return f"{format_count(len(self.gpus), 'GPU')} ({models})" if self.gpus else "no GPU"

    def in_words(self) -> str:
        """What the probe found, in one line."""
        clock = "" if abs(self.clock_offset_s) < _CLOSE_CLOCK_S else ", which launches do not rely on"
        parts = [
            f"{len(self.cores)} cores{f' of {self.cpu}' if self.cpu else ''}",
            *([self.gpus_in_words] if self.gpus else []),
            *([f"{format_bytes(self.memory_bytes)} free"] if self.memory_bytes else []),
            f"{self.interface} {self.address}",
            f"clock {self.clock_offset_s * 1e3:+.1f} ms{clock}",
            *([f"shared folder after {format_seconds(self.shown_s)}"] if self.shown_s is not None else []),
            *([f"ended {self.ended} processes that a killed run had left"] if self.ended else []),
            *([f"numpy imported in {format_seconds(self.import_s)}"] if self.import_s is not None else []),
            *([f"workers at niceness {self.niceness}"] if self.niceness > 0 else []),
        ]
        return f"{self.name}: {', '.join(parts)}"


@dataclass(frozen=True)
class NeededPaths:
    """What every host must have at the same paths, beside steptime's installation and the results folder."""

    cache: str | None = None
    """The cache of environments and datasets, which all hosts must share; None if nothing of it is needed."""
    datasets: tuple[str, ...] = ()
    """Folders of the user's."""
    interpreters: tuple[str, ...] = ()
    """That the study names."""


@dataclass(frozen=True)
class Site:
    """Hosts in the order in which workers fill them, and how they are reached."""

    hosts: tuple[FoundHost, ...]
    reach: Reach
    source: str
    """Who named them: ``the study``, ``Slurm job 7``, ``$PBS_NODEFILE``, …"""
    workers_per_host: int = 1
    gpus_per_host: int | None = None
    """That the study counts with: its own number, else what Slurm is asked for, else what the probe found; None before
    the probe if it is not said.
    """
    interface: str | None = None
    """That the study wants on every host; None for the one that leads to the first host."""
    local_folder: str | None = None
    """On each host's own disk, to which environments are copied; None if launches use the shared cache."""
    paths: tuple[PathFindings, ...] = field(default=())
    """From the first host to each other one, as measured by the probe."""
    is_example: bool = False
    """Whether the hosts stand for those of an allocation that does not exist yet."""
    unused_slots: str = ""
    """Which hosts have more slots than workers, as a sentence; empty where none has."""

    @property
    def names(self) -> list[str]:
        """The names of the hosts, in order."""
        return [host.name for host in self.hosts]

    @property
    def clock_offsets_s(self) -> dict[str, float]:
        """How far the wall clock of each host is ahead of the controller's, by the name that the host gives itself.

        That is the name in the records of its workers; ssh and Slurm may reach the host by an alias.
        """
        return {host.own_name or host.name: host.clock_offset_s for host in self.hosts}

    def first(self, count: int) -> tuple[FoundHost, ...]:
        """Return the first ``count`` hosts."""
        return self.hosts[:count]

    def fewest_cores(self, count: int) -> int:
        """Return how many cores the host with the fewest has, of the first ``count``; 0 where the probe found none."""
        return min((len(host.cores) for host in self.first(count)), default=0)

    def least_memory_bytes(self, count: int) -> float | None:
        """Return the least memory that a host has free, of the first ``count``; None if none is known."""
        known = [host.memory_bytes for host in self.first(count) if host.memory_bytes is not None]
        return min(known, default=None)

    def differences(self, count: int | None = None) -> dict[str, str]:
        """Return in what the first ``count`` hosts differ, by default all: a step lasts as long as on the slowest.

        Processors, how many cores may be used, and GPUs are compared; what differs is the key, the value names which
        host has which.
        """
        hosts = self.hosts[:count]
        found = {}
        for title, of_host in (
            ("processors", {host.name: host.cpu for host in hosts}),
            ("cores", {host.name: str(len(host.cores)) for host in hosts}),
            ("GPUs", {host.name: host.gpus_in_words for host in hosts}),
        ):
            by_kind: dict[str, list[str]] = {}
            for name, kind in of_host.items():
                by_kind.setdefault(kind, []).append(name)
            if len(by_kind) > 1:
                each = "; ".join(f"{', '.join(names)}: {kind or 'unknown'}" for kind, names in by_kind.items())
                found[title] = each
        return found

    def in_words(self) -> str:
        """Which hosts, and who named them."""
        return f"{len(self.hosts)} hosts of {self.source}, reached by {self.reach}: {', '.join(self.names)}"


def example_site(count: int, reach: Reach, workers_per_host: int, gpus_per_host: int | None) -> Site:
    """Return a site whose hosts are placeholders, for the dry run of a study outside its allocation."""
    hosts = tuple(FoundHost(f"HOST{index}", f"HOST{index}", "INTERFACE") for index in range(count))
    return Site(hosts, reach, "an allocation to come", workers_per_host, gpus_per_host, is_example=True)
