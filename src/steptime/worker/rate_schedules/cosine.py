"""Cosine annealing, once over the whole training or with warm restarts (Loshchilov, Hutter 2017)."""

import math

from steptime.worker.rate_schedules.moment import MINIMUM, ScheduleParameter


def cosine(moment, minimum):
    """Return half a period of the cosine, from 1 to ``minimum`` at the end of the training."""
    return _annealed(moment.share, minimum)


COSINE = {"minimum": MINIMUM}


def cosine_restarts(moment, first_epochs, multiplier, minimum):
    """Return half a period of the cosine again and again: over ``first_epochs``, then ``multiplier`` times as long."""
    start, length = 0.0, float(first_epochs * moment.steps_per_epoch)
    while moment.step >= start + length:
        start, length = start + length, length * multiplier
    return _annealed((moment.step - start) / length, minimum)


COSINE_RESTARTS = {
    "first_epochs": ScheduleParameter(10, 1, 1e5, whole=True),
    "multiplier": ScheduleParameter(2, 1, 10, whole=True),
    "minimum": MINIMUM,
}


def _annealed(share, minimum):
    return minimum + (1.0 - minimum) * (1.0 + math.cos(math.pi * share)) / 2.0
