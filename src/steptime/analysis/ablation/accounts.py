"""Durations of phases from a framework's own marks, logs and timers, compared with the ablation's."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from steptime.analysis.ablation import form
from steptime.analysis.ablation.stages import Array, StageTimes, aligned, over_blocks, uncertainty_s
from steptime.phases import EXCHANGED, IN_TIME, NAMES, OF_MARK, REST
from steptime.results.ablation_records import TOGETHER, AblationLaunch
from steptime.results.json_form import Interval


def marked_phases(launch: AblationLaunch, *, synchronous: bool) -> dict[str, float]:
    """Return the phases of one launch in seconds, as means over workers and marked steps; empty without marks.

    A phase lasts from the end of the one before to its own; what passes between two marks and holds several phases
    gives none of them. Of a synchronous exchange, what passes until the last worker has all its gradients is
    `sync_wait`, and the rest is `comm_exposed`; where the clocks of hosts cannot tell arrivals apart, neither is given.
    """
    workers = [worker for worker in launch.workers if worker.marked]
    if not workers or len(workers) < len(launch.workers):
        return {}
    ends = np.stack([aligned(worker, worker.marked) for worker in workers])  # workers x steps x (start, marks)
    gaps = np.diff(ends, axis=-1)
    marks = workers[0].marks
    covered = covered_by(marks, exchanging="exchange" in workers[0].stages)
    phases = {phase: float(gaps[..., index].mean()) for index, (phase, *others) in enumerate(covered) if not others}
    if EXCHANGED not in covered:
        return phases
    exchange = float(gaps[..., marks.index("exchange")].mean())
    if len(workers) == 1 or not synchronous:
        return {**phases, "sync_wait": 0.0, "comm_exposed": exchange}
    arrivals = ends[..., marks.index("exchange")]
    wait = min(exchange, float((arrivals.max(axis=0) - arrivals.mean(axis=0)).mean()))
    if wait < uncertainty_s(workers):
        return phases
    return {**phases, "sync_wait": wait, "comm_exposed": exchange - wait}


def covered_by(marks: Sequence[str], *, exchanging: bool) -> list[tuple[str, ...]]:
    """Return, for each mark, the phases between it and the one before: several where one between them has no mark.

    Args:
        marks: of a step, in their order (worker/session.py).
        exchanging: whether the step exchanges anything.
    """
    found = []
    left = [name for name in IN_TIME if name != REST]
    for mark in marks:
        ends = OF_MARK.get(mark, EXCHANGED[0])
        passed, left = left[: left.index(ends) + 1], left[left.index(ends) + 1 :]
        # A copy to the device has a mark wherever there is a device.
        absent = ({"h2d"} - {ends}) | (set() if exchanging or mark == "exchange" else set(EXCHANGED))
        found.append(tuple(sorted((name for name in passed if name not in absent), key=NAMES.index)))
    return found


TOLERANCE = 0.02
"""Of a step: what may lie between two accounts that agree, as much as phases may leave of a step that they explain."""
MARKS = "marks"

AccountTimes = dict[tuple[str, str], Array]
"""By source and phases the seconds of each block, means over workers and steps."""


def accounts(
    launches: Sequence[AblationLaunch],
    all_stage_times: Sequence[StageTimes],
    all_by_ablation: Sequence[Mapping[str, Array | None]],
) -> list[form.Account]:
    """Return every duration that frameworks give in all launches, with the ablation's of the same phases.

    Blocks are paired: the difference of both accounts is taken in each block, whose steps are neighbours in time.
    Two accounts agree when the whole interval of that difference lies within ``TOLERANCE`` of the step, and disagree
    when all of it lies beyond; in between, nothing is claimed.

    Args:
        launches: ablation launches that ended well.
        all_stage_times: the same as arrays.
        all_by_ablation: their phases by the ablation, of every block.
    """
    by_launch = [
        _account_times(launch, stage_times) for launch, stage_times in zip(launches, all_stage_times, strict=True)
    ]
    shared = sorted((key for key in by_launch[0] if all(key in each for each in by_launch)), key=_order)
    step_s = float(np.mean([stage_times.means("step").mean() for stage_times in all_stage_times]))
    found = []
    for source, phases in shared:
        native = [each[source, phases] for each in by_launch]
        by_ablation = [_of_ablation(each, phases) for each in all_by_ablation]
        known = [each for each in by_ablation if each is not None]
        if len(known) < len(by_ablation):
            found.append(_account(source, phases, native, None, step_s))
        elif any(each.any() for each in [*native, *known]):  # else both say that there is nothing
            found.append(_account(source, phases, native, known, step_s))
    return found


def _order(key: tuple[str, str]) -> tuple[bool, str, int]:
    """Timers before marks, and phases as they are shown."""
    source, phases = key
    return source == MARKS, source, NAMES.index(phases.split(TOGETHER)[0])


def _account_times(launch: AblationLaunch, stage_times: StageTimes) -> AccountTimes:
    found: dict[tuple[str, str], list[Array]] = {}
    workers = launch.workers
    for worker in workers:
        blocks = worker.native
        for source, phases in _names(blocks):
            if all(phases in block.get(source, {}) for block in blocks):
                seconds = np.array([block[source][phases] for block in blocks])
                found.setdefault((source, phases), []).append(seconds)
    for name, seconds in _marks(launch, stage_times):
        found.setdefault((MARKS, name), []).append(seconds)
    return {key: np.mean(each, axis=0) for key, each in found.items()}


def _names(blocks: Sequence[Mapping[str, Mapping[str, float]]]) -> list[tuple[str, str]]:
    return [(source, phases) for source, seconds in (blocks[0] if blocks else {}).items() for phases in seconds]


def _marks(launch: AblationLaunch, stage_times: StageTimes) -> Iterator[tuple[str, Array]]:
    """Yield what passed between marks on each worker's own clock, which needs no other."""
    ends = np.cumsum([block.shape[1] for block in stage_times.stages.get("marked", [])])
    for worker in launch.workers:
        if not len(ends) or len(worker.marked) != ends[-1]:
            continue
        passed = np.diff(np.array(worker.marked), axis=-1)
        blocks = [block.mean(axis=0) for block in np.split(passed, ends[:-1])]
        for index, phases in enumerate(covered_by(worker.marks, exchanging="exchange" in worker.stages)):
            yield TOGETHER.join(phases), np.array([block[index] for block in blocks])


def _of_ablation(by_ablation: Mapping[str, Array | None], phases: str) -> Array | None:
    parts = [by_ablation.get(name) for name in phases.split(TOGETHER)]
    known = [part for part in parts if part is not None]
    return np.sum(known, axis=0) if len(known) == len(parts) else None


def _account(
    source: str, phases: str, native: Sequence[Array], by_ablation: Sequence[Array] | None, step_s: float
) -> form.Account:
    away = by_ablation and over_blocks([one - other for one, other in zip(native, by_ablation, strict=True)])
    return form.Account(
        source=source,
        phase=phases,
        native_s=over_blocks(native),
        by_ablation_s=over_blocks(by_ablation) if by_ablation else None,
        difference_s=away or None,
        agrees=_agrees(away, step_s) if away else None,
    )


def _agrees(away: Interval, step_s: float) -> bool | None:
    if away.low is None or away.high is None:
        return None
    allowed = TOLERANCE * step_s
    if away.low > allowed or away.high < -allowed:
        return False
    return True if -allowed <= away.low and away.high <= allowed else None
