"""The threads of a process as they are: its cores, its threads by name, and the sizes of its thread pools.

What a process was asked to have is in the job; libraries may do otherwise, so that a record has what was found.
"""

import ctypes
import os
import re
from typing import Any, Dict, List, Optional, Sequence, Set

from steptime.worker.usage import helper_processes

_POOLS = (
    ("openmp", re.compile(r"lib(gomp|iomp5|omp)[-.][^/]*$"), ("omp_get_max_threads",)),
    (
        "openblas",
        re.compile(r"lib(scipy_)?openblas[^/]*$"),
        (
            "openblas_get_num_threads",
            "openblas_get_num_threads64_",
            "scipy_openblas_get_num_threads",
            "scipy_openblas_get_num_threads64_",
        ),
    ),
    ("mkl", re.compile(r"lib(mkl_rt|mklml_(intel|gnu))[-.][^/]*$"), ("MKL_Get_Max_Threads",)),
    ("blis", re.compile(r"libblis[-.][^/]*$"), ("bli_thread_get_num_threads",)),
)
"""Libraries with a pool of threads: what they are, the names of their files, and the functions that say its size."""
_ALREADY_LOADED = os.RTLD_LAZY | getattr(os, "RTLD_NOLOAD", 0)


def found_threads() -> Dict[str, Any]:
    """Return what this process has, ready for JSON.

    ``cores``: those on which any of its threads may run, in order; ``live_threads``: how many threads it has;
    ``thread_names``: how many of each name; ``thread_pools``: the size of each pool by its file, as its library reports
    the calling thread, whether or not its threads have been started. ``helper_processes``: how many processes it has
    started, and they. Empty where the system does not say.
    """
    names: Dict[str, int] = {}
    cores: Set[int] = set()
    for thread in _tasks():
        try:
            with open("/proc/self/task/%s/comm" % thread) as file:
                name = file.read().strip()
            cores.update(os.sched_getaffinity(int(thread)))
        except OSError:
            continue  # it has ended meanwhile
        names[name] = names.get(name, 0) + 1
    return {
        "cores": sorted(cores),
        "live_threads": sum(names.values()),
        "thread_names": names,
        "helper_processes": len(helper_processes()),
        "thread_pools": _pools(),
    }


def compute_threads() -> Optional[int]:
    """Return the size of the largest pool that this process has loaded; None if it has loaded none."""
    return max(_pools().values(), default=None)


def _tasks() -> List[str]:
    try:
        return os.listdir("/proc/self/task")
    except OSError:
        return []


def _pools() -> Dict[str, int]:
    found = {}
    for path in _loaded_files():
        for kind, pattern, functions in _POOLS:
            if pattern.search(path):
                size = _size(path, functions)
                if size is not None:
                    found["%s %s" % (kind, os.path.basename(path))] = size
    return found


def _loaded_files() -> List[str]:
    """Return the paths of the shared libraries that this process has loaded."""
    try:
        with open("/proc/self/maps") as file:
            lines = file.readlines()
    except OSError:
        return []
    paths = {line.split(None, 5)[-1].strip() for line in lines}
    return sorted(path for path in paths if path.startswith("/") and ".so" in os.path.basename(path))


def _size(path: str, functions: Sequence[str]) -> Optional[int]:
    try:
        library = ctypes.CDLL(path, mode=_ALREADY_LOADED)
    except OSError:
        return None
    for name in functions:
        function = getattr(library, name, None)
        if function is not None:
            return int(function())
    return None
