"""Steps predicted from computing that took turns with them in the same launches, on a machine whose speed drifts."""

from collections.abc import Iterator, Sequence

import numpy as np
from calibrating import calibrations, computing_of, interconnect_of
from contestants import Contestant, Load
from measuring import Place
from predicting import Cell, as_asked, graph_of, predictions
from quiet import quiet, quietest

from steptime.measurements.anatomy.interval import over_blocks
from steptime.measurements.anatomy.rungs import Climb, climbs


def cells_in_turns(place: Place, contestant: Contestant, name: str, load: Load, megabits: float) -> Iterator[Cell]:
    """Yield one cell for each number of hosts whose steps and computing were measured in turns.

    Each launch is predicted from its own computing, so that a machine that is quicker in one than in another does not
    count as an error of the prediction; both are then averaged over launches, as logarithms. One worker's computing
    and the link are those of all other cells.
    """
    stores = place.stores(contestant, name, megabits)
    if stores is None:
        return
    steps, alone, net = stores
    one, links = calibrations(alone, contestant).get(1), net.net()
    for trial in steps.trials():
        every = steps.anatomies(trial.id)
        climbed = [each for each in climbs(quietest(every)) if each.alone]
        graph = graph_of(trial)
        between = interconnect_of(quietest(links), contestant, graph.plan)
        if one is None or between is None or not climbed:
            continue
        ways = [
            predictions(
                graph,
                trial.workers,
                {1: one, trial.workers: computing_of([each], contestant)},
                between,
                as_asked(megabits),
            )
            for each in climbed
        ]
        measured = _mean(
            [float(np.median(np.concatenate(each.rungs["step"], axis=1), axis=1).mean()) for each in climbed]
        )
        low, high = _bounds(climbed)
        yield Cell(
            contestant=contestant.name,
            load=name,
            batch=load.batch,
            megabits=megabits,
            hosts=trial.workers,
            in_turns=True,
            measured_s=measured,
            low_s=measured * low,
            high_s=measured * high,
            launches=len(climbed),
            noisy_launches=len(every) - len(climbed),
            quiet=all((quiet(every), quiet(links), one.quiet)),
            predicted_s={way: _mean([each[way] for each in ways]) for way in ways[0]},
        )


def _bounds(climbed: Sequence[Climb]) -> tuple[float, float]:
    """Return the interval of the step time as blocks and launches show it, as factors of the step time."""
    blocks = [np.array([np.median(block, axis=1).mean() for block in each.rungs["step"]]) for each in climbed]
    found = over_blocks(blocks)
    low, high = (np.nan if each is None else each / found.value for each in (found.low, found.high))
    return low, high


def _mean(seconds: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(seconds))))
