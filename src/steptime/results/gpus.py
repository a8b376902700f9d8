"""The GPUs that a process sees, by NVIDIA's management library: their state at moments of a launch, and their links."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from statistics import mean, median
from typing import Any, Self, TypeVar

from steptime.catalog.accelerators import device_handles
from steptime.errors import error_line

Number = TypeVar("Number", int, float)
_MILLI, _MEGA = 1e-3, 1e6


@dataclass(frozen=True)
class GpuState:
    """One GPU at one moment; None if its driver does not say."""

    name: str
    memory_used_bytes: float | None
    temperature_c: float | None
    sm_hz: float | None
    power_w: float | None
    power_limit_w: float | None
    throttle_reasons: int | None
    """The driver's bit mask."""
    throttled_s: float | None
    """Seconds since boot in which heat or power limits held the clocks down; GPUs for games do not say."""
    processes: float | None
    """How many compute processes are on it."""
    busy_share: float | None = None
    """Of the driver's last sampling period (a sixth of a second to one), in which a kernel was at work."""
    energy_j: float | None = None
    """That it took since its driver was loaded; before Volta, and of a part of a GPU, the driver does not say."""
    index: int | None = None
    """Of the driver, as ``nvidia-smi`` prints it."""
    uuid: str | None = None
    memory_bytes: float | None = None
    """All that it has."""
    highest_sm_hz: float | None = None
    process_bytes: Mapping[int, int | None] | None = None
    """The memory of each of its compute processes by process id, in the numbers of the driver's machine."""


@cache
def _started() -> tuple[Any, str]:
    """Return the driver's library, or None and why it cannot be used."""
    import pynvml  # noqa: PLC0415 - a report of records asks no driver

    try:
        pynvml.nvmlInit()
    except Exception as error:  # noqa: BLE001 - whatever a driver's library does, a launch is measured without it
        return None, error_line(error)
    return pynvml, ""


def _library() -> Any:  # noqa: ANN401 - an untyped module
    return _started()[0]


def why_no_gpus() -> str | None:
    """Return why no GPU can be read, None if one can be."""
    library, problem = _started()
    if library is None:
        return f"NVIDIA's management library cannot be used: {problem}"
    return None if gpu_states() else "NVIDIA's management library lists no GPU that this process sees"


def _handles(library: Any) -> list[Any]:  # noqa: ANN401 - an untyped module
    return device_handles(library, os.environ.get("CUDA_VISIBLE_DEVICES"))


def gpu_states() -> list[GpuState]:
    """Return the state of every GPU that this process sees; an empty list where there is none, or no driver."""
    library = _library()
    if library is None:
        return []
    states: list[GpuState] = []
    with contextlib.suppress(library.NVMLError):
        states = [_state(library, handle) for handle in _handles(library)]
    return states


def _state(library: Any, handle: Any) -> GpuState:  # noqa: ANN401 - an untyped module
    def ask(question: str, *arguments: Any) -> Any:  # noqa: ANN401
        return _asked(library, question, handle, *arguments)

    name, rates = ask("nvmlDeviceGetName"), ask("nvmlDeviceGetUtilizationRates")
    # The second version leaves out what the driver reserves with no program running: 503 MB of an H100.
    version = getattr(library, "nvmlMemory_v2", None)
    memory = ask("nvmlDeviceGetMemoryInfo", version) or ask("nvmlDeviceGetMemoryInfo")
    clock = ask("nvmlDeviceGetClockInfo", library.NVML_CLOCK_SM)
    power, limit = ask("nvmlDeviceGetPowerUsage"), ask("nvmlDeviceGetEnforcedPowerLimit")
    highest = ask("nvmlDeviceGetMaxClockInfo", library.NVML_CLOCK_SM)
    processes = ask("nvmlDeviceGetComputeRunningProcesses")
    if processes is None:  # of a driver before 510
        processes = ask("nvmlDeviceGetComputeRunningProcesses_v2")
    reasons = ask("nvmlDeviceGetCurrentClocksEventReasons")
    if reasons is None:  # before 535; the name from then on ends with CUDA 14
        reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    energy = ask("nvmlDeviceGetTotalEnergyConsumption")
    policies = (library.NVML_PERF_POLICY_THERMAL, library.NVML_PERF_POLICY_POWER)
    held = [ask("nvmlDeviceGetViolationStatus", policy) for policy in policies]
    return GpuState(
        name=_text(name) or "",
        memory_used_bytes=None if memory is None else float(memory.used),
        temperature_c=_number(ask("nvmlDeviceGetTemperature", library.NVML_TEMPERATURE_GPU)),
        sm_hz=None if clock is None else clock * _MEGA,
        power_w=None if power is None else power * _MILLI,
        power_limit_w=None if limit is None else limit * _MILLI,
        throttle_reasons=reasons,
        throttled_s=None if None in held else sum(each.violationTime for each in held) * 1e-9,
        processes=None if processes is None else float(len(processes)),
        busy_share=None if rates is None else rates.gpu / 100,
        energy_j=None if energy is None else energy * _MILLI,
        index=ask("nvmlDeviceGetIndex"),
        uuid=_text(ask("nvmlDeviceGetUUID")),
        memory_bytes=None if memory is None else float(memory.total),
        highest_sm_hz=None if highest is None else highest * _MEGA,
        process_bytes=None if processes is None else {each.pid: each.usedGpuMemory for each in processes},
    )


def _asked(library: Any, question: str, *arguments: Any) -> Any:  # noqa: ANN401 - an untyped module
    try:
        return getattr(library, question)(*arguments)
    except (library.NVMLError, AttributeError, getattr(library, "NVMLLibraryMismatchError", AttributeError)):
        return None


def _text(value: Any) -> str | None:  # noqa: ANN401 - bytes of an old version of the library's module
    return value.decode() if isinstance(value, bytes) else value


def _number(value: Any) -> float | None:  # noqa: ANN401 - whatever the driver reports
    return None if value is None else float(value)


_PATHS = {0: "one board", 10: "one switch", 20: "several switches", 30: "host bridge", 40: "NUMA node", 50: "sockets"}
"""By the level of NVML: what lies between two GPUs on the PCI bus."""


def gpu_links() -> dict[str, str]:
    """Return ``{"0-1": "NVLink x18"}`` of each two of the GPUs that this process sees; empty where they are fewer.

    Others are named by what lies between them on the bus, as ``NUMA node``.
    """
    library = _library()
    if library is None:
        return {}
    with contextlib.suppress(library.NVMLError):
        handles = _handles(library)
        pairs = combinations(range(len(handles)), 2)
        return {f"{one}-{other}": _link(library, handles[one], handles[other]) for one, other in pairs}
    return {}


def _link(library: Any, one: Any, other: Any) -> str:  # noqa: ANN401 - the library's
    if _asked(library, "nvmlDeviceGetP2PStatus", one, other, library.NVML_P2P_CAPS_INDEX_NVLINK) == 0:
        links = range(library.NVML_NVLINK_MAX_LINKS)
        active = sum(_asked(library, "nvmlDeviceGetNvLinkState", one, link) == 1 for link in links)
        return f"NVLink x{active}" if active else "NVLink"
    level = _asked(library, "nvmlDeviceGetTopologyCommonAncestor", one, other)
    return _PATHS.get(level, "unknown")


SAMPLED_EVERY_S = 0.25
"""So long a launch waits between two looks at its GPUs, and a little longer."""
_POWER, _HEAT, _HARDWARE = 0x4 | 0x80, 0x20 | 0x40, 0x8
"""Of the mask of reasons: a limit of power, by software or a brake of the board; of heat; a slowdown by hardware."""
_HELD_BACK = _POWER | _HEAT | _HARDWARE


def throttle_causes(reasons: int) -> list[str]:
    """Return by what a mask of the driver holds the clocks back: ``power``, ``heat``, else ``hardware``."""
    causes = [name for name, bits in (("power", _POWER), ("heat", _HEAT)) if reasons & bits]
    return causes or (["hardware"] if reasons & _HARDWARE else [])


class GpuSamples:
    """The states of all visible GPUs during a launch, read by a thread that sleeps in between."""

    def __init__(self, states: Callable[[], list[GpuState]] = gpu_states, every_s: float = SAMPLED_EVERY_S) -> None:
        """Take what reads the states, and how often it does."""
        self._states, self._every_s = states, every_s
        self._found: list[tuple[float, list[GpuState]]] = []
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Begin to read, unless there is nothing to read."""
        if self._states():
            self._thread = threading.Thread(target=self._read, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Read no more."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _read(self) -> None:
        while not self._over.wait(self._every_s):
            self._found.append((time.monotonic(), self._states()))

    def noise(self, begin_s: float, end_s: float, used: int) -> dict[str, float | None]:
        """Return what the GPUs did between two moments of the monotonic clock; empty where nothing was read.

        Args:
            begin_s: of the steps that were timed.
            end_s: likewise.
            used: how many of the GPUs the launch used, the first ones.
        """
        timed = [(at_s, states[:used]) for at_s, states in self._found if begin_s <= at_s <= end_s]
        within = [states for _, states in timed]
        seen = [state for states in within for state in states]
        if not seen:
            return {}
        hz = _known(state.sm_hz for state in seen)
        power = [state.power_w / state.power_limit_w for state in seen if state.power_w and state.power_limit_w]
        held = [float(bool(reasons & _HELD_BACK)) for reasons in _known(state.throttle_reasons for state in seen)]
        busy = _known(state.busy_share for state in seen)
        return {
            "gpu_samples": float(len(within)),
            "gpu_sm_hz": _over(median, hz),
            "gpu_lowest_sm_hz": min(hz, default=None),
            "gpu_highest_temperature_c": most([state.temperature_c for state in seen]),
            "gpu_power_limit_share": max(power, default=None),
            "gpu_held_back_share": _over(mean, held),
            "gpu_busy_share": _over(mean, busy),
            "gpu_memory_used_bytes": most([state.memory_used_bytes for state in seen]),
            "gpu_processes": most([state.processes for state in seen]),
            "gpu_counted_w": _counted_watts(timed),
        }


def _over(average: Callable[[Sequence[float]], float], values: Sequence[float]) -> float | None:
    return average(values) if values else None


def _known(values: Iterable[Number | None]) -> list[Number]:
    """Return those of the values that the driver gave."""
    return [value for value in values if value is not None]


def _counted_watts(timed: Sequence[tuple[float, list[GpuState]]]) -> float | None:
    """Return the mean power of all GPUs by their counters of energy; None if one of them has none."""
    (first_s, first), (last_s, last) = timed[0], timed[-1]
    taken = [
        None if before.energy_j is None or after.energy_j is None else after.energy_j - before.energy_j
        for before, after in zip(first, last, strict=True)
    ]
    known = [each for each in taken if each is not None and each >= 0.0]
    return sum(known) / (last_s - first_s) if last_s > first_s and len(known) == len(taken) else None


def most(values: Sequence[float | None]) -> float | None:
    """Return the largest of the values that are known."""
    return max((value for value in values if value is not None), default=None)
