"""Gives a worker of an official script its cores, as the launcher does for the adapter; Python imports it at the start.

``RACE_CORES`` holds the cores of each worker, as ``0,1;2,3``. A process that no launcher gave a rank is a launcher
itself, unless there is one worker only. Any Python from 3.6 on can run this.
"""

import os

_RANKS = ("LOCAL_RANK", "HOROVOD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_RANK")


def own_rank():
    """Return the rank among the workers of this host, as the launcher says it; None if it says none."""
    return next((int(os.environ[name]) for name in _RANKS if name in os.environ), None)


def _take_cores():
    of_each = [cores for cores in os.environ.get("RACE_CORES", "").split(";") if cores]
    rank = 0 if len(of_each) == 1 else own_rank()
    if rank is not None and rank < len(of_each):
        os.sched_setaffinity(0, [int(core) for core in of_each[rank].split(",")])


_take_cores()
