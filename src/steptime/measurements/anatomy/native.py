"""What frameworks themselves say that parts of a step take, held against the ladder."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from steptime.measurements.anatomy import form
from steptime.measurements.anatomy.interval import Estimated, over_blocks
from steptime.measurements.anatomy.marked import PHASE_OF_MARK
from steptime.measurements.anatomy.records import PHASES, AnatomyLaunch
from steptime.measurements.anatomy.rungs import Array, Climb

TOLERANCE = 0.02
"""Of a step: what may lie between two accounts that agree, as much as phases may leave of a step that they explain."""
TOGETHER = " + "
"""Between the names of phases that one duration covers."""
MARKS = "marks"
_EXCHANGE = TOGETHER.join(("comm_exposed", "sync_wait"))
"""What ends with the mark ``exchange``."""

Told = dict[tuple[str, str], Array]
"""By source and phases the seconds of each block, means over workers and steps."""


def accounts(
    launches: Sequence[AnatomyLaunch], climbed: Sequence[Climb], ladders: Sequence[Mapping[str, Array | None]]
) -> list[form.Account]:
    """Return every duration that frameworks tell in all launches, beside the ladder's of the same phases.

    Blocks are paired: the difference of both accounts is taken in each block, whose steps are neighbours in time.
    Two accounts agree when the whole interval of that difference lies within ``TOLERANCE`` of the step, and disagree
    when all of it lies beyond; in between, nothing is claimed.

    Args:
        launches: anatomy launches that ended well.
        climbed: the same as arrays.
        ladders: their phases by the ladder, of every block.
    """
    told = [_told(launch, climb) for launch, climb in zip(launches, climbed, strict=True)]
    shared = sorted((key for key in told[0] if all(key in each for each in told)), key=_order)
    step_s = float(np.mean([climb.means("step").mean() for climb in climbed]))
    found = []
    for source, phases in shared:
        native = [each[source, phases] for each in told]
        ladder = [_of_ladder(each, phases) for each in ladders]
        known = [each for each in ladder if each is not None]
        if len(known) < len(ladder):
            found.append(_account(source, phases, native, None, step_s))
        elif any(each.any() for each in [*native, *known]):  # else both say that there is nothing
            found.append(_account(source, phases, native, known, step_s))
    return found


def _order(key: tuple[str, str]) -> tuple[bool, str, int]:
    """Timers before marks, and phases as they are shown."""
    source, phases = key
    return source == MARKS, source, PHASES.index(phases.split(TOGETHER)[0])


def _told(launch: AnatomyLaunch, climb: Climb) -> Told:
    found: dict[tuple[str, str], list[Array]] = {}
    workers = launch.workers
    for worker in workers:
        blocks = worker.native
        for source, phases in _names(blocks):
            if all(phases in block.get(source, {}) for block in blocks):
                seconds = np.array([block[source][phases] for block in blocks])
                found.setdefault((source, phases), []).append(seconds)
    for name, seconds in _marks(launch, climb):
        found.setdefault((MARKS, name), []).append(seconds)
    return {key: np.mean(each, axis=0) for key, each in found.items()}


def _names(blocks: Sequence[Mapping[str, Mapping[str, float]]]) -> list[tuple[str, str]]:
    return [(source, phases) for source, seconds in (blocks[0] if blocks else {}).items() for phases in seconds]


def _marks(launch: AnatomyLaunch, climb: Climb) -> Iterator[tuple[str, Array]]:
    """Yield what passed between marks on each worker's own clock, which needs no other."""
    ends = np.cumsum([block.shape[1] for block in climb.rungs.get("marked", [])])
    for worker in launch.workers:
        if not len(ends) or len(worker.marked) != ends[-1]:
            continue
        passed = np.diff(np.array(worker.marked), axis=-1)
        blocks = [block.mean(axis=0) for block in np.split(passed, ends[:-1])]
        for index, mark in enumerate(worker.marks):
            yield PHASE_OF_MARK.get(mark, _EXCHANGE), np.array([block[index] for block in blocks])


def _of_ladder(ladder: Mapping[str, Array | None], phases: str) -> Array | None:
    parts = [ladder.get(name) for name in phases.split(TOGETHER)]
    known = [part for part in parts if part is not None]
    return np.sum(known, axis=0) if len(known) == len(parts) else None


def _account(
    source: str, phases: str, native: Sequence[Array], ladder: Sequence[Array] | None, step_s: float
) -> form.Account:
    away = ladder and over_blocks([one - other for one, other in zip(native, ladder, strict=True)])
    return form.Account(
        source=source,
        phase=phases,
        native_s=_seconds(over_blocks(native)),
        ladder_s=_seconds(over_blocks(ladder)) if ladder else None,
        difference_s=_seconds(away) if away else None,
        agrees=_agrees(away, step_s) if away else None,
    )


def _agrees(away: Estimated, step_s: float) -> bool | None:
    if away.low is None or away.high is None:
        return None
    allowed = TOLERANCE * step_s
    if away.low > allowed or away.high < -allowed:
        return False
    return True if -allowed <= away.low and away.high <= allowed else None


def _seconds(found: Estimated) -> form.Seconds:
    return form.Seconds(value=found.value, low=found.low, high=found.high)
