"""Whether the last step that an asynchronous worker took without the others is what its weights and batch lead to.

Between such steps the weights are the worker's own alone, so that what one of them changes can be repeated from the
weights ahead of it. They are taken behind all others, and in a pause behind a drawn one of the timed steps. Which
worker's is repeated is drawn when its launch is over.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from steptime.catalog.choices import strategy_named
from steptime.errors import PluginError, WorkloadError
from steptime.results.records import Launch, Replay, ShortSketches, StepsAlone, WorkerSteps
from steptime.study.trial import Trial
from steptime.validity.short_sketches import SUMS, array_distance, distance_of_updates

_OF_UPDATE = {"fp32": 5e-4}
_OF_HALF_UPDATE = 0.1
"""Of an update, by which right ones differ at most but for rounding: in single precision, gradients of the same weights
are less than 1e-5 apart, and those that were rounded to bfloat16 on their way 1.5e-3."""
_OF_WEIGHTS = 2.0**-23
"""Of the length of the weights, to whose last digits updates are rounded: right runs are about a quarter of this
away."""
_OF_LOSS, _LEAST_LOSS = 1e-3, 1e-4
"""By how much right losses differ at most: a share, and what rounding makes of one that is nearly zero."""
_ALONE = 3
_WHERE = {"pause": " in the pause of the timed steps", None: ""}


def can_repeat(trial: Trial) -> bool:
    """Say whether such a step can be repeated: on this host, from arrays by name, without masks that are drawn."""
    asynchronous = strategy_named(trial.strategy).answer == "any_order"
    if not asynchronous or trial.workers == 1 or trial.own or trial.container or trial.cluster or trial.training:
        return False
    try:
        return not any(layer.kind == "dropout" for layer in trial.build().layers)
    except (WorkloadError, PluginError):
        return False


Place = str | None
"""Where in a launch a worker took steps alone, as ``Replay.place`` has it: in a ``pause``, or None at the end."""
PAUSE = "pause"


def with_steps_alone(trial: Trial, launches: Sequence[Launch]) -> list[tuple[Launch, Place]]:
    """Return the launches of which such a step can be repeated, each with every place of one."""
    if not can_repeat(trial):
        return []
    return [(each, place) for each in launches for place in (PAUSE, None) if repeatable(trial, each, place)]


def repeatable(trial: Trial, launch: Launch, place: Place) -> list[WorkerSteps]:
    """Return the workers of a launch whose step at a place can be repeated."""
    return [each for each in launch.workers if _known(trial, each, place)]


def unrepeated(trial: Trial, launches: Sequence[Launch], replays: Sequence[Replay]) -> list[tuple[Launch, Place]]:
    """Return the launches of which no such step was repeated, each with every place of one."""
    done = {(each.launch, each.place) for each in replays if each.rank is not None and each.reason is None}
    return [each for each in with_steps_alone(trial, launches) if (each[0].launch, each[1]) not in done]


def other_steps_alone(trial: Trial, launch: Launch, replays: Sequence[Replay]) -> str | None:
    """Return the sentence about the first repeated step of a launch that changed something else; or None."""
    workers = {each.rank: each for each in launch.workers}
    for worker in launch.workers if can_repeat(trial) else ():
        for place in (PAUSE, None):
            if _skips(worker, place):
                return f"a step that worker {worker.rank} took alone{_WHERE[place]} left the weights as they were"
    for replay in replays:
        own = workers.get(-1 if replay.rank is None or replay.launch != launch.launch else replay.rank)
        if own is not None and replay.reason is None:
            found = next(_differences(trial, own, replay), None)
            if found is not None:
                return found
    return None


def alone_at(worker: WorkerSteps, place: Place) -> StepsAlone | None:
    """Return what came of the steps that a worker took alone at a place; None if it took none there."""
    if place is None:
        return worker.alone
    return worker.pause.alone if worker.pause else None


def _known(trial: Trial, worker: WorkerSteps, place: Place) -> bool:
    """Say whether it is known on which batch a worker took its last step: not of those that another process gives."""
    alone = alone_at(worker, place)
    drawn = trial.dataset is None or worker.drawn is not None
    return alone is not None and drawn and len(alone.weights) == _ALONE and None not in alone.weights


_LEFT_OUT = 1e-3
"""Of what the longer one of two steps changes: right ones change more."""
_LEAST_STEP = 2.0**-20
"""Of the length of the weights, of the longer one: rounding may swallow a shorter step."""


def _skips(worker: WorkerSteps, place: Place) -> bool:
    """Say whether one of a worker's last two steps alone changed nothing, and the other did."""
    alone = alone_at(worker, place)
    behind = [each for each in alone.weights if each is not None] if alone else []
    if len(behind) < _ALONE:
        return False
    moved = [math.hypot(*(array_distance(after, before, name) for name in after)) for before, after in pairwise(behind)]
    held = math.hypot(*(numbers[0] for numbers in behind[-1].values()))
    return min(moved) < _LEFT_OUT * max(moved) and max(moved) > _LEAST_STEP * held


def _differences(trial: Trial, worker: WorkerSteps, replay: Replay) -> Iterator[str]:
    alone, right = alone_at(worker, replay.place), replay.weights[0]
    own = _last_change(trial, alone)
    loss = replay.losses[0][worker.rank]
    if alone is None or own is None or not right:
        return
    what = f"the last step that worker {worker.rank} took alone{_WHERE[replay.place]}"
    if alone.loss is not None and loss is not None and abs(alone.loss - loss) > _OF_LOSS * abs(loss) + _LEAST_LOSS:
        yield f"{what} had a loss of {alone.loss:.6g}, and the same weights and batch have {loss:.6g}"
    if trial.optimizer.name != "sgd":
        return
    share = distance_of_updates(own, right)
    length = sum(numbers[1] ** 2 for numbers in right.values()) ** 0.5
    held = sum(numbers[0] ** 2 for numbers in right.values()) ** 0.5
    allowed = _OF_UPDATE.get(trial.precision, _OF_HALF_UPDATE) + (_OF_WEIGHTS * held / length if length else 0.0)
    if share > allowed:
        yield (
            f"{what} changed the weights by what is {100 * share:.2g} % away from the update of the same weights and "
            f"batch, and {100 * allowed:.2g} % are allowed"
        )


def _last_change(trial: Trial, alone: StepsAlone | None) -> ShortSketches | None:
    """Return the sketch of what the last of a worker's steps changed, less what momentum makes of the one before."""
    behind = [each for each in alone.weights if each is not None] if alone else []
    if len(behind) < _ALONE:
        return None
    first, before, last = behind
    momentum = trial.optimizer.momentum if trial.optimizer.name == "sgd" else 0.0
    return {
        name: [
            *last[name][: SUMS.start],
            *(
                c - b - momentum * (b - a)
                for a, b, c in zip(first[name][SUMS], before[name][SUMS], last[name][SUMS], strict=True)
            ),
        ]
        for name in last
    }
