"""Whether the last step that an asynchronous worker took without the others is what its weights and batch lead to.

Between such steps the weights are the worker's own alone, so that what one of them changes can be repeated from the
weights ahead of it. Which worker's is repeated is drawn when its launch is over.
"""

from collections.abc import Iterator, Sequence

from steptime.catalog.choices import strategy_named
from steptime.errors import PluginError, WorkloadError
from steptime.results.records import Launch, Replay, ShortSketches, WorkerSteps
from steptime.study.trial import Trial
from steptime.validity.short_sketches import SUMS, distance_of_updates

_OF_UPDATE = {"fp32": 0.02}
_OF_HALF_UPDATE = 0.1
"""Of an update, by which right ones differ at most: rounding, and the momentum that is taken off."""
_OF_WEIGHTS = 2.0**-20
"""Of the length of the weights, to whose last digits updates are rounded."""
_OF_LOSS, _LEAST_LOSS = 1e-3, 1e-4
"""By how much right losses differ at most: a share, and what rounding makes of one that is nearly zero."""
_ALONE = 3


def can_repeat(trial: Trial) -> bool:
    """Say whether such a step can be repeated: on this host, from arrays by name, without masks that are drawn."""
    asynchronous = strategy_named(trial.strategy).answer == "any_order"
    if not asynchronous or trial.workers == 1 or trial.own or trial.container or trial.cluster or trial.training:
        return False
    try:
        return not any(layer.kind == "dropout" for layer in trial.build().layers)
    except (WorkloadError, PluginError):
        return False


def with_steps_alone(trial: Trial, launches: Sequence[Launch]) -> list[Launch]:
    """Return the launches of which such a step can be repeated."""
    return [each for each in launches if can_repeat(trial) and any(_known(trial, own) for own in each.workers)]


def repeatable(trial: Trial, launch: Launch) -> list[WorkerSteps]:
    """Return the workers of a launch whose step can be repeated."""
    return [each for each in launch.workers if _known(trial, each)]


def unrepeated(trial: Trial, launches: Sequence[Launch], replays: Sequence[Replay]) -> list[Launch]:
    """Return the launches of which no such step was repeated."""
    done = {each.launch for each in replays if each.rank is not None and each.reason is None}
    return [each for each in with_steps_alone(trial, launches) if each.launch not in done]


def other_steps_alone(trial: Trial, launch: Launch, replays: Sequence[Replay]) -> str | None:
    """Return the sentence about the first repeated step of a launch that changed something else; or None."""
    workers = {each.rank: each for each in launch.workers}
    for replay in replays:
        worker = workers.get(-1 if replay.rank is None or replay.launch != launch.launch else replay.rank)
        if worker is not None and replay.reason is None:
            return next(_differences(trial, worker, replay), None)
    return None


def _known(trial: Trial, worker: WorkerSteps) -> bool:
    """Say whether it is known on which batch a worker took its last step: not of those that another process gives."""
    alone = worker.alone
    drawn = trial.dataset is None or worker.drawn is not None
    return alone is not None and drawn and len(alone.weights) == _ALONE and None not in alone.weights


def _differences(trial: Trial, worker: WorkerSteps, replay: Replay) -> Iterator[str]:
    alone, own, right = worker.alone, _last_change(trial, worker), replay.weights[0]
    loss = replay.losses[0][worker.rank]
    if alone is None or own is None or not right:
        return
    what = f"the last step that worker {worker.rank} took alone"
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


def _last_change(trial: Trial, worker: WorkerSteps) -> ShortSketches | None:
    """Return the sketch of what a worker's last step alone changed, less what momentum makes of the one before."""
    behind = [each for each in worker.alone.weights if each is not None] if worker.alone else []
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
