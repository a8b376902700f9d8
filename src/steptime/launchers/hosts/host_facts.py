"""What is known of the host that this runs on: cores, memory, GPUs, interfaces, free ports, counters of its load.

Far ends say it of other hosts; they run without site-packages, so that only the standard library is imported.
"""

import contextlib
import fcntl
import os
import random
import shutil
import socket
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

from steptime.launchers.mpiexec import is_open_mpi

Facts = dict[str, Any]

FIRST_PORT, LAST_PORT = 15_000, 30_000
"""Below the range from which the kernel takes ports for outgoing connections: a port found free here is not taken by
somebody's connection before the framework listens on it.
"""
_ATTEMPTS = 200
_ADDRESS_OF_INTERFACE = 0x8915
_GPUS, _PCI_DEVICES = "/proc/driver/nvidia/gpus", "/sys/bus/pci/devices"


def listed(folder: str) -> list[str]:
    """Return the names in a folder; none where it cannot be read."""
    try:
        return os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []


def read_text(path: str) -> str:
    """Return what a file holds; nothing where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return ""


def boot() -> str:
    """Return the id that the kernel gives itself at each start, ``unknown`` where it has none."""
    return read_text("/proc/sys/kernel/random/boot_id").strip() or "unknown"


def counters() -> Facts:
    """Return the counters of this host by which foreign load during the launch is told."""
    fields = read_text("/proc/stat").partition("\n")[0].split()[1:9]
    ticks = float(os.sysconf("SC_CLK_TCK"))
    purposes = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    loads = read_text("/proc/loadavg").split()
    return {
        "at_s": time.monotonic(),
        "loads": [float(each) for each in loads[:3]],
        "runnable": float(loads[3].partition("/")[0]) - 1.0,
        "processor_s": {name: int(value) / ticks for name, value in zip(purposes, fields, strict=False)},
        "memory_total_bytes": _memory("MemTotal"),
        "memory_available_bytes": _memory("MemAvailable"),
        "swapped_in_pages": _vmstat("pswpin"),
        "network": _network(),
    }


def _memory(name: str) -> float | None:
    lines = (line.split() for line in read_text("/proc/meminfo").splitlines())
    return next((float(line[1]) * 1024.0 for line in lines if line[0] == f"{name}:"), None)


def _vmstat(name: str) -> float | None:
    lines = (line.split() for line in read_text("/proc/vmstat").splitlines())
    return next((float(line[1]) for line in lines if line[0] == name), None)


def _network() -> dict[str, tuple[int, int]]:
    """Return bytes received and sent by interface."""
    found = {}
    for line in read_text("/proc/self/net/dev").splitlines()[2:]:
        name, _, rest = line.partition(":")
        fields = rest.split()
        found[name.strip()] = (int(fields[0]), int(fields[8]))
    return found


def facts(names: list[str]) -> Facts:
    """Return what a study must know of this host before anything is launched."""
    return {
        "name": socket.gethostname(),
        "boot": boot(),
        "cores": sorted(os.sched_getaffinity(0)),
        "memory_bytes": _memory("MemAvailable"),
        "gpus": len(listed(_GPUS)),
        "gpu_cores": gpu_cores(sorted(os.sched_getaffinity(0))),
        "interfaces": interface_addresses(),
        "reached_at": (os.environ.get("SSH_CONNECTION") or "- - - -").split()[2],
        "addresses": [_resolved(name) for name in names],
        "mpiexec": system_mpiexec(),
        "user": os.getuid(),
        "step": os.environ.get("SLURM_STEP_ID"),
    }


def gpu_cores(own: list[int], gpus: str = _GPUS, devices: str = _PCI_DEVICES) -> list[list[int]]:
    """Return for each GPU, by its address on the bus, the ``own`` cores on its NUMA node; all where unknown."""
    found = []
    for address in sorted(listed(gpus)):
        near: set[int] = set()
        for part in read_text(os.path.join(devices, address.lower(), "local_cpulist")).strip().split(","):  # noqa: PTH118
            first, _, last = part.partition("-")
            if first.isdigit():
                near.update(range(int(first), int(last or first) + 1))
        found.append([core for core in own if core in near] or own)
    return found


def system_mpiexec() -> Facts:
    """Return the mpiexec on this host's PATH, None where there is none, and whether it is Open MPI's."""
    path = shutil.which("mpiexec")
    return {"path": path, "is_open_mpi": path is not None and is_open_mpi(Path(path))}


def interface_addresses() -> dict[str, str]:
    """Return the IPv4 address of each interface that has one."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                asked = struct.pack("256s", name.encode()[:15])
                found[name] = socket.inet_ntoa(fcntl.ioctl(any_socket.fileno(), _ADDRESS_OF_INTERFACE, asked)[20:24])
    return found


def _resolved(name: str) -> str | None:
    try:
        found: str = socket.getaddrinfo(name.rpartition("@")[2], None, socket.AF_INET)[0][4][0]  # type: ignore[assignment]
    except OSError:
        return None
    return None if found.startswith("127.") else found


def towards(address: str, wanted: str | None) -> Facts:
    """Return the interface and the own address by which this host reaches ``address``, or those of ``wanted``."""
    known = interface_addresses()
    if wanted is not None:
        return {"interface": wanted, "address": known.get(wanted)}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # nothing is sent
        try:
            probe.connect((address, 9))
        except OSError:
            return {"interface": None, "address": None}
        own = probe.getsockname()[0]
    return {"interface": next((name for name, each in known.items() if each == own), None), "address": own}


def ports_free_at(address: str, count: int) -> list[int]:
    """Return ``count`` different ports on which nobody listens at ``address``, fewer where they cannot be found.

    All are held while the others are sought, so that none is given twice.
    """
    held: list[socket.socket] = []
    chosen = random.SystemRandom()
    try:
        for _ in range(_ATTEMPTS + count):
            if len(held) == count:
                break
            candidate = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                candidate.bind((address, chosen.randint(FIRST_PORT, LAST_PORT)))
            except OSError:
                candidate.close()
            else:
                held.append(candidate)
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()


def seconds_until(asked: Facts) -> Facts:
    """Return after how long a file of the shared folder showed the launcher's text, and what an interpreter takes."""
    started, path = time.monotonic(), asked["file"]
    folder, name = os.path.split(path)
    seen_s = None
    while time.monotonic() - started < asked["limit_s"]:
        if name in listed(folder) and read_text(path) == asked["text"]:
            seen_s = time.monotonic() - started
            break
        time.sleep(0.02)
    started = time.monotonic()
    imported = None
    if seen_s is not None:
        command = [asked["interpreter"], "-c", "import numpy"]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=120.0, check=False)
            imported = time.monotonic() - started if done.returncode == 0 else None
        except (OSError, subprocess.TimeoutExpired):
            pass
    return {"seen_s": seen_s, "import_s": imported}
