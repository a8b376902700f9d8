"""The fingerprint of the machine that a study runs on, with clocks, heat and limits of its NVIDIA GPUs."""

import contextlib
import hashlib
import hmac
import os
import platform
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pynvml

import steptime
from steptime.catalog.accelerators import find_accelerators
from steptime.measurements.kernel_counters import meminfo, quota_cores


@dataclass(frozen=True)
class GpuState:
    """One GPU at one moment; None if its driver does not say."""

    name: str
    memory_bytes: float | None
    temperature_c: float | None
    sm_hz: float | None
    throttle_reasons: float | None
    """The driver's bit mask."""
    throttled_s: float | None
    """Seconds since boot in which heat or power limits held the clocks down."""
    processes: float | None
    """Compute processes on it."""


def gpu_states() -> list[GpuState]:
    """Return the state of every GPU; an empty list where there is none, or no driver."""
    library = _library()
    if library is None:
        return []
    states: list[GpuState] = []
    with contextlib.suppress(library.NVMLError):
        handles = [library.nvmlDeviceGetHandleByIndex(index) for index in range(library.nvmlDeviceGetCount())]
        states = [_state(library, handle) for handle in handles]
    return states


@cache
def _library() -> Any:  # noqa: ANN401 - an untyped module
    try:
        pynvml.nvmlInit()
    except Exception:  # noqa: BLE001 - whatever a driver's library does, a launch is measured without it
        return None
    return pynvml


def _state(library: Any, handle: Any) -> GpuState:  # noqa: ANN401 - an untyped module
    def ask(question: str, *arguments: Any) -> Any:  # noqa: ANN401
        try:
            return getattr(library, question)(handle, *arguments)
        except (library.NVMLError, AttributeError):
            return None

    name, memory = ask("nvmlDeviceGetName"), ask("nvmlDeviceGetMemoryInfo")
    clock = ask("nvmlDeviceGetClockInfo", library.NVML_CLOCK_SM)
    processes = ask("nvmlDeviceGetComputeRunningProcesses")
    policies = (library.NVML_PERF_POLICY_THERMAL, library.NVML_PERF_POLICY_POWER)
    held = [ask("nvmlDeviceGetViolationStatus", policy) for policy in policies]
    return GpuState(
        name=name.decode() if isinstance(name, bytes) else str(name),
        memory_bytes=None if memory is None else float(memory.total),
        temperature_c=_number(ask("nvmlDeviceGetTemperature", library.NVML_TEMPERATURE_GPU)),
        sm_hz=None if clock is None else clock * 1e6,
        throttle_reasons=_number(ask("nvmlDeviceGetCurrentClocksThrottleReasons")),
        throttled_s=None if None in held else sum(each.violationTime for each in held) * 1e-9,
        processes=None if processes is None else float(len(processes)),
    )


def _number(value: Any) -> float | None:  # noqa: ANN401 - whatever the driver reports
    return None if value is None else float(value)


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
    visible, in the order in which workers use them, ``id`` that of ``machine_id``.

    Args:
        alone: False where any host of a site may run the study; ``id`` is then None.
    """
    usable, accelerators = os.sched_getaffinity(0), find_accelerators()
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
        "gpus": [{"name": each.name, "memory_bytes": each.memory_bytes} for each in accelerators.devices],
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
