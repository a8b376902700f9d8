"""What this host has for a launch: cores and free memory, asked without any framework."""

import os

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
