"""The fingerprint of the machine that a study runs on."""

import hashlib
import hmac
import os
import platform
import socket
from functools import cache
from pathlib import Path
from typing import Any

import steptime
from steptime.catalog.accelerators import find_accelerators
from steptime.measurements.gpus import gpu_links, gpu_states
from steptime.measurements.kernel_counters import meminfo, quota_cores

_MACHINE_ID = "/etc/machine-id"
_TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


@cache
def machine_id() -> str | None:
    """Return an id of this machine that no other of its kind and name has; None without a machine-id.

    It is a hash, since machine-id(5) asks programs to keep the id itself to themselves.
    """
    own = next(iter(_lines(_MACHINE_ID)), "").strip()
    return hmac.new(own.encode(), b"steptime", hashlib.sha256).hexdigest()[:16] if own else None


def fingerprint(*, alone: bool = True) -> dict[str, Any]:
    """Return what the machine is, as far as it reports; null for the rest.

    ``cores`` are the physical cores that this process may use, ``threads`` their hardware threads, ``quota_cores``
    the limit of control groups, ``memory_bytes`` all memory, ``gpus`` the devices that ``CUDA_VISIBLE_DEVICES`` leaves
    visible, in the order in which workers use them, ``gpu_links`` how each two of them are connected, ``id`` that of
    ``machine_id``.

    Args:
        alone: False where any host of a site may run the study; ``id`` is then None.
    """
    usable, accelerators, links = os.sched_getaffinity(0), find_accelerators(), gpu_links()
    limits = dict(enumerate(state.power_limit_w for state in gpu_states()))
    return {
        "hostname": socket.gethostname(),
        "id": machine_id() if alone else None,
        "cpu": _cpu_name(),
        "architecture": platform.machine(),
        "cores": physical_cores(usable),
        "threads": len(usable),
        "machine_threads": os.cpu_count(),
        "quota_cores": quota_cores(),
        "memory_bytes": meminfo().get("MemTotal"),
        "kernel": platform.release(),
        "os": _os_name(),
        "gpus": [
            {
                "name": each.name,
                "memory_bytes": each.memory_bytes,
                **({"power_limit_w": limit} if (limit := limits.get(place)) else {}),
            }
            for place, each in enumerate(accelerators.devices)
        ],
        **({"gpu_links": links} if links else {}),
        "gpu_driver": accelerators.driver,
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


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(errors="replace").splitlines()
    except OSError:
        return []
