"""Whether timed launches trained what they were to train, by what they recorded beside their times.

The equivalence check runs launches of its own, which say nothing of a step that is skipped, cached or not exchanged
where it is timed. The workers of a launch are compared with each other, and a launch with its ``Replay``; trials of one
group by ``verdicts.deviating``.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from steptime.catalog.choices import strategy_named
from steptime.results.records import Launch, Replay, ShortSketches, WorkerSteps
from steptime.study.trial import Trial
from steptime.validity.kept_losses import (
    FROZEN,
    LEAST,
    losses_of,
    scale,
    step_of_pause,
    steps_of,
    stuck_worker,
)
from steptime.validity.server_updates import unshared_updates
from steptime.validity.short_sketches import UPDATE, array_distance, distance_of_updates
from steptime.validity.steps_alone import other_steps_alone

WRONG = "its timed launches train something else"


def own_mistake(trial: Trial, launch: Launch) -> str | None:
    """Return what a good timed launch shows against itself, or None."""
    workers = sorted(launch.workers, key=lambda worker: worker.rank)
    for worker in workers:
        steps = steps_of(worker)
        if worker.samples is not None and worker.samples != trial.batch_per_worker:
            return f"{WRONG}: worker {worker.rank} trained on batches of {worker.samples}, not {trial.batch_per_worker}"
        if worker.drawn is not None and worker.drawn < steps:
            return f"{WRONG}: worker {worker.rank} took {worker.drawn} batches in {steps} steps"
    strategy = strategy_named(trial.strategy)
    if strategy.answer == "any_order":
        momentum = trial.optimizer.momentum if trial.optimizer.name == "sgd" else 0.0
        reason = unshared_updates(workers, momentum)
        return reason and f"{WRONG}: {reason}"
    return _apart(workers) if strategy.synchronous and strategy.exact else None


def mistake(trial: Trial, launches: Sequence[Launch], replays: Sequence[Replay]) -> str | None:
    """Return what good timed launches of a trial show against it, by themselves or beside its replays; or None."""
    for launch in launches:
        alone = other_steps_alone(trial, launch, replays)
        found = own_mistake(trial, launch) or differs_from_replay(trial, launch, replays)
        if found := found or (alone and f"{WRONG}: {alone}"):
            return found if len(launches) == 1 else f"{found} (launch {launch.launch + 1})"
    return None


_COPIES = 1e-3
"""Of the update, by which weights may be apart that all workers hold."""
_COPIES_OF_ARRAY = 0.02
_COPIES_OF_WEIGHTS = 2.0**-18


def _apart(workers: Sequence[WorkerSteps]) -> str | None:
    """Return the sentence about a worker whose weights are not those of the first, as they are in such strategies."""
    held = [(worker.rank, worker.weights[0]) for worker in workers if worker.weights and worker.weights[0]]
    for rank, own in held[1:]:
        first = held[0][1] or {}
        if own is None or own.keys() != first.keys():
            continue
        share = distance_of_updates(own, first)
        arrays = [
            name
            for name in own
            if array_distance(own, first, name) > _COPIES_OF_ARRAY * first[name][UPDATE]
            and array_distance(own, first, name) > _COPIES_OF_WEIGHTS * first[name][0]
        ]
        if share > _COPIES or arrays:
            which = f" ({', '.join(arrays[:3])})" if arrays else ""
            return (
                f"{WRONG}: after its last step worker {rank} has other weights than worker {held[0][0]}, "
                f"{100 * share:.2g} % of their update apart{which}"
            )
    return None


_SAME = 1e-5
"""Of a loss or an update: launches of one framework that take the same steps differ by less, or by what nudged runs
differ."""
_EQUAL = 1e-9
"""Likewise, of launches that compute the same to the last digit."""
_NUDGED = 16.0
"""Times the spread of nudged runs, that is allowed."""
_UNKNOWN = 0.5
"""Of a loss or an update: where so much would be allowed, nothing is claimed by the spread."""
REPEATS = 3
"""Replays without a nudge that must agree with each other before a framework counts as one that repeats itself."""


def differs_from_replay(trial: Trial, launch: Launch, replays: Sequence[Replay]) -> str | None:
    """Return the sentence about the first step at which a launch is not what its replay is, or None.

    A launch differs where its first update does, of which nothing has grown yet; where it is farther away than nudged
    runs lead; or where it was equal to the last digit behind earlier steps and then is not, of a framework whose
    replays are equal to the end.

    Args:
        trial: the one of all that follows.
        launch: a good timed launch.
        replays: those that are nudged tell how much is allowed; without them every difference counts,
            and whoever asks repeats the replay, with nudges and without.
    """
    workers = sorted(launch.workers, key=lambda worker: worker.rank)
    whole = [replay for replay in replays if replay.reason is None and replay.rank is None]
    same = _repeating(workers, [replay for replay in whole if replay.nudge == 1.0])
    nudged = [replay for replay in whole if replay.nudge not in (1.0, FROZEN)]
    if not strategy_named(trial.strategy).synchronous:
        still = next((replay for replay in reversed(whole) if replay.nudge == FROZEN), None)
        stuck = still and stuck_worker(trial, launch, still)
        return f"{WRONG}: {stuck}" if stuck else _other_first_updates(trial, workers, same, nudged)
    if not same:
        return None
    nudged = [replay for replay in nudged if replay.steps == same[0].steps]
    return (
        _other_batches(workers, same[0])
        or _other_first_updates(trial, workers, same, nudged)
        or _first_deviation(workers, same, nudged)
    )


def _first_deviation(workers: Sequence[WorkerSteps], same: Sequence[Replay], nudged: Sequence[Replay]) -> str | None:
    """Return the sentence about the first step whose losses or weights are farther from the replay than is allowed."""
    right = same[0]
    repeats_itself = len(same) >= REPEATS and all(_agree(replay, right) for replay in same[1:])
    losses, weights = (_Allowance(right, nudged, distance) for distance in (_loss_distance, _weight_distance))
    equal = 0
    for place, step in enumerate(right.steps):
        losses.widen(place)
        weights.widen(place)
        sure = repeats_itself and equal > 1  # the first loss is that of the first weights, whatever follows
        loss = _loss_difference(workers, right, place)
        if loss and losses.is_exceeded(loss, sure=sure):
            return f"{WRONG}: {loss.sentence}, and {losses.sentence(equal, sure=sure)}"
        if loss is None or loss.share <= _EQUAL:
            equal = step
        update = _weight_difference(workers, right, place)
        if update and weights.is_exceeded(update, sure=sure):
            return f"{WRONG}: {update.sentence}, and {weights.sentence(equal, sure=sure)}"
    return None


def _repeating(workers: Sequence[WorkerSteps], replays: Sequence[Replay]) -> list[Replay]:
    """Return the replays of the same steps that lead to a launch's end, or else the last ones: runs add others."""
    if not replays:
        return []
    end = steps_of(workers[0]) if workers else 0
    last = next((each for each in reversed(replays) if end in each.steps), replays[-1])
    return [each for each in replays if each.steps == last.steps]


@dataclass(frozen=True)
class _Deviation:
    share: float
    sentence: str


def _agree(one: Replay, other: Replay) -> bool:
    return one.steps == other.steps and all(
        max(_loss_distance(one, other, place), _weight_distance(one, other, place)) <= _SAME
        for place in range(len(other.steps))
    )


class _Allowance:
    """How far a loss or an update may be from its replay: as far as nudged runs have led until then."""

    def __init__(
        self, right: Replay, nudged: Sequence[Replay], distance: Callable[[Replay, Replay, int], float]
    ) -> None:
        """Measure how far ``nudged`` runs are from ``right`` by ``distance``."""
        self._right, self._nudged, self._distance = right, nudged, distance
        self._spread = 0.0

    def widen(self, place: int) -> None:
        """Go on to a step of the replay."""
        self._spread = max([self._spread, *(self._distance(run, self._right, place) for run in self._nudged)])

    def is_exceeded(self, deviation: _Deviation, *, sure: bool) -> bool:
        """Whether a deviation is more than is allowed; ``sure``: of a framework that repeats itself."""
        return deviation.share > (LEAST if sure else self._share())

    def sentence(self, equal: int, *, sure: bool) -> str:
        """Return what was allowed; launch and replay were equal up to the step ``equal``."""
        return f"were equal up to step {equal}" if sure else f"{100 * self._share():.2g} % are allowed"

    def _share(self) -> float:
        """Return which share may differ; infinite where nudged runs differ too much for a claim."""
        allowed = max(LEAST, _NUDGED * self._spread) if self._nudged else _SAME
        return math.inf if allowed > _UNKNOWN else allowed


def _loss_difference(workers: Sequence[WorkerSteps], right: Replay, place: int) -> _Deviation | None:
    """Return the largest of a step; None of steps whose losses were not kept."""
    step, found = right.steps[place], []
    for worker, loss, first in zip(workers, right.losses[place], right.losses[0], strict=False):
        own = dict(losses_of(worker)).get(step)
        if own is not None and loss is not None:
            sentence = (
                f"after {step} steps worker {worker.rank} had a loss of {own:.6g}, the same steps without timers "
                f"lead to {loss:.6g}"
            )
            found.append(_Deviation(abs(own - loss) / scale(loss, first), sentence))
    return max(found, key=lambda each: each.share, default=None)


def _weight_difference(workers: Sequence[WorkerSteps], right: Replay, place: int) -> _Deviation | None:
    """Return that of the first worker behind its last step or the one ahead of its pause; None of other steps."""
    step, weights = right.steps[place], right.weights[place]
    own = _sketches_of(workers[0]).get(step) if workers else None
    if not own or not weights:
        return None
    share = distance_of_updates(own, weights)
    return _Deviation(
        share,
        f"after {step} steps their weights are {100 * share:.2g} % of the update away from those of the same steps "
        "without timers",
    )


def _sketches_of(worker: WorkerSteps) -> dict[int | None, ShortSketches | None]:
    """Return the sketches of a worker that waits for the others, by the step behind which it made them."""
    of_pause = {step_of_pause(worker): worker.pause.weights} if worker.pause else {}
    return {**of_pause, steps_of(worker): worker.weights[0] if worker.weights else None}


_OF_FIRST_UPDATE = 5e-5
"""Of its length: right runs are equal, or less than 1e-5 apart; gradients that travelled in half precision are about
1.8e-4 apart, the error of rounding to steps of 2^-10 between two powers of two."""
_OF_FIRST_TURNS = 1e-3
"""Likewise, behind several turns: what rounding makes of the first gradients has begun to grow."""
_NUDGED_FIRST = 4.0
"""Times the distance of nudged first updates, which is the largest nudge: no rounding has grown yet."""


def _other_first_updates(
    trial: Trial, workers: Sequence[WorkerSteps], same: Sequence[Replay], nudged: Sequence[Replay]
) -> str | None:
    """Return the sentence about a first update that is not that of the replays; None if little is known of both.

    Of workers that do not wait for each other, those behind first steps in turn, of which each gradient was computed
    with known weights and was to be applied once.
    """
    strategy = strategy_named(trial.strategy)
    if not workers or (strategy.synchronous and not strategy.exact):
        return None
    for turn, own in enumerate(workers[0].first_turns or [workers[0].first_update]):
        alike = [
            replay
            for replay in [*same, *nudged]
            if len(replay.weights) > turn and (strategy.synchronous or _began_alike(trial, workers, replay, turn))
        ]
        if not own or not alike or alike[0].steps[0] != 1 or not alike[0].weights[turn]:
            continue
        share = distance_of_updates(own, alike[0].weights[turn] or {})
        spread = max(_weight_distance(replay, alike[0], turn) for replay in alike)
        allowed = max(_OF_FIRST_TURNS if turn else _OF_FIRST_UPDATE, _NUDGED_FIRST * spread)
        if share > allowed:
            which = f"update after {turn * len(workers) + 1} steps in turn" if turn else "first update"
            return (
                f"{WRONG}: their {which} is {100 * share:.2g} % away from that of the same step without timers, and "
                f"{100 * allowed:.2g} % are allowed"
            )
    return None


def _began_alike(trial: Trial, workers: Sequence[WorkerSteps], replay: Replay, turn: int) -> bool:
    """Say whether the steps of a turn had the batches of a replay, by the losses behind the first ones.

    Where another process draws the batches, it gives them to whichever worker is free, in TensorFlow's servers.
    """
    if turn and trial.dataset is not None and workers[0].drawn is None:
        return False
    pairs = [(dict(losses_of(worker)).get(1), loss) for worker, loss in zip(workers, replay.losses[0], strict=False)]
    return all(
        own is not None and loss is not None and abs(own - loss) <= LEAST * scale(loss, loss)
        for own, loss in (pairs if turn else pairs[:1])
    )


def _other_batches(workers: Sequence[WorkerSteps], right: Replay) -> str | None:
    for worker, batches in zip(workers, right.batches, strict=False):
        known = {number: rest for number, *rest in batches}
        for number, *rest in worker.batches:
            if known.get(number, rest) != rest:
                return f"{WRONG}: batch {number} of worker {worker.rank} has other samples than without timers"
    return None


def _loss_distance(nudged: Replay, right: Replay, place: int) -> float:
    """Return how far a nudged run's losses are away at a place, of all workers, as a share of the loss."""
    pairs = zip(nudged.losses[place], right.losses[place], right.losses[0], strict=True)
    return max(
        (
            math.inf if one is None or other is None else abs(one - other) / scale(other, first)
            for one, other, first in pairs
        ),
        default=0.0,
    )


def _weight_distance(nudged: Replay, right: Replay, place: int) -> float:
    own, other = nudged.weights[place], right.weights[place]
    return distance_of_updates(own, other) if own and other else 0.0


_EARLY = 8
"""Steps, or those of the warm-up if they are more, behind which losses of other frameworks are compared."""


@dataclass(frozen=True)
class EarlyLosses:
    """The losses of a trial's launches behind their first steps."""

    trial: Trial
    by_steps: Mapping[int, Sequence[tuple[float, ...]]]
    """By the number of steps, the losses of each launch, in the order of ranks."""


def early_losses(trial: Trial, launches: Sequence[Launch]) -> EarlyLosses:
    """Return those of ``launches`` in which every worker kept a loss."""
    found: dict[int, list[tuple[float, ...]]] = {}
    for launch in launches:
        workers = sorted(launch.workers, key=lambda worker: worker.rank)
        kept = [dict(losses_of(worker)) for worker in workers]
        for step in set.intersection(*map(set, kept)) if kept else ():
            if step <= max(_EARLY, len(workers[0].warmup_ends_s)):
                found.setdefault(step, []).append(tuple(own[step] for own in kept))
    return EarlyLosses(trial, found)
