"""The machine that a study ran on, in words and numbers."""

import os
import platform
import socket
from pathlib import Path
from typing import Any

import steptime
from steptime.measurements.gpus import driver_version, gpu_states
from steptime.measurements.proc_files import meminfo

_TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def fingerprint() -> dict[str, Any]:
    """Return what the machine is, as far as it says; null where it does not.

    ``cores`` are the physical cores that this process may use, ``threads`` their hardware threads, ``quota_cores``
    the limit of a container, ``memory_bytes`` all memory.
    """
    usable = os.sched_getaffinity(0)
    return {
        "hostname": socket.gethostname(),
        "cpu": _cpu_name(),
        "architecture": platform.machine(),
        "cores": physical_cores(usable),
        "threads": len(usable),
        "machine_threads": os.cpu_count(),
        "quota_cores": _quota_cores(),
        "memory_bytes": meminfo().get("MemTotal"),
        "kernel": platform.release(),
        "os": _os_name(),
        "gpus": [{"name": gpu.name, "memory_bytes": gpu.memory_bytes} for gpu in gpu_states()],
        "gpu_driver": driver_version(),
        "python": platform.python_version(),
        "steptime": steptime.__version__,
    }


def physical_cores(threads: set[int]) -> int:
    """Count the cores behind hardware ``threads``; two threads of one core share its arithmetic units."""
    groups = set()
    for thread in threads:
        try:
            groups.add(Path(_TOPOLOGY.format(thread)).read_text().strip())
        except OSError:
            groups.add(str(thread))
    return len(groups)


def _cpu_name() -> str | None:
    for line in _lines("/proc/cpuinfo"):
        if line.lower().startswith(("model name", "hardware", "cpu model")):
            return line.partition(":")[2].strip()
    return platform.processor() or None


def _os_name() -> str | None:
    for line in _lines("/etc/os-release"):
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip().strip('"')
    return platform.system() or None


def _quota_cores() -> float | None:
    words = " ".join(_lines("/sys/fs/cgroup/cpu.max")).split()
    if not words:
        words = [*_lines("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), *_lines("/sys/fs/cgroup/cpu/cpu.cfs_period_us")]
    try:
        quota, period = float(words[0]), float(words[1])
    except (IndexError, ValueError):
        return None
    return quota / period if quota > 0 and period > 0 else None


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(errors="replace").splitlines()
    except OSError:
        return []
