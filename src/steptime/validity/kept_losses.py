"""The losses that timed launches keep, and workers whose losses are all as the first weights make them.

Such a worker of parameter servers never pulls. A replay at weights that stay shows the losses that these make.
"""

from collections.abc import Iterator
from statistics import median

import numpy as np

from steptime.results.records import Launch, Replay, WorkerSteps
from steptime.study.trial import Trial

LEAST = 1e-4
"""Of a loss or an update, that is allowed where they differ."""
_OF_FIRST = 1e-3
"""Of the first loss, below which differences count as of a loss of this size."""


def steps_of(worker: WorkerSteps) -> int:
    """Return how many steps a worker took, with those ahead of the timed ones and in their pause."""
    return len(worker.warmup_ends_s) + 1 + len(worker.ends_s) + (worker.pause.steps if worker.pause else 0)


def step_of_pause(worker: WorkerSteps) -> int | None:
    """Return the step behind which a worker paused, counted from 1 in the warm-up; None if it did not, or alone."""
    pause = worker.pause
    return None if pause is None or pause.alone else len(worker.warmup_ends_s) + 1 + pause.behind


def losses_of(worker: WorkerSteps) -> Iterator[tuple[int, float]]:
    """Yield ``(step, loss)`` of what a worker kept, steps counted from 1 in the warm-up."""
    found = [*worker.losses, (len(worker.warmup_ends_s), worker.loss_first), (steps_of(worker), worker.loss_last)]
    found += [(step_of_pause(worker) or 0, worker.pause.loss)] if worker.pause else []
    yield from ((step, loss) for step, loss in found if loss is not None and step)


def scale(loss: float, first: float | None) -> float:
    """Return the loss that a difference is a share of, of a worker whose ``first`` loss is known or None."""
    return abs(loss) + _OF_FIRST * abs(first or 0.0) or 1.0


FROZEN = 2.0**-40
"""Times the learning rate, with which weights stay as they are: all losses are those of the first weights."""


def batches_are_given(trial: Trial, launch: Launch) -> bool:
    """Say whether another process gives batches to whichever worker is free, as TensorFlow's servers do."""
    return trial.dataset is not None and not any(worker.drawn for worker in launch.workers)


def stuck_worker(trial: Trial, launch: Launch, still: Replay) -> str | None:
    """Return what a worker shows that computes with the first weights all the time, while others go on; or None.

    Args:
        trial: of servers for which no worker waits.
        launch: a good timed launch of it.
        still: its replay with weights that stay.
    """
    if not batches_are_given(trial, launch):
        return _stays_behind(launch, still)
    return _repeats_first_losses(launch, still) or _stays_among_first_losses(launch, still)


_STAYED, _MOVED = 1e-4, 1e-2
"""Of a loss: within the first, a worker computed it with the first weights; beyond the second, most others did not."""
_FEWEST_STAYED = 2
"""Losses behind the first that are compared."""


def _stays_behind(launch: Launch, still: Replay) -> str | None:
    """Return the sentence about a worker that computes with the first weights all the time, while others go on."""
    shares: dict[int, list[float]] = {}
    for place, step in enumerate(still.steps):
        for worker in launch.workers if step > 1 else ():
            found, first = dict(losses_of(worker)).get(step), still.losses[place][worker.rank]
            if found is not None and first is not None:
                share = abs(found - first) / scale(first, still.losses[0][worker.rank])
                shares.setdefault(worker.rank, []).append(share)
    for rank, own in shares.items():
        others = [share for other, each in shares.items() if other != rank for share in each]
        if len(own) >= _FEWEST_STAYED and max(own) <= _STAYED and others and median(others) > _MOVED:
            return f"all losses of worker {rank} are those of its first weights, and the others' are not"
    return None


_FEWEST_GIVEN = 3
"""Losses of a worker behind its first, where it is not known of which batch each is."""
EVERY_STEP = 160
"""Steps of a replay with the first weights, each of whose losses is kept where it is not known of which batch it is."""
_SAME_LOSS, _FARTHER = 2e-6, 10.0
"""Of a loss, within which right runs compute that of one batch and the same weights; and times this, beyond which most
others are."""
_BY_CHANCE = 1e-5
"""How likely at most all of a worker's losses are by chance so close to some that the first weights make."""


def _repeats_first_losses(launch: Launch, still: Replay) -> str | None:
    """Return the sentence about a worker each of whose losses the first weights make of some batch, while others go on.

    Its losses are those behind half of the steps that were repeated one by one, since by then a worker has had none of
    later batches. Others may learn as little as they like: a loss of other weights is equal to one of these by chance.
    """
    whole = [step for place, step in enumerate(still.steps, 1) if step == place]
    made = np.array([loss for losses in still.losses[: len(whole)] for loss in losses if loss is not None])
    if not len(made):
        return None
    near = _SAME_LOSS * scale(float(made.max()), None)
    chance = min(1.0, 2.0 * near * len(made) / max(float(np.ptp(made)), near))
    apart = {
        worker.rank: [
            float(np.abs(made - loss).min()) for step, loss in losses_of(worker) if 1 < step <= len(whole) // 2
        ]
        for worker in launch.workers
    }
    for rank, own in apart.items():
        others = [distance for other, distances in apart.items() if other != rank for distance in distances]
        repeats = len(own) >= _FEWEST_GIVEN and max(own) <= near and chance ** len(own) <= _BY_CHANCE
        if repeats and others and median(others) > _FARTHER * near:
            return (
                f"the first weights make each of {len(own)} losses of worker {rank} of some batch, and "
                f"{sum(distance <= near for distance in others)} of {len(others)} of the others'"
            )
    return None


def _stays_among_first_losses(launch: Launch, still: Replay) -> str | None:
    """Return the sentence about a worker whose losses are all as the first weights make them, while others' are not.

    Another process gives the batches to whichever worker is free, so that losses are compared as a whole: all of a
    worker's lie where those of the first weights do, or half as far beside it, and what others come to lies farther
    off than these differ.
    """
    behind = [losses for step, losses in zip(still.steps, still.losses, strict=True) if step > 1]
    first = [loss for losses in behind for loss in losses if loss is not None]
    late = {worker.rank: [*_later_losses(worker)] for worker in launch.workers}
    if not first:
        return None
    low, high = min(first), max(first)
    reach = high - low + LEAST * scale(high, high)
    for rank, own in late.items():
        others = [loss for other, losses in late.items() if other != rank for loss in losses[len(losses) // 2 :]]
        stays = all(low - 0.5 * reach <= loss <= high + 0.5 * reach for loss in own)
        if len(own) >= _FEWEST_GIVEN and stays and others and not low - reach <= median(others) <= high + reach:
            return (
                f"all losses of worker {rank} ({min(own):.3g} to {max(own):.3g}) are as its first weights "
                f"make them ({low:.3g} to {high:.3g}), and the others' are not ({median(others):.3g} in the median)"
            )
    return None


def _later_losses(worker: WorkerSteps) -> Iterator[float]:
    """Yield the losses of a worker behind its first step, in their order."""
    yield from (loss for step, loss in sorted(losses_of(worker)) if step > 1)
    if worker.alone is not None and worker.alone.loss is not None:
        yield worker.alone.loss
