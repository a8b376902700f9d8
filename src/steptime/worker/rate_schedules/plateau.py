"""Reduction on a plateau: a rate that falls where the validation loss does not."""

from steptime.worker.rate_schedules.moment import MINIMUM, ScheduleParameter


def plateau(moment, factor, patience, threshold, minimum):
    """Return the factor behind the epochs whose validation losses the moment has.

    An epoch is better whose loss is below (1 - threshold) times the best so far. After more than ``patience`` epochs
    in a row that are not, the rate is multiplied by ``factor``, and the epochs are counted anew.
    """
    best, waited, current = float("inf"), 0, 1.0
    for loss in moment.losses:
        if loss < best * (1.0 - threshold):
            best, waited = loss, 0
        else:
            waited += 1
        if waited > patience:
            current, waited = max(current * factor, minimum), 0
    return current


PLATEAU = {
    "factor": ScheduleParameter(0.1, 1e-6, 0.999),
    "patience": ScheduleParameter(3, 0, 1e5, whole=True),
    "threshold": ScheduleParameter(1e-4, 0.0, 1.0),
    "minimum": MINIMUM,
}
