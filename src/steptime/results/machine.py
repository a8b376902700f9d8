"""The fingerprint of the machine that a study runs on.

The counters that Linux keeps in files; every reader returns None, or an empty mapping, where there are none.
"""

import contextlib
import hashlib
import hmac
import os
import platform
import socket
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import psutil

import steptime
from steptime.catalog.accelerators import find_accelerators
from steptime.results.gpus import gpu_links, gpu_states

_PROCESSOR_FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_SYS_CPU = Path("/sys/devices/system/cpu")
_POWERCAP = Path("/sys/class/powercap")
_MICRO = 1e-6


def usable_cores(machine: Mapping[str, Any]) -> float | None:
    """Return the cores that a launch could use: those of the process, or a container's quota where that is less."""
    return min((machine[name] for name in ("cores", "quota_cores") if machine.get(name) is not None), default=None)


def processor_seconds() -> dict[str, float]:
    """Seconds since boot that all cores spent, by purpose."""
    try:
        times = psutil.cpu_times()._asdict()
    except (OSError, RuntimeError, psutil.Error):
        return {}
    # Time of guests is counted in user and nice already.
    return {name: seconds for name, seconds in times.items() if name in _PROCESSOR_FIELDS}


def load_averages() -> tuple[tuple[float, float, float] | None, float | None]:
    """The load over 1, 5 and 15 minutes, and how many tasks want to run now (this process not counted)."""
    words = _text(Path("/proc/loadavg")).split()
    try:
        loads = (float(words[0]), float(words[1]), float(words[2]))
        return loads, max(0.0, float(words[3].partition("/")[0]) - 1.0)
    except (IndexError, ValueError):
        return None, None


def memory_bytes() -> tuple[float | None, float | None]:
    """The memory of the machine, and what of it is available."""
    try:
        memory = psutil.virtual_memory()
    except (OSError, RuntimeError, psutil.Error):
        return None, None
    return float(memory.total), float(memory.available)


def swapped_in_pages() -> float | None:
    """Pages read back from swap since boot."""
    return _named(_text(Path("/proc/vmstat")), "pswpin")


def pressure_s() -> float | None:
    """Seconds since boot in which some task waited for a core."""
    for line in _text(Path("/proc/pressure/cpu")).splitlines():
        if line.startswith("some "):
            return float(line.rpartition("total=")[2]) * 1e-6
    return None


def cgroup_throttled_s() -> float | None:
    """Seconds in which quotas of this process's control group, and of those around it, held a core back."""
    stats = [_text(group / "cpu.stat") for group in _processor_groups()]
    names = (("throttled_usec", 1e-6), ("throttled_time", 1e-9))
    values = [(_named(stat, name), unit) for stat in stats for name, unit in names]
    found = [value * unit for value, unit in values if value is not None]
    return sum(found) if found else None


def quota_cores(own_groups: str | None = None, mounts: str | None = None) -> float | None:
    """Return the cores that quotas leave this process: the least of its control group's and those around it.

    None if nothing limits it.

    Args:
        own_groups: the text of /proc/self/cgroup, which is read by default.
        mounts: the text of /proc/self/mountinfo, likewise.
    """
    found = []
    for group in _processor_groups(own_groups, mounts):
        words = _text(group / "cpu.max").split()
        words = words or [_text(group / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
        with contextlib.suppress(ValueError):  # "max", or no such file
            quota, period = map(int, words)
            if quota > 0 and period > 0:  # -1 means no limit in version 1
                found.append(quota / period)
    return min(found, default=None)


def _processor_groups(own_groups: str | None = None, mounts: str | None = None) -> Iterator[Path]:
    """Yield the folders of this process's control group and of all around it, in versions 1 and 2 as mounted here.

    A container may show a group as the root of its file system, of which the path of the process knows nothing.
    """
    text = _text(Path("/proc/self/cgroup")) if own_groups is None else own_groups
    rows = [line.split(":", 2) for line in text.splitlines()]
    own = {controller: group for _, controllers, group in rows for controller in controllers.split(",")}
    seen: set[tuple[int, int]] = set()
    for line in (_text(Path("/proc/self/mountinfo")) if mounts is None else mounts).splitlines():
        place, _, file_system = line.partition(" - ")
        kind, _, options = file_system.split(" ", 2)
        controller = {"cgroup2": "", "cgroup": "cpu"}.get(kind)
        if controller not in own or (controller and controller not in options.split(",")):
            continue
        root, mount = place.split(" ")[3:5]
        group = Path(own[controller])
        inner = group.relative_to(root).parts if group.is_relative_to(root) else ()
        for folder in (Path(mount, *inner[:depth]) for depth in range(len(inner) + 1)):
            with contextlib.suppress(OSError):
                found = folder.stat()  # a group may be mounted at two places
                if (found.st_dev, found.st_ino) not in seen:
                    seen.add((found.st_dev, found.st_ino))
                    yield folder


def thermal_throttles() -> float | None:
    """How often since boot the processor slowed itself because of heat, over all cores."""
    counts = [_text(path) for path in _SYS_CPU.glob("cpu[0-9]*/thermal_throttle/core_throttle_count")]
    numbers = [float(count) for count in counts if count.strip().isdecimal()]
    return sum(numbers) if numbers else None


def package_energy() -> dict[str, tuple[float, float]]:
    """Joules that each package of processors took (RAPL), and those at which its counter begins anew, by its zone.

    Empty where the kernel has no such counters, or lets root alone read them.
    """
    packages = {}
    for zone in sorted(_POWERCAP.glob("*-rapl:*")):
        if zone.name.count(":") > 1:  # a part of a package, which counts within it
            continue
        taken, most = (_text(zone / name).strip() for name in ("energy_uj", "max_energy_range_uj"))
        if taken.isdecimal() and most.isdecimal():
            packages[zone.name] = (float(taken) * _MICRO, float(most) * _MICRO)
    return packages


def cpu_hz() -> float | None:
    """The mean frequency of the cores at this moment, as far as the kernel reports it."""
    try:
        frequencies = [each.current * 1e6 for each in psutil.cpu_freq(percpu=True)]
    except (AttributeError, OSError, RuntimeError, TypeError, psutil.Error):  # which it raises where nothing is told
        return None
    return sum(frequencies) / len(frequencies) if frequencies else None


def network_bytes() -> dict[str, float]:
    """Bytes in and out since boot of the loopback and of all other interfaces, and packets dropped."""
    try:
        counters = psutil.net_io_counters(pernic=True)
    except (OSError, RuntimeError, psutil.Error):
        return {}
    moved = {name: float(each.bytes_recv + each.bytes_sent) for name, each in counters.items()}
    return {
        "loopback": moved.get("lo", 0.0),
        "interfaces": sum(count for name, count in moved.items() if name != "lo"),
        "dropped": float(sum(each.dropin + each.dropout for each in counters.values())),
    }


def retransmits() -> float | None:
    """TCP segments sent again since boot."""
    rows = [line.split() for line in _text(Path("/proc/net/snmp")).splitlines() if line.startswith("Tcp:")]
    try:
        return float(rows[1][rows[0].index("RetransSegs")])
    except (IndexError, ValueError):
        return None


def _named(text: str, name: str) -> float | None:
    for line in text.splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == name:  # noqa: PLR2004 - a name and its number
            return float(words[1])
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


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
        "memory_bytes": memory_bytes()[0],
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
