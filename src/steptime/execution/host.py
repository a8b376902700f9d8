"""What this host has for a launch: cores and free memory, asked without any framework."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path

import psutil

from steptime.catalog.accelerators import OCCUPIED_BYTES, find_accelerators
from steptime.catalog.workloads.costs import activation_width, memory_bytes
from steptime.catalog.workloads.layers import Workload
from steptime.study.trial import Trial
from steptime.units import format_bytes, format_count
from steptime.worker.samples import PREFETCHED_PER_HELPER

_FRAMEWORK_BYTES = 400 * 2**20
"""What a framework needs before it holds a single weight."""
_FLOAT_BYTES = 4


def usable_cores() -> tuple[int, ...]:
    """Return the cores that this process may use."""
    return tuple(sorted(os.sched_getaffinity(0)))


class SharedCores:
    """The cores of this host, of which a launch that times nothing takes one for each worker, in the order of asking.

    Workers that share a core wait for each other busily in some libraries (those of MPI), so that two launches beside
    each other take longer than one after the other.
    """

    def __init__(self, count: int) -> None:
        self._count = self._free = count
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()

    @contextmanager
    def taken(self, wanted: int, cancelled: threading.Event) -> Iterator[None]:
        """Hold ``wanted`` cores, or all where there are fewer; wait until they are free, or it is cancelled."""
        wanted, own = min(wanted, self._count), object()
        with self._changed:
            self._waiting.append(own)
            while not cancelled.is_set() and (self._waiting[0] is not own or self._free < wanted):
                self._changed.wait(_CANCELLED_WITHIN_S)
            self._waiting.remove(own)
            self._free -= wanted
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._free += wanted
                self._changed.notify_all()


_CANCELLED_WITHIN_S = 0.2
_PCI_DEVICES = Path("/sys/bus/pci/devices")


def busy_clause() -> str:
    """``, while 5.2 processes wanted the 2 cores``: why a launch may wait; empty on a machine that is not busy."""
    load, cores = os.getloadavg()[0], len(usable_cores())
    return f", while {load:.1f} processes wanted the {format_count(cores, 'core')}" if load > cores else ""


def device_cores(cores: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return for each CUDA device that a process sees those of ``cores`` on its NUMA node; empty where no device is."""
    return tuple(cores_near(each.bus_address, cores) for each in find_accelerators().devices)


def cores_near(address: str | None, cores: Sequence[int], devices: Path = _PCI_DEVICES) -> tuple[int, ...]:
    """Return those of ``cores`` that are on the NUMA node of the PCI device ``address``; all if that is unknown.

    Args:
        address: as the kernel writes it, ``0000:3b:00.0``; NVIDIA's library writes the domain with eight digits.
        cores: that may be used.
        devices: the kernel's folder of PCI devices; ``local_cpulist`` of a device is as ``0-15,32-47``.
    """
    domain, _, rest = (address or "").lower().partition(":")
    try:
        near = _numbers((devices / f"{domain[-4:]}:{rest}" / "local_cpulist").read_text())
    except (OSError, ValueError):
        return tuple(cores)
    return tuple(core for core in cores if core in near) or tuple(cores)


def _numbers(ranges: str) -> set[int]:
    found: set[int] = set()
    for part in filter(None, ranges.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def memory_shortage(
    trial: Trial,
    workload: Workload,
    available_bytes: float | None = None,
    device_bytes: float | None = None,
    sharing: int | None = None,
) -> str | None:
    """Return why ``trial`` cannot fit the memory, with the largest batch that would; None if it fits.

    What a worker needs is estimated from the layers: weights, gradients, what the optimizer keeps, and the activations
    that the backward pass needs. On a CUDA device each worker has a device of its own.

    Args:
        trial: to be launched.
        workload: its own.
        available_bytes: free on the host; asked of the system by default.
        device_bytes: of the smallest CUDA device; None if unknown, so that a full device fails the launch.
        sharing: workers that share the host; all of them by default.
    """
    if workload.own is not None:
        return None  # of its layers nothing is known
    if trial.device == "cuda":
        if device_bytes is None:
            return None
        available, together, own_bytes = device_bytes, 1, OCCUPIED_BYTES
    else:
        available = psutil.virtual_memory().available if available_bytes is None else available_bytes
        together, own_bytes = sharing or trial.workers, _FRAMEWORK_BYTES

    def needed(batch: int) -> float:
        at_once = -(-batch // trial.accumulation)
        weights_and_activations = memory_bytes(
            workload,
            at_once,
            dtype_bytes=activation_width(trial.precision),
            optimizer_values=trial.optimizer.values_per_weight,
        )
        return together * (weights_and_activations + own_bytes)

    if needed(trial.batch_per_worker) <= available:
        return None
    batch = largest_batch(needed, trial.batch_per_worker, available)
    others = "no batch fits; use fewer workers" if trial.device == "cpu" else "no batch fits the device"
    advice = f"batch_per_worker {batch} would fit" if batch else others
    workers = "1 worker needs" if together == 1 else f"{together} workers need"
    where = "are free" if trial.device == "cpu" else "has the device"
    return (
        f"does not fit the memory: {workers} about {format_bytes(needed(trial.batch_per_worker))} with "
        f"batch_per_worker {trial.batch_per_worker}, and {format_bytes(available)} {where}; {advice}"
    )


SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - it is only measured


def shared_memory_bytes(folder: Path = SHARED_MEMORY) -> tuple[float, float] | None:
    """Return how much of the memory that processes share by files is free, and its size; None without any."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return float(found.f_bavail * found.f_frsize), float(found.f_blocks * found.f_frsize)


def shared_batches_bytes(trial: Trial) -> int:
    """Return the bytes of the batches that the loader helpers of all workers have ready: as floats, for devices pixels.

    Helper processes of some frameworks keep them in /dev/shm; a helper that finds it full is killed.
    """
    sample_bytes = prod(trial.input_shape) * (_FLOAT_BYTES if trial.device == "cpu" else 1)
    batches = trial.workers * trial.loader_processes * int(PREFETCHED_PER_HELPER)
    return batches * trial.batch_per_worker * sample_bytes


def largest_batch(needed: Callable[[int], float], below: int, available: float) -> int:
    """Return the largest batch under ``below`` that needs no more than is available; 0 where not even 1 fits.

    Args:
        needed: the bytes for a batch, which grow with it.
        below: a batch that does not fit.
        available: bytes.
    """
    fits, fails = 0, below
    while fails - fits > 1:
        middle = (fits + fails) // 2
        fits, fails = (middle, fails) if needed(middle) <= available else (fits, middle)
    return fits
