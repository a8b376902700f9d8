"""Whether the workers of servers share their updates: those that the servers counted, and what turns at the end show.

At its end each worker takes steps in turn with the others, and notes the weights that it sees behind them.
"""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from steptime.results.records import ShortSketches, WorkerSteps
from steptime.validity.short_sketches import SUMS, distance_of_updates

_FAR, _SHARE = 4.0, 0.05
"""Times what a worker sees change from its own turn to its next, and of the whole update: weights that two workers see
one step after another are not so far apart."""
_COUNTED = 0.9
"""Of a worker's steps, that have an update which servers counted."""
_LEAST_CHANGE = 3e-4
"""Of what gradients of the others change: what a worker's at least change."""
_Turns = list[tuple[int, ShortSketches]]
"""Ranks of workers that took steps in turn, with the sketches of the weights that each saw behind its own."""


def unshared_updates(workers: Sequence[WorkerSteps], momentum: float) -> str | None:
    """Return the sentence about workers of servers whose steps do not reach the others, or who see none of theirs."""
    if len(workers) < 2 or not all(worker.weights for worker in workers):  # noqa: PLR2004 - one has no others
        return None
    if sentence := _uncounted_updates(workers):
        return sentence
    turns = _turns(workers)
    if turns is None:
        return None
    return _unseen_updates(turns, len(workers)) or _gradients_without_effect(turns, momentum)


def _uncounted_updates(workers: Sequence[WorkerSteps]) -> str | None:
    for worker in workers:
        updates, steps = sum((worker.staleness or {}).values()), len(worker.ends_s)
        if worker.staleness is not None and updates < _COUNTED * steps:
            return f"the servers counted {updates} updates in {steps} steps of worker {worker.rank}"
    return None


def _turns(workers: Sequence[WorkerSteps]) -> _Turns | None:
    """Return the turns at the end of a launch; None of fewer than two rounds, or if one has no sketches."""
    rounds = min(len(worker.weights) for worker in workers)
    seen = [(worker.rank, worker.weights[number]) for number in range(rounds) for worker in workers]
    turns = [(rank, sketches) for rank, sketches in seen if sketches is not None]
    return turns if len(turns) == len(seen) and rounds > 1 else None


def _unseen_updates(turns: _Turns, count: int) -> str | None:
    """Return the sentence about two workers in a row with weights farther apart than one's own in ``count`` turns."""
    own_change = max(
        (distance_of_updates(after, before) for (_, before), (_, after) in zip(turns, turns[count:], strict=False))
    )
    for (before_rank, before), (rank, after) in pairwise(turns):
        share = distance_of_updates(after, before)
        if share > max(_SHARE, _FAR * own_change):
            return (
                f"one step apart the workers {before_rank} and {rank} had other weights, {100 * share:.2g} % "
                f"of their update apart, and from turn to turn those of a worker change by {100 * own_change:.2g} %"
            )
    return None


def _gradients_without_effect(turns: _Turns, momentum: float) -> str | None:
    """Return the sentence about a worker whose gradients change nothing.

    What two turns in a row change, less ``momentum`` times what the one before changed, is what the gradient of the
    latter changes.
    """
    moved: dict[int, list[float]] = {}
    for (_, first), (_, before), (rank, after) in zip(turns, turns[1:], turns[2:], strict=False):
        continued = {name: _continued_change(first[name], before[name], momentum) for name in before}
        moved.setdefault(rank, []).append(distance_of_updates(after, continued))
    for rank, own in moved.items():
        others = [share for other, shares in moved.items() if other != rank for share in shares]
        if others and max(own) < _LEAST_CHANGE * median(others):
            return f"the gradients of worker {rank} change nothing of the weights that the servers hold"
    return None


def _continued_change(first: Sequence[float], before: Sequence[float], momentum: float) -> list[float]:
    """Return the sketch of weights that go on from ``before`` by their momentum alone."""
    sums = [now + momentum * (now - then) for then, now in zip(first[SUMS], before[SUMS], strict=True)]
    return [*before[: SUMS.start], *sums]
