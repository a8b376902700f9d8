"""Phases of a step that are not negative and sum to it, from stages of which each holds the one before.

Stages are run one after the other, so that chance or drift can make a stage shorter than the one that it holds. No
phase is below 0: the means of all stages are moved as little as possible (least squares) to where each is at least as
long as the one before, the whole step kept. What lies further apart than chance explains is not decided.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from steptime.analysis.ablation.stages import Array, StageTimes, ablation_phases, over_blocks
from steptime.statistics.interval import LEVEL, t_quantile
from steptime.statistics.simultaneous import sidak_level

_CHAIN = ("forward", "backward", "update", "sync_wait", "comm_exposed", "h2d", "input_wait")
"""Phases in the order in which the stages that add them are nested."""
_KEPT = 1e12
"""The weight of a level that does not move, beside 1."""
_TOLERANCE = 0.02
"""Of a step, by which a phase may be below 0: as much as phases may leave of a step that they explain."""
_MOST_LAUNCHES = 100
LaunchPhases = dict[str, Array | None]
"""By phase, its seconds in every block of one launch; None if that is not known."""


@dataclass(frozen=True)
class NestedPhases:
    """The phases of all launches."""

    launches: list[LaunchPhases]
    """The mean over launches of no phase is negative."""
    undecided: tuple[str, ...] = ()
    """Phases that are None, because a stage is shorter than a part of it beyond chance."""
    more_launches: int | None = None
    """That would tell them within ``_TOLERANCE`` of a step, if launches differ by as much as these contradict."""


def nested_phases(
    all_stage_times: Sequence[StageTimes], *, synchronous: bool, workers: int, cuda: bool
) -> NestedPhases:
    """Return the phases of launches by the ablation, estimated together.

    Args:
        all_stage_times: of each launch of one trial.
        synchronous: as of ``ablation_phases``.
        workers: likewise.
        cuda: likewise.
    """
    launches = [ablation_phases(each, synchronous=synchronous, workers=workers, cuda=cuda) for each in all_stage_times]
    step_s = float(np.mean([each.means("step").mean() for each in all_stage_times]))
    measured = [name for name in _CHAIN if all(_is_measured(each[name]) for each in launches)]
    contradicted = _contradicted(launches, measured, step_s)
    around = {other for name in contradicted for other in _neighbours(name, measured)}
    moved = _moved([name for name in _CHAIN if all(each[name] is not None for each in launches)], launches)
    shifted = [_shift(each, moved, around) for each in launches]
    if not contradicted:
        return NestedPhases(shifted)
    most = max(-_mean(launches, name) for name in contradicted)
    undecided = tuple(name for name in _CHAIN if name in around)
    return NestedPhases(shifted, undecided, _more_launches(most / step_s, len(launches)))


def _is_measured(blocks: Array | None) -> bool:
    return blocks is not None and bool(blocks.any())


def _mean(launches: Sequence[Mapping[str, Array | None]], name: str) -> float:
    return float(np.mean([blocks.mean() for each in launches if (blocks := each[name]) is not None]))


def _contradicted(launches: Sequence[LaunchPhases], names: Sequence[str], step_s: float) -> list[str]:
    """Return the phases that are negative by more than the tolerance and by more than chance explains."""
    negative = []
    level = sidak_level(LEVEL, len(names))
    for name in names:
        value = over_blocks([_added(each, name) for each in launches], level)
        high = value.value if value.high is None else value.high
        if value.value < -_TOLERANCE * step_s and high < 0.0:
            negative.append(name)
    return negative


def _added(launch: LaunchPhases, name: str) -> Array:
    """Return what the stage of a measured phase adds: that of the exchange also waiting, which is estimated apart."""
    parts = [launch[each] for each in ((name, "sync_wait") if name == "comm_exposed" else (name,))]
    return np.asarray(sum(part for part in parts if part is not None))


def _neighbours(name: str, measured: Sequence[str]) -> list[str]:
    """Return a phase and those that share one of its two stages; waiting has a time of its own."""
    chain = [each for each in measured if each != "sync_wait" or each == name]
    index = chain.index(name)
    return chain[max(0, index - 1) : index + 2]


def _moved(known: Sequence[str], launches: Sequence[LaunchPhases]) -> dict[str, float]:
    """Return by how many seconds each known phase moves; phases between two that are not known move by themselves."""
    moved: dict[str, float] = {}
    runs: list[list[str]] = []
    for place, name in enumerate(_CHAIN):
        if name in known:
            if not place or _CHAIN[place - 1] not in known:
                runs.append([])
            runs[-1].append(name)
    for run in runs:
        names = [name for name in run if any(_is_measured(each[name]) for each in launches)]
        raw = np.array([_mean(launches, name) for name in names])
        levels = np.concatenate([[0.0], np.cumsum(raw)])
        weights = np.ones(len(levels))
        weights[0] = _KEPT if run[0] == _CHAIN[0] else 1.0
        weights[-1] = _KEPT if run[-1] == _CHAIN[-1] else weights[-1]
        moved |= dict(zip(names, np.diff(_rising(levels, weights)) - raw, strict=True))
    return moved


def _rising(levels: Array, weights: Array) -> Array:
    """Return the nearest levels that never fall: neighbours that do share their mean (Ayer et al. 1955)."""
    # scipy.optimize has isotonic_regression from 1.12 on, and this project runs with 1.11.
    pools: list[tuple[float, float, int]] = []
    for level, weight in zip(levels.tolist(), weights.tolist(), strict=True):
        pools.append((level, weight, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (high, before, count), (low, after, more) = pools[-2:]
            pools[-2:] = [((high * before + low * after) / (before + after), before + after, count + more)]
    return np.concatenate([np.full(count, level) for level, _, count in pools])


def _shift(launch: LaunchPhases, moved: Mapping[str, float], undecided: set[str]) -> LaunchPhases:
    return {
        name: None if blocks is None or name in undecided else blocks + moved.get(name, 0.0)
        for name, blocks in launch.items()
    }


def _more_launches(share: float, count: int) -> int:
    """Return how many launches more tell a phase within the tolerance, if launches differ by this share of a step."""
    for wanted in range(max(2, count) + 1, _MOST_LAUNCHES):
        if float(t_quantile(wanted - 1, LEVEL)) * share / np.sqrt(wanted) <= 2.0 * _TOLERANCE:
            return wanted - count
    return _MOST_LAUNCHES - count
