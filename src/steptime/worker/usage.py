"""The use of the machine by a worker and its loader helpers: processor seconds, memory, switches and page faults.

Helpers are the processes that a worker has started and those that they have started; threads count with their process.
Linux only: elsewhere helpers are not seen, and what they use is 0.

The threads of a process as they are: its cores, its threads by name, and the sizes of its thread pools.

What a process was asked to have is in the job; libraries may do otherwise, so that a record has what was found.
"""

import ctypes
import os
import re
import resource
import time
from typing import Any, Dict, List, Optional, Sequence, Set


def usage() -> Dict[str, float]:
    """Return the sums so far, to be subtracted from later ones.

    ``cpu_s`` of this process, ``helpers_cpu_s`` of its helpers, living and ended, ``wall_s`` of the monotonic clock,
    switches and major page faults of this process.
    """
    own = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "cpu_s": own.ru_utime + own.ru_stime,
        "helpers_cpu_s": _helpers_cpu_s(),
        "involuntary_switches": own.ru_nivcsw,
        "voluntary_switches": own.ru_nvcsw,
        "major_faults": own.ru_majflt,
        "wall_s": time.monotonic(),
    }


def used_since(before: Dict[str, float]) -> Dict[str, float]:
    """Return the difference of ``usage`` now and ``before``, and the memory held now.

    ``max_rss_bytes`` is the most that this process has had in memory, ``memory_bytes`` and ``helpers_memory_bytes``
    what it and its helpers have now: proportional set sizes, in which a page that several processes share counts once
    over all of them.
    """
    now = usage()
    used = {name: now[name] - before[name] for name in before}
    used["max_rss_bytes"] = peak_memory_bytes()
    used["memory_bytes"] = _memory_bytes("self")
    used["helpers_memory_bytes"] = sum(_memory_bytes(each) for each in helper_processes())
    return used


IMPORTED_FILES = "STEPTIME_IMPORTED_FILES"
"""A variable of a process that is a fork of one which has imported: the bytes of files that this one has in memory."""


def peak_memory_bytes() -> int:
    """Return the most memory that this program has had: Linux lets ``ru_maxrss`` pass on from who started it.

    A fork has of the libraries that were loaded before it only those pages that it uses again; it counts as if it had
    loaded them itself.
    """
    most = memory_of_status("VmHWM:")
    if most is None:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return most + max(0, int(os.environ.get(IMPORTED_FILES, "0")) - (memory_of_status("RssFile:") or 0))


def memory_of_status(name: str) -> Optional[int]:
    """Return the bytes of a row of the kernel's status of this process; None if it has none."""
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith(name))
    except (OSError, StopIteration):
        return None


def helper_processes() -> List[str]:
    """Return the ids of all living processes below this one, as texts."""
    found, waiting = [], ["self"]
    while waiting:
        below = _children(waiting.pop())
        found += below
        waiting += below
    return found


def _children(process: str) -> List[str]:
    """Return the ids of the processes that a process has started; none where it or the kernel does not say."""
    try:
        threads = os.listdir("/proc/%s/task" % process)
    except OSError:
        return []
    return [child for thread in threads for child in _children_of_thread(process, thread)]


def _children_of_thread(process: str, thread: str) -> List[str]:
    try:
        with open("/proc/%s/task/%s/children" % (process, thread)) as file:
            return file.read().split()
    except OSError:
        return []


def _helpers_cpu_s() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime + sum(cpu_s(each) for each in helper_processes())


def cpu_s(process: str) -> float:
    """Return the processor seconds of a process and of those that it has waited for; 0 of one that has ended."""
    try:
        with open("/proc/%s/stat" % process) as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / float(os.sysconf("SC_CLK_TCK"))


def _memory_bytes(process: str) -> int:
    try:
        with open("/proc/%s/smaps_rollup" % process) as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return _resident_bytes(process)  # before Linux 4.14, or of a process that may not be looked into


def _resident_bytes(process: str) -> int:
    try:
        with open("/proc/%s/statm" % process) as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


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
