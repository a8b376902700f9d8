"""The environment variables of the processes of a launch, as docs/worker-protocol.md defines them."""

import os
from collections.abc import Iterable, Mapping, Sequence

from steptime.launchers.request import Request
from steptime.process_identity import ProcessIdentity
from steptime.study.environment_variables import FAMILIES, PASSED, SINGLE

# One thread pool per worker, whatever library makes it.
_POOLS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
_SLEEPING_WAITS = {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1"}
"""MPICH looks again and again for what it waits for, and between two looks only offers its core to others of its own
control group. This variable makes it sleep for a moment. Otherwise, where workers share a core, a waiting worker holds
up for a whole turn of the scheduler the worker that it waits for: 1 KiB among four workers on two cores took 8 ms, and
0.4 ms with the variable.
"""
# What would let the user's shell reach into the measured process, or tell it that it belongs to another job, and what
# changes speed.
_STRIPPED_PREFIXES = (
    "PYTHON",
    "COVERAGE_",
    "PMI_",
    "PMIX_",
    "OMPI_",
    "MPI_LOCAL",
    "STEPTIME_",
    *FAMILIES,
)
_ALLOCATIONS = ("SLURM_", "SLURMD_", "PBS_", "LSB_", "FLUX_", "COBALT_", "OAR_", "LOADL_")
"""Of the variables of a scheduler: an mpiexec takes from them the hosts of the allocation around it, and how to reach
them, although it is to start its workers on this host alone, or on hosts that it is told.
"""
_STRIPPED = (
    "VIRTUAL_ENV",
    "TF_CONFIG",
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "PE_HOSTFILE",
    *SINGLE,
)


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the part of ``environment`` that may be passed on to a measured process.

    What changes speed stays behind, so that nothing of the user's shell changes a number; what is passed nevertheless
    is in ``PASSED``, and a launch's record has its values.
    """
    return {
        name: value
        for name, value in environment.items()
        if name in PASSED or not (name in _STRIPPED or name.startswith((*_STRIPPED_PREFIXES, *_ALLOCATIONS)))
    }


def foreign_variables() -> dict[str, list[str]]:
    """Return what ``inherited`` keeps from measured processes, as a far host must know it, and the variables of ssh.

    ``names`` and ``prefixes`` stay behind, ``passed`` do not.
    """
    return {
        "names": list(_STRIPPED),
        "prefixes": [*_STRIPPED_PREFIXES, *_ALLOCATIONS, "SSH_"],
        "passed": list(PASSED),
    }


def thread_pools(threads: int) -> dict[str, str]:
    """Return the variables by which the libraries of a process compute with so many threads."""
    return dict.fromkeys(_POOLS, str(threads))


def shared_variables(request: Request, marker: str, host: str, ports: Sequence[int]) -> dict[str, str]:
    """Return what every process of a launch has in common.

    Args:
        request: the launch.
        marker: a text that no other launch has; by it the processes of this launch can be found.
        host: the address of this host.
        ports: free ports: one for the rendezvous, one per worker, one per server.
    """
    workers = ports[1 : 1 + request.workers]
    servers = ports[1 + request.workers :]
    return {
        **request.environment_variables,
        **thread_pools(request.threads),
        **(_SLEEPING_WAITS if shares_cores(request) else {}),
        "PYTHONNOUSERSITE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "STEPTIME_RUN": marker,
        "STEPTIME_PARENT": str(os.getpid()),
        "STEPTIME_RUNNER": str(ProcessIdentity.own()),
        "STEPTIME_WORKERS": str(request.workers),
        "STEPTIME_SERVERS": str(request.servers),
        "STEPTIME_INTERFACE": "lo",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # as the runner lists devices; CUDA itself would begin with the fastest
        "STEPTIME_ROOT_ADDRESS": f"{host}:{ports[0]}",
        "STEPTIME_WORKER_ADDRESSES": ",".join(f"{host}:{port}" for port in workers),
        "STEPTIME_SERVER_ADDRESSES": ",".join(f"{host}:{port}" for port in servers),
        "STEPTIME_CPUS": cores_in_words(pins(request)),
        "STEPTIME_SERVER_CPUS": cores_in_words(server_pins(request)),
    }


def shares_cores(request: Request) -> bool:
    """Whether there are more compute threads than cores for them, on any host."""
    if request.site is not None and request.cluster is not None:
        here = request.cluster.most_workers_of_a_host(request.workers)
        fewest = request.site.fewest_cores(len(request.cluster.hosts))
        return bool(fewest) and here * request.threads > fewest
    return bool(request.cores) and request.workers * request.threads > len(request.cores)


def cores_in_words(cores_of_each: Iterable[tuple[int, ...]]) -> str:
    """Return the cores of each process as the worker protocol writes them: ``0,1;2,3``."""
    return ";".join(",".join(map(str, cores)) for cores in cores_of_each)


def server_pins(request: Request) -> list[tuple[int, ...]]:
    """Return the cores of each server: those of a worker, or as many as it has threads that no worker has.

    Servers that find no cores of their own may use all: better than to fight with one worker only.
    """
    workers = pins(request)
    if request.colocated_servers:
        return [workers[rank % len(workers)] for rank in range(request.servers)] if workers else []
    taken = {core for own in workers for core in own}
    free = [core for core in request.cores if core not in taken]
    if len(free) < request.servers * request.threads:
        return []
    return [tuple(free[rank * request.threads : (rank + 1) * request.threads]) for rank in range(request.servers)]


def pins(request: Request) -> list[tuple[int, ...]]:
    """Return the cores of each worker: as many neighbours as it shall have, starting over when they run out.

    Where the cores next to the workers' devices are known, a worker has its own among those of its device. On a device
    it has its share of them: while one thread issues the work, others copy, read and communicate.
    """
    if not request.cores:
        return []
    near = request.device_cores or (request.cores,)
    groups = [near[rank % len(near)] or request.cores for rank in range(request.workers)]
    shares = request.on_devices and request.cores_per_worker is None
    given: dict[tuple[int, ...], int] = {}
    found = []
    for cores in groups:
        start = given.get(cores, 0)
        share = len(cores) // groups.count(cores) if shares else 0
        given[cores] = start + max(request.cores_of_each, share)
        found.append(tuple(sorted({cores[index % len(cores)] for index in range(start, given[cores])})))
    return found
