"""The context of one process in a launch: its role, its rank and the addresses of its peers.

The launcher describes each process through environment variables, because they are the only channel that every
launcher (a plain subprocess, mpiexec, srun) has. Everything else is in ``job.json``, which is the same for all.
"""

import os
from typing import Any, Dict, List, Mapping, Sequence

# One MPI or Slurm launcher starts every rank with the same environment; the rank is then in one of these.
_RANK_VARIABLES = ("STEPTIME_RANK", "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
_LOCAL_RANK_VARIABLES = (
    "STEPTIME_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "SLURM_LOCALID",
)

Job = Dict[str, Any]
"""``job.json``, the same in all processes of a launch."""


def micro_batches(job: Job) -> int:
    """Return in how many parts a worker computes the gradients of a batch; a job that does not say has one."""
    count: int = job.get("accumulation", 1)
    return count


class ProcessContext(object):
    """The role, rank and peers of one process.

    ``role``
        ``worker``, ``server`` or ``scheduler``.
    ``rank``
        Index among the processes of the same role, from 0.
    ``local_rank``
        Index among the workers of the same host, from 0.
    ``workers``, ``servers``
        How many processes of each role the launch has.
    ``worker_addresses``, ``server_addresses``
        ``host:port`` of every worker and server; the ports are free ones, reserved for this launch.
    ``root_address``
        ``host:port`` where rank 0 (or the scheduler) listens for the rendezvous; not one of the above.
    ``cpus``
        The cores this process is pinned to, or an empty list.
    ``left_out``
        The folders that ``start.py`` has taken out of the library path.
    ``folder``
        The run folder: where ``job.json`` is and where records go.
    ``secret``
        Bytes that the processes of this launch share and no others know; from ``job.json``, empty before that is
        read.
    """

    def __init__(self, environment: Mapping[str, str], folder: str) -> None:
        """Read the context from a mapping of environment variables.

        Raises KeyError when a variable of the contract is missing.
        """
        self.role = environment.get("STEPTIME_ROLE", "worker")
        self.rank = _first_number(environment, _RANK_VARIABLES)
        self.local_rank = _first_number(environment, _LOCAL_RANK_VARIABLES)
        self.workers = int(environment.get("STEPTIME_WORKERS", "1"))
        self.servers = int(environment.get("STEPTIME_SERVERS", "0"))
        self.worker_addresses = _list(environment.get("STEPTIME_WORKER_ADDRESSES", ""))
        self.server_addresses = _list(environment.get("STEPTIME_SERVER_ADDRESSES", ""))
        self.root_address = environment.get("STEPTIME_ROOT_ADDRESS", "127.0.0.1:0")
        self.interface = environment.get("STEPTIME_INTERFACE", "lo")
        self.cpus = _cpus(environment, self.role, self.local_rank)
        self.left_out = environment.get("STEPTIME_LIBRARY_PATH_LEFT_OUT", "")
        self.folder = folder
        self.secret = b""

    @property
    def root_host(self) -> str:
        """The host part of ``root_address``."""
        return self.root_address.rsplit(":", 1)[0]

    @property
    def root_port(self) -> int:
        """The port part of ``root_address``, as a number."""
        return int(self.root_address.rsplit(":", 1)[1])

    @property
    def nccl_interface(self) -> str:
        """The interface as NCCL takes exactly one: a bare name would mean all that begin with it."""
        return "=" + self.interface

    @property
    def name(self) -> str:
        """``worker-0``, ``server-1``, …: the stem of this process's files in the run folder."""
        return "%s-%d" % (self.role, self.rank)

    def require_rank(self, library: str, rank: int, workers: int) -> None:
        """Raise RuntimeError when a communication ``library`` sees another rank or number of workers than expected."""
        if (rank, workers) != (self.rank, self.workers):
            raise RuntimeError(
                "%s reports worker %d of %d, the launcher %d of %d; mpiexec and the MPI library of this "
                "environment are probably of different kinds, remove one of them"
                % (library, rank, workers, self.rank, self.workers)
            )

    def pin(self) -> None:
        """Pin this process to its cores; does nothing where none were given or the system cannot pin."""
        if self.cpus and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, self.cpus)


def _first_number(environment: Mapping[str, str], names: Sequence[str]) -> int:
    for name in names:
        if name in environment:
            return int(environment[name])
    return 0


def _cpus(environment: Mapping[str, str], role: str, local_rank: int) -> List[int]:
    """The cores of one process, from those of all processes of its role on the host; the scheduler is not pinned."""
    text = environment.get({"worker": "STEPTIME_CPUS", "server": "STEPTIME_SERVER_CPUS"}.get(role, ""), "")
    if not text:
        return []
    plan = text.split(";")
    return [int(cpu) for cpu in _list(plan[local_rank % len(plan)])]


def _list(text: str) -> List[str]:
    return [part for part in text.split(",") if part]
