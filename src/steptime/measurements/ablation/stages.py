"""Ablation launches as arrays: durations of each stage, phases as their differences, times on worker 0's clock."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steptime.measurements.ablation.records import AblationLaunch, WorkerAblation

Array = NDArray[np.float64]

_ALONE = ("local", "backward", "forward")
"""Stages in which workers compute and do not wait for each other, the fullest first."""


@dataclass(frozen=True)
class StageTimes:
    """One launch; durations are seconds."""

    stages: dict[str, list[Array]]
    """For each stage, for each block, the durations: workers x steps of the block."""

    def means(self, stage: str) -> Array:
        """Mean duration over workers and steps, of every block."""
        return np.array([block.mean() for block in self.stages[stage]])

    @property
    def alone(self) -> str | None:
        """The fullest stage that workers run without waiting for each other; None when there is none."""
        return next((name for name in _ALONE if name in self.stages), None)

    def compute(self) -> Array:
        """Computation without any waiting: workers x steps, all blocks one after the other; empty without a stage."""
        name = self.alone
        return np.concatenate(self.stages[name], axis=1) if name else np.empty((0, 0))


def stage_times_of(launches: Sequence[AblationLaunch]) -> list[StageTimes]:
    """Return those of ``launches`` that ended well."""
    return [_stage_times(launch) for launch in launches if launch.status == "ok" and launch.workers]


def _stage_times(launch: AblationLaunch) -> StageTimes:
    first = launch.workers[0]
    return StageTimes(
        {
            name: [np.array([worker.stages[name][block] for worker in launch.workers]) for block in range(len(blocks))]
            for name, blocks in first.stages.items()
        }
    )


def ablation_phases(stage_times: StageTimes, *, synchronous: bool, workers: int, cuda: bool) -> dict[str, Array | None]:
    """Return the phases of one launch in seconds, of every block, as means over workers; None if a stage is missing.

    Each run has one stage more, so that a phase is the time that its stage adds to a step. What the exchange adds has
    two parts: `sync_wait`, how much longer the slowest worker of a step computes than the mean worker (0 where
    no worker waits for it), and the rest, `comm_exposed`.

    Args:
        stage_times: the launch.
        synchronous: whether workers wait for each other in every step.
        workers: how many there are; a single one waits for no other, and mostly exchanges nothing.
        cuda: whether batches are copied to a device; on a CPU they are not.
    """
    mean = {name: stage_times.means(name) for name in stage_times.stages}
    nothing = np.zeros_like(mean["step"])

    def added(upper: str, lower: str | None) -> Array | None:
        return mean[upper] - mean[lower] if upper in mean and lower in mean else None

    alone = stage_times.alone
    top = "exchange" if workers > 1 or "exchange" in mean else alone
    exchange = nothing if top == alone else added("exchange", alone)
    wait = _wait(stage_times) if synchronous and workers > 1 else nothing
    return {
        "forward": mean.get("forward"),
        "backward": added("backward", "forward"),
        "update": added("local", "backward"),
        "sync_wait": wait,
        "comm_exposed": None if exchange is None or wait is None else exchange - wait,
        "h2d": added("h2d", top) if cuda else nothing,
        "input_wait": added("step", "h2d" if cuda and "h2d" in mean else top),
    }


def _wait(stage_times: StageTimes) -> Array | None:
    if stage_times.alone is None:
        return None
    return np.array(
        [(block.max(axis=0) - block.mean(axis=0)).mean() for block in stage_times.stages[stage_times.alone]]
    )


def aligned(worker: WorkerAblation, times_s: Sequence[Sequence[float]] | Array) -> Array:
    """Return times of a worker's clock as times of worker 0's.

    The offset was taken before and after (Cristian's method: half the quickest round trip bounds its error); between
    them it is interpolated, which takes a constant drift out.
    """
    times = np.asarray(times_s, dtype=np.float64)
    before, after = worker.clocks[0], worker.clocks[-1]
    span = after["at_s"] - before["at_s"]
    drift = (after["offset_s"] - before["offset_s"]) / span if span > 0.0 else 0.0
    return times + before["offset_s"] + drift * (times - before["at_s"])


def uncertainty_s(workers: Sequence[WorkerAblation]) -> float:
    """Return how far two workers' aligned clocks may be apart; no difference of arrivals below it means anything."""
    if len({worker.host for worker in workers}) == 1:
        return 0.0  # one host has one monotonic clock
    return max(clock["rtt_s"] for worker in workers for clock in worker.clocks)
