"""Schedules that hold a rate for whole epochs, and the exponential one."""

from steptime.worker.rate_schedules.moment import ScheduleParameter

_EPOCHS = 1e5


def constant(moment):  # noqa: ARG001 - every schedule takes a moment
    """Return 1."""
    return 1.0


def step(moment, every_epochs, factor):
    """Return ``factor`` to the power of the whole periods of ``every_epochs`` since the training began."""
    return factor ** (moment.epoch // every_epochs)


STEP = {"every_epochs": ScheduleParameter(10, 1, _EPOCHS, whole=True), "factor": ScheduleParameter(0.1, 1e-6, 1.0)}


def multi_step(moment, at_epochs, factor):
    """Return ``factor`` to the power of those epochs of ``at_epochs`` that the training has reached.

    He et al. 2016 divide by ten after 30 and 60 of 90 epochs, which are the defaults in thirds of 30.
    """
    return factor ** sum(moment.epoch >= milestone for milestone in at_epochs)


MULTI_STEP = {
    "at_epochs": ScheduleParameter((10, 20), 1, _EPOCHS, whole=True, listed=True),
    "factor": ScheduleParameter(0.1, 1e-6, 1.0),
}


def exponential(moment, factor):
    """Return ``factor`` to the power of the epochs since the end of the warm-up; it falls in every step."""
    return factor**moment.epochs


EXPONENTIAL = {"factor": ScheduleParameter(0.9, 1e-6, 1.0)}
