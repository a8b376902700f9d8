"""What is known of the host that this runs on: cores, memory, GPUs, interfaces, free ports, counters of its load.

Host agents say it of other hosts; they run without site-packages, so that only the standard library is imported.

The GPUs of the host that this runs on, as its kernel and NVIDIA's driver tell of them; no framework is asked.

Host agents say it of other hosts; they run without site-packages, so that only the standard library is imported, and
``visible_devices``, which needs no more.
"""

import array
import fcntl
import os
import random
import re
import shutil
import socket
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

from steptime.catalog.visible_devices import visible_devices
from steptime.launchers.hosts.host_files import listed, read_text
from steptime.launchers.mpiexec import is_open_mpi

DRIVER, PCI_DEVICES = "/proc/driver/nvidia", "/sys/bus/pci/devices"
_QUESTIONS = "pci.bus_id,name,uuid,compute_cap,memory.total,driver_version,mig.mode.current"
_LIMIT_S = 30.0
"""A driver that no program uses is started anew for each question, which takes seconds."""
_VERSION = re.compile(r"\b\d{3,}\.\d+(?:\.\d+)?\b")
_DIVIDED = "parts of divided GPUs (MIG) are not counted"


def gpu_facts(
    own_cores: list[int], visible: str | None, folder: str = DRIVER, devices: str = PCI_DEVICES, said: str | None = None
) -> dict[str, Any]:
    """Return the GPUs that a worker on this host sees, in its order, their driver, and what hides others.

    ``nvidia-smi`` is believed first: a job's control group hides devices from it, as from CUDA, and none from the
    driver's own folder. Each GPU has ``model``, ``cores`` (those of ``own_cores`` on its NUMA node; all where unknown),
    ``capability`` (as ``8.0``) and ``memory_bytes``; None is unknown.

    Args:
        own_cores: that processes may use.
        visible: the value of CUDA_VISIBLE_DEVICES; None if it is not set.
        folder: of the driver, in /proc.
        devices: the kernel's folder of PCI devices.
        said: the output of ``nvidia-smi``; it is asked by default.
    """
    found = smi_gpus(_ask() if said is None else said) or _listed_gpus(folder)
    if visible is not None:
        chosen = visible_devices(visible, [str(each["uuid"]) for each in found])
        found = [found[index] for index in chosen]
    whole = [each for each in found if not each["divided"]]
    return {
        "gpus": [
            {
                "model": each["model"],
                "cores": _near(own_cores, each["address"], devices),
                "capability": each["capability"],
                "memory_bytes": each["memory_bytes"],
            }
            for each in whole
        ],
        "gpu_driver": found[0]["driver"] if found else None,
        "gpus_visible": visible,
        "gpus_left_out": _DIVIDED if len(whole) < len(found) or (visible or "").startswith("MIG-") else None,
    }


def smi_gpus(said: str) -> list[dict[str, Any]]:
    """Return the GPUs of a table that ``nvidia-smi`` printed, by their addresses on the bus; none of any other text."""
    found = []
    for line in said.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != len(_QUESTIONS.split(",")) or not fields[2].startswith("GPU-"):
            return []
        address, model, uuid, capability, mebibytes, driver, divided = fields
        found.append(
            {
                "address": address.lower()[-12:],  # the kernel writes the domain with four digits
                "model": model,
                "uuid": uuid,
                "capability": capability if re.fullmatch(r"\d+\.\d+", capability) else None,
                "memory_bytes": float(mebibytes) * 2**20 if mebibytes.isdecimal() else None,
                "driver": driver,
                "divided": divided == "Enabled",
            }
        )
    return sorted(found, key=lambda each: str(each["address"]))


def _ask() -> str:
    command = ["nvidia-smi", f"--query-gpu={_QUESTIONS}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LIMIT_S, text=True, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _listed_gpus(folder: str) -> list[dict[str, Any]]:
    """Return the GPUs that the driver lists in /proc, with the facts there; capability and memory it does not."""
    gpus = os.path.join(folder, "gpus")  # noqa: PTH118
    version = _VERSION.search(read_text(os.path.join(folder, "version")))  # noqa: PTH118
    found = []
    for address in sorted(listed(gpus), key=str.lower):
        lines = read_text(os.path.join(gpus, address, "information")).splitlines()  # noqa: PTH118
        said = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        found.append(
            {
                "address": address.lower(),
                "model": said.get("Model"),
                "uuid": said.get("GPU UUID", ""),
                "capability": None,
                "memory_bytes": None,
                "driver": version.group() if version else None,
                "divided": False,
            }
        )
    return found


def _near(own: list[int], address: str, devices: str) -> list[int]:
    """Return the ``own`` cores on the NUMA node of the GPU at ``address``; all if that is unknown."""
    near: set[int] = set()
    for part in read_text(os.path.join(devices, address, "local_cpulist")).strip().split(","):  # noqa: PTH118
        first, _, last = part.partition("-")
        if first.isdecimal():
            near.update(range(int(first), int(last or first) + 1))
    return [core for core in own if core in near] or own


Facts = dict[str, Any]

FIRST_PORT, LAST_PORT = 15_000, 30_000
"""Below the range from which the kernel takes ports for outgoing connections: a port found free here is not taken by
somebody's connection before the framework listens on it.
"""
_ATTEMPTS = 200
_ADDRESSES_OF_INTERFACES = 0x8912
_BYTES_OF_ADDRESS = 40 if struct.calcsize("P") == 8 else 32  # noqa: PLR2004 - of a C pointer
"""Of one entry that the kernel fills in: ``struct ifreq`` of netdevice(7)."""
_MOST_ADDRESSES = 1024
_CGROUPS = "/sys/fs/cgroup"
_RDMA = "/sys/class/infiniband"
_EVERYWHERE = "00"
"""The scope of an IPv6 address that is not of its link or host alone."""


def boot() -> str:
    """Return the id that the kernel gives itself at each start, ``unknown`` where it has none."""
    return read_text("/proc/sys/kernel/random/boot_id").strip() or "unknown"


def counters() -> Facts:
    """Return the counters of this host by which load of other processes during the launch is told."""
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
    own_cores = sorted(os.sched_getaffinity(0))
    return {
        "name": socket.gethostname(),
        "boot": boot(),
        "cpu": cpu_model(),
        "cores": own_cores,
        "niceness": os.getpriority(os.PRIO_PROCESS, 0),
        "memory_bytes": usable_memory(),
        **gpu_facts(own_cores, os.environ.get("CUDA_VISIBLE_DEVICES")),
        "interfaces": interface_addresses(),
        "has_ipv6": has_ipv6(read_text("/proc/self/net/if_inet6")),
        "reached_at": (os.environ.get("SSH_CONNECTION") or "- - - -").split()[2],
        "addresses": [_resolved(name) for name in names],
        "mpiexec": system_mpiexec(),
        "user": os.getuid(),
        "step": os.environ.get("SLURM_STEP_ID"),
    }


def cpu_model() -> str:
    """Return the processor's name, as the kernel writes it; the architecture where it writes none."""
    for line in read_text("/proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip().lower() in {"model name", "hardware", "cpu model"}:
            return value.strip()
    return os.uname().machine


def system_mpiexec() -> Facts:
    """Return the mpiexec on this host's PATH, None if there is none, and whether it is Open MPI's."""
    path = shutil.which("mpiexec")
    return {"path": path, "is_open_mpi": path is not None and is_open_mpi(Path(path))}


def usable_memory(own_groups: str | None = None, folder: str = _CGROUPS) -> float | None:
    """Return the bytes that processes here may still take: what is available, and no more than a limit allows.

    A job's memory control group (version 2 or 1) limits it, and so does each group around it; None if unknown.

    Args:
        own_groups: the text of /proc/self/cgroup, which is read by default.
        folder: where control groups are mounted.
    """
    known = [_memory("MemAvailable")]
    text = read_text("/proc/self/cgroup") if own_groups is None else own_groups
    for line in text.splitlines():
        _, controllers, path = ([*line.split(":", 2), "", ""])[:3]
        if controllers and "memory" not in controllers.split(","):
            continue
        place = folder + ("/memory" if controllers else "")
        name = "memory.limit_in_bytes" if controllers else "memory.max"
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts) + 1):
            limit = read_text("/".join([place, *parts[:depth], name])).strip()  # that of the root in a container
            known.append(float(limit) if limit.isdecimal() else None)
    return min((each for each in known if each is not None), default=None)


def rdma_devices(folder: str = _RDMA) -> list[str]:
    """Return the ports of this host's InfiniBand and RoCE devices that are up, as ``mlx5_0:1``."""
    ports = [(device, port) for device in sorted(listed(folder)) for port in sorted(listed(f"{folder}/{device}/ports"))]
    return [
        f"{device}:{port}" for device, port in ports if "ACTIVE" in read_text(f"{folder}/{device}/ports/{port}/state")
    ]


def interface_addresses() -> dict[str, list[str]]:
    """Return the IPv4 addresses of each interface that has some, the first one first."""
    answer = array.array("B", bytes(_MOST_ADDRESSES * _BYTES_OF_ADDRESS))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = struct.pack("iP", len(answer), answer.buffer_info()[0])
        length = struct.unpack("iP", fcntl.ioctl(any_socket.fileno(), _ADDRESSES_OF_INTERFACES, asked))[0]
    found: dict[str, list[str]] = {}
    for start in range(0, length, _BYTES_OF_ADDRESS):
        entry = answer[start : start + _BYTES_OF_ADDRESS].tobytes()
        name = entry[:16].partition(b"\0")[0].decode(errors="replace")
        found.setdefault(name, []).append(socket.inet_ntoa(entry[20:24]))
    return found


def has_ipv6(table: str) -> bool:
    """Whether an interface has an IPv6 address that leads further than its link, by the text of /proc/net/if_inet6."""
    fields = (line.split() for line in table.splitlines())
    return any(scope == _EVERYWHERE and name != "lo" for _, _, _, scope, _, name in fields)


def _resolved(name: str) -> str | None:
    try:
        found: str = socket.getaddrinfo(name.rpartition("@")[2], None, socket.AF_INET)[0][4][0]  # type: ignore[assignment]
    except OSError:
        return None
    return None if found.startswith("127.") else found


def towards(address: str, wanted: str | None) -> Facts:
    """Return the interface and the own address by which this host reaches ``address``, or those of ``wanted``."""
    known, own = interface_addresses(), _own_address_towards(address)
    if wanted is not None:
        of_wanted = known.get(wanted, [])
        return {"interface": wanted, "address": own if own in of_wanted else next(iter(of_wanted), None)}
    return {"interface": next((name for name, each in known.items() if own in each), None), "address": own}


def _own_address_towards(address: str) -> str | None:
    if not address:  # which a socket would take for this host itself
        return None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # nothing is sent
        try:
            probe.connect((address, 9))
        except OSError:
            return None
        found: str = probe.getsockname()[0]
    return found


def ports_free_at(address: str, count: int) -> list[int]:
    """Return ``count`` different free ports of ``address``, fewer where they cannot be found.

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
