"""Clocks, heat and limits of the NVIDIA GPUs, as far as the driver says."""

import contextlib
from dataclasses import dataclass
from functools import cache
from typing import Any

import pynvml


@dataclass(frozen=True)
class GpuState:
    """One GPU at one moment; None where its driver does not say."""

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


def driver_version() -> str | None:
    """Return the version of the NVIDIA driver, or None."""
    library = _library()
    if library is None:
        return None
    try:
        version = library.nvmlSystemGetDriverVersion()
    except library.NVMLError:
        return None
    return version.decode() if isinstance(version, bytes) else str(version)


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


def _number(value: Any) -> float | None:  # noqa: ANN401 - whatever the driver says
    return None if value is None else float(value)
