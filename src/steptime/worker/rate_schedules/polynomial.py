"""The polynomial schedule: a power of the share that is left, linear by default."""

from steptime.worker.rate_schedules.moment import MINIMUM, ScheduleParameter


def polynomial(moment, power, minimum):
    """Return minimum + (1 - minimum) * (1 - share) ** power, where ``share`` of the training is over."""
    return minimum + (1.0 - minimum) * (1.0 - moment.share) ** power


POLYNOMIAL = {"power": ScheduleParameter(1.0, 0.01, 100.0), "minimum": MINIMUM}
