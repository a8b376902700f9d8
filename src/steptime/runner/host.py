"""What this host has for a launch: cores, accelerators and free memory, asked without any framework."""

import os
from collections.abc import Sequence
from typing import Any, Protocol

import psutil

from steptime.study.trial import Trial
from steptime.units import format_bytes
from steptime.workloads.costs import memory_bytes
from steptime.workloads.layers import Workload

_FRAMEWORK_BYTES = 400 * 2**20
"""What a framework needs before it holds a single weight."""


def usable_cores() -> tuple[int, ...]:
    """Return the cores that this process may use."""
    return tuple(sorted(os.sched_getaffinity(0)))


class NvmlFunctions(Protocol):
    """The functions of NVIDIA's management library that list accelerators, as the module ``pynvml`` names them."""

    NVMLError: type[Exception]

    def nvmlInit(self) -> Any: ...  # noqa: ANN401, N802 - the library's
    def nvmlShutdown(self) -> Any: ...  # noqa: ANN401, N802
    def nvmlDeviceGetCount(self) -> Any: ...  # noqa: ANN401, N802
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any: ...  # noqa: ANN401, N802
    def nvmlDeviceGetName(self, handle: Any) -> Any: ...  # noqa: ANN401, N802
    def nvmlDeviceGetUUID(self, handle: Any) -> Any: ...  # noqa: ANN401, N802
    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any: ...  # noqa: ANN401, N802


def cuda_device_names(nvml: NvmlFunctions | None = None, visible: str | None = None) -> list[str]:
    """Return the names of the CUDA devices that a process sees, in its order; none where there is no driver.

    Args:
        nvml: the management library; ``pynvml`` by default.
        visible: the value of ``CUDA_VISIBLE_DEVICES``; by default this process's, which may have none.
    """
    if nvml is None:
        import pynvml  # noqa: PLC0415 - needed by few verbs, and quick ones must stay quick

        nvml = pynvml
    if visible is None:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return []
    try:
        if visible is not None and visible.startswith("MIG-"):  # CUDA uses one instance of a divided device at most
            return [_text(nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByUUID(visible.split(",")[0].strip())))]
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        names = [_text(nvml.nvmlDeviceGetName(handle)) for handle in handles]
        uuids = [_text(nvml.nvmlDeviceGetUUID(handle)) for handle in handles] if visible is not None else []
    except nvml.NVMLError:
        return []
    finally:
        nvml.nvmlShutdown()
    return names if visible is None else [names[index] for index in visible_devices(visible, uuids)]


def visible_devices(visible: str, uuids: Sequence[str]) -> list[int]:
    """Return the indices of the devices that a value of ``CUDA_VISIBLE_DEVICES`` leaves visible, in its order.

    As the CUDA programming guide has it, the list ends before its first entry that is no device; an empty value hides
    all devices. An entry is an index, or ``GPU-`` with the beginning of one device's UUID. A device that is named
    twice makes the whole list invalid, so that none is visible.

    >>> visible_devices("1,-1,0", ["GPU-a", "GPU-b"])
    [1]
    """
    found: list[int] = []
    for entry in visible.split(","):
        index = _device_index(entry.strip(), uuids)
        if index is None:
            break
        found.append(index)
    return found if len(set(found)) == len(found) else []


def _device_index(entry: str, uuids: Sequence[str]) -> int | None:
    if entry.isdecimal():
        return int(entry) if int(entry) < len(uuids) else None
    if not entry.startswith("GPU-"):
        return None
    matching = [index for index, uuid in enumerate(uuids) if uuid.startswith(entry)]
    return matching[0] if len(matching) == 1 else None


def _text(value: str | bytes) -> str:
    """Old versions of the management library's module return bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def memory_shortage(trial: Trial, workload: Workload, available_bytes: float | None = None) -> str | None:
    """Return why ``trial`` cannot fit the host's free memory, with the largest batch that would; None if it fits.

    Only host memory is looked at: a device says itself when it is full.
    """
    if trial.device != "cpu":
        return None
    available = psutil.virtual_memory().available if available_bytes is None else available_bytes

    def needed(batch: int) -> float:
        return trial.workers * (memory_bytes(workload, batch) + _FRAMEWORK_BYTES)

    if needed(trial.batch_per_worker) <= available:
        return None
    batch = trial.batch_per_worker
    while batch > 1 and needed(batch) > available:
        batch //= 2
    advice = f"batch_per_worker {batch} would fit" if needed(batch) <= available else "no batch fits; use fewer workers"
    workers = "1 worker needs" if trial.workers == 1 else f"{trial.workers} workers need"
    return (
        f"does not fit the memory: {workers} about {format_bytes(needed(trial.batch_per_worker))} with "
        f"batch_per_worker {trial.batch_per_worker}, and {format_bytes(available)} are free; {advice}"
    )
