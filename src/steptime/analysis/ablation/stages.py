"""Ablation launches as arrays: durations of each stage, phases as their differences, times on worker 0's clock.

An estimate over ablation launches and their blocks, with its interval.

How much of the communication computation covers.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # type: ignore[import-untyped]  # scipy ships no types; its modules are imported when used
from numpy.typing import NDArray

from steptime.catalog.choices import SYNTHETIC
from steptime.flags import flag_text
from steptime.results.ablation_records import AblationLaunch, WorkerAblation
from steptime.results.json_form import Interval
from steptime.statistics.interval import LEVEL, t_quantile
from steptime.study.trial import Trial
from steptime.units import format_seconds

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


_LACKING_SHARE = 0.05
"""Of a step, that its stages may leave to a loader which loads nothing."""


def incomplete_stages(trial: Trial, launches: Sequence[StageTimes]) -> list[str]:
    """Return the flag of stages that leave out what the step does, of a loader that has nothing to wait for.

    A step takes longer than its fullest stage by what it takes to get the next batch, which is a stage by itself.
    """
    shared = set.intersection(*(set(each.stages) for each in launches))
    fullest = next((name for name in ("h2d", "exchange", *_ALONE) if name in shared), None)
    if trial.loader != SYNTHETIC.name or fullest is None or "input" not in shared:
        return []
    more = [each.means("step") - each.means(fullest) for each in launches]
    unexplained = over_blocks([own - each.means("input") for own, each in zip(more, launches, strict=True)])
    step_s = over_blocks([each.means("step") for each in launches]).value
    if unexplained.low is None or unexplained.low < _LACKING_SHARE * step_s:
        return []
    longer = format_seconds(over_blocks(more).value)
    return [flag_text("incomplete_stage", stage=fullest, longer=longer)]


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


_POOL_ABOVE = 0.25
"""Launches are pooled when chance alone makes them differ as much with at least this probability."""


def over_blocks(launches: Sequence[Array], level: float = LEVEL) -> Interval:
    """Return the mean over launches of what their blocks gave, with an interval.

    Blocks of one launch are paired differences, neighbours in time. Launches may differ by more than their blocks
    tell (memory layout, placement). If they do, by an F test of the variance between launches, the launches are the
    sample: Student's t over their means. If they do not, all blocks are: "sometimes pooling" at a preliminary level
    of 25 %, which keeps its level (Bancroft, Ann. Math. Stat. 15 (1944) 190; Bozivich, Bancroft, Hartley 27 (1956)
    1017). The scale is linear, because phases are added up and may be 0.

    Args:
        launches: for each launch, one value of each block.
        level: the share of such intervals that hold the true value.
    """
    means = np.array([blocks.mean() for blocks in launches])
    value = float(means.mean())
    counts = np.array([len(blocks) for blocks in launches])
    free_between, free_within = len(launches) - 1, int(counts.sum()) - len(launches)
    within = float(sum(((blocks - blocks.mean()) ** 2).sum() for blocks in launches))
    between = float((counts * (means - np.average(means, weights=counts)) ** 2).sum())
    if free_within > 0 and (free_between == 0 or _alike(between, free_between, within, free_within)):
        freedom = free_between + free_within
        error = np.sqrt((between + within) / freedom * np.mean(1.0 / counts) / len(launches))
    elif free_between > 0:
        freedom, error = free_between, means.std(ddof=1) / np.sqrt(len(launches))
    else:
        return Interval(value, None, None)
    half_width = float(t_quantile(freedom, level) * error)
    return Interval(value, value - half_width, value + half_width)


def _alike(between: float, free_between: int, within: float, free_within: int) -> bool:
    if within <= 0.0:
        return between <= 0.0
    ratio = (between / free_between) / (within / free_within)
    return float(scipy.special.fdtrc(free_between, free_within, ratio)) >= _POOL_ABOVE


Pieces = list[tuple[float, float]]
"""When each piece could be under way, and when its result was there."""


def communication_s(launch: AblationLaunch, stage_times: StageTimes, *, synchronous: bool) -> tuple[Array, str] | None:
    """Return how long a step communicates in all, covered or not, and how that is known; None if it is not.

    Seconds of every block (one value where the framework's transfers give it).
    From the framework's own transfers, the time in which any piece was under way; else from the stage that exchanges
    and computes nothing.

    Args:
        launch: an ablation launch.
        stage_times: the same as arrays.
        synchronous: whether a piece waits for the last worker to have it ready, which is no communication.
    """
    seen = [worker for worker in launch.workers if worker.transfers and worker.marked]
    if seen and len(seen) == len(launch.workers):
        latest = _latest(seen) if synchronous else {}
        busy = [_under_way(_pieces(worker, latest)) / len(worker.marked) for worker in seen]
        return np.array([np.mean(busy)]), "direct"
    if "communication" in stage_times.stages:
        return stage_times.means("communication"), "derived"
    return None


def _times(worker: WorkerAblation) -> dict[tuple[str, int], tuple[float, float]]:
    """When each piece was ready and back, on worker 0's clock, by its name and how often that had come before."""
    times = aligned(worker, [(ready, done) for _, _, ready, done in worker.transfers])
    seen: dict[str, int] = defaultdict(int)
    found = {}
    for (name, *_), (ready, done) in zip(worker.transfers, times, strict=True):
        found[name, seen[name]] = (float(ready), float(done))
        seen[name] += 1
    return found


def _latest(workers: Sequence[WorkerAblation]) -> dict[tuple[str, int], float]:
    """When the last worker had each piece ready; nothing where workers do not name the same pieces."""
    found = [_times(worker) for worker in workers]
    if any(each.keys() != found[0].keys() for each in found):
        return {}
    return {key: max(each[key][0] for each in found) for key in found[0]}


def _pieces(worker: WorkerAblation, latest: dict[tuple[str, int], float]) -> Pieces:
    return [(min(max(ready, latest.get(key, ready)), done), done) for key, (ready, done) in _times(worker).items()]


def _under_way(pieces: Pieces) -> float:
    """Seconds in which at least one piece was ready and not yet back."""
    total, until = 0.0, float("-inf")
    for ready, done in sorted(pieces):
        total += max(0.0, done - max(ready, until))
        until = max(until, done)
    return total
