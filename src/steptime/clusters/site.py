"""The hosts of a real cluster: which there are, and what was found on each before anything was launched.

A trial's ``Cluster`` says how many hosts it needs and who runs on which; a site says which hosts these are. Trials keep
their ids on another site; records name the site.
"""

from dataclasses import dataclass, field
from typing import Literal

from steptime.clusters.cluster import PathFindings
from steptime.units import format_bytes, format_seconds

Reach = Literal["ssh", "slurm"]
"""How a program is started on a host."""
_CLOSE_CLOCK_S = 0.5


@dataclass(frozen=True)
class FoundHost:
    """One host: its name, and what the probe found; before the probe only the name is known."""

    name: str
    """By which ssh or Slurm reaches it."""
    address: str = ""
    """Of the interface by which launches communicate; the name before the probe."""
    interface: str = ""
    cores: tuple[int, ...] = ()
    """That processes there may use."""
    memory_bytes: float | None = None
    """Available when it was probed."""
    gpus: int = 0
    gpu_cores: tuple[tuple[int, ...], ...] = ()
    """For each GPU, in the order of the bus, those of ``cores`` on its NUMA node."""
    boot: str = ""
    clock_offset_s: float = 0.0
    """Wall clock of the host minus that of the controller."""
    shown_s: float | None = None
    """After how long a new file of the shared folder showed there."""
    import_s: float | None = None
    """What an interpreter of steptime's own takes there until numpy is imported."""
    mpiexec: str | None = None
    """The mpiexec on PATH there; None where there is none, and before the probe."""
    is_open_mpi: bool = False
    """Whether that is Open MPI's, and not one of MPICH's family."""

    @property
    def is_probed(self) -> bool:
        """Whether the host has said what it has."""
        return bool(self.boot)

    def in_words(self) -> str:
        """What the probe found, in one line."""
        clock = "" if abs(self.clock_offset_s) < _CLOSE_CLOCK_S else ", which launches do not rely on"
        parts = [
            f"{len(self.cores)} cores",
            *([f"{self.gpus} GPUs"] if self.gpus else []),
            *([f"{format_bytes(self.memory_bytes)} free"] if self.memory_bytes else []),
            f"{self.interface} {self.address}",
            f"clock {self.clock_offset_s * 1e3:+.1f} ms{clock}",
            *([f"shared folder after {format_seconds(self.shown_s)}"] if self.shown_s is not None else []),
            *([f"numpy imported in {format_seconds(self.import_s)}"] if self.import_s is not None else []),
        ]
        return f"{self.name}: {', '.join(parts)}"


@dataclass(frozen=True)
class Site:
    """Hosts in the order in which workers fill them, and how they are reached."""

    hosts: tuple[FoundHost, ...]
    reach: Reach
    source: str
    """Who named them: ``the study``, ``Slurm job 7``, ``$PBS_NODEFILE``, …"""
    workers_per_host: int = 1
    gpus_per_host: int | None = None
    """None where the study does not say."""
    interface: str | None = None
    """That the study wants on every host; None for the one that leads to the first host."""
    local_folder: str | None = None
    """On each host's own disk, to which environments are copied; None where launches use the shared cache."""
    paths: tuple[PathFindings, ...] = field(default=())
    """From the first host to each other one, as measured by the probe."""
    is_example: bool = False
    """Whether the hosts stand for those of an allocation that does not exist yet."""

    @property
    def names(self) -> list[str]:
        """The names of the hosts, in order."""
        return [host.name for host in self.hosts]

    @property
    def clock_offsets_s(self) -> dict[str, float]:
        """How far the wall clock of each host is ahead of the controller's."""
        return {host.name: host.clock_offset_s for host in self.hosts}

    def first(self, count: int) -> tuple[FoundHost, ...]:
        """Return the first ``count`` hosts."""
        return self.hosts[:count]

    def fewest_cores(self, count: int) -> int:
        """Return how many cores the host with the fewest has, of the first ``count``; 0 where the probe found none."""
        return min((len(host.cores) for host in self.first(count)), default=0)

    def least_memory_bytes(self, count: int) -> float | None:
        """Return the least memory that a host has free, of the first ``count``; None where none is known."""
        known = [host.memory_bytes for host in self.first(count) if host.memory_bytes is not None]
        return min(known, default=None)

    def in_words(self) -> str:
        """Which hosts, and who named them."""
        return f"{len(self.hosts)} hosts of {self.source}, reached by {self.reach}: {', '.join(self.names)}"


def example_site(count: int, reach: Reach, workers_per_host: int, gpus_per_host: int | None) -> Site:
    """Return a site whose hosts are placeholders, for the dry run of a study outside its allocation."""
    hosts = tuple(FoundHost(f"HOST{index}", f"HOST{index}", "INTERFACE") for index in range(count))
    return Site(hosts, reach, "an allocation to come", workers_per_host, gpus_per_host, is_example=True)
