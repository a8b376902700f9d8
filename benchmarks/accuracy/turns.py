"""Steps predicted from computing that took turns with them in the same launches, on a machine whose speed drifts."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from calibrating import computing_of
from contestants import Contestant
from predicting import Cell, cell_of, predictions
from quiet import quietest
from settings import Setting

from steptime.measurements.ablation.interval import over_blocks
from steptime.measurements.ablation.stages import Array, StageTimes, stage_times_of
from steptime.measurements.interval import LEVEL, Interval


def cells_in_turns(settings: Iterable[Setting], contestant: Contestant) -> Iterator[Cell]:
    """Yield one cell for each number of hosts whose steps and computing were measured in turns.

    Each launch is predicted from its own computing, so that a machine that is quicker in one than in another does not
    count as an error of the prediction; both are then averaged over launches, as logarithms. One worker's computing
    and the link are those of all other cells.
    """
    for setting in settings:
        every = setting.steps.ablations(setting.trial.id)
        all_stage_times = [each for each in stage_times_of(quietest(every)) if each.alone]
        if 1 not in setting.base or not all_stage_times:
            continue
        ways = [predictions(setting, computing_of([each], contestant)) for each in all_stage_times]
        predicted = {way: _mean([each[way] for each in ways]) for way in ways[0]}
        yield cell_of(setting, _measured(all_stage_times), predicted, every, in_turns=True)


def _step_of(durations: Array) -> float:
    """Return the mean over workers of their median steps, (workers, steps)."""
    return float(np.median(durations, axis=1).mean())


def _measured(all_stage_times: Sequence[StageTimes]) -> Interval:
    """Return the step time, with bounds in the proportions that blocks and launches show."""
    value = _mean([_step_of(np.concatenate(each.stages["step"], axis=1)) for each in all_stage_times])
    found = over_blocks([np.array([_step_of(block) for block in each.stages["step"]]) for each in all_stage_times])
    low, high = (np.nan if each is None else value * (each / found.value) for each in (found.low, found.high))
    return Interval(value, low, high, LEVEL, len(all_stage_times))


def _mean(seconds: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(seconds))))
