"""The use of the machine by a worker and its loader helpers: processor seconds, memory, switches and page faults.

Helpers are the processes that a worker has started and those that they have started; threads count with their process.
Linux only: elsewhere helpers are not seen, and what they use is 0.
"""

import os
import resource
import time
from typing import Dict, List


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


def peak_memory_bytes() -> int:
    """Return the most memory that this program has had: Linux lets ``ru_maxrss`` pass on from who started it."""
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


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
    return ended.ru_utime + ended.ru_stime + sum(_cpu_s(each) for each in helper_processes())


def _cpu_s(process: str) -> float:
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
