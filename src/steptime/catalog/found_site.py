"""The hosts of a real cluster: which there are, and what was found on each before anything was launched.

A trial's ``Cluster`` has the number of hosts it needs and who runs on which; a site names these hosts. Trials keep
their ids on another site; records name the site.
"""

from dataclasses import dataclass, field
from typing import Literal

from steptime.catalog.cluster_findings import PathFindings
from steptime.units import format_bytes, format_count, format_seconds

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
