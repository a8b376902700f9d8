"""The one-cycle schedule (Smith, Topin 2018): up to the learning rate and down to nearly nothing, by cosines."""

import math

from steptime.worker.rate_schedules.moment import ScheduleParameter


def one_cycle(moment, rise, start_factor, end_factor):
    """Return the factor of one cycle over all steps.

    Args:
        moment: the moment.
        rise: the share of the steps in which the rate rises to the learning rate.
        start_factor: of the learning rate in the first step.
        end_factor: of the learning rate in the last step.
    """
    top, last = rise * moment.steps - 1.0, moment.steps - 1.0
    if moment.step <= top:
        return _between(start_factor, 1.0, moment.step / top if top > 0.0 else 1.0)
    return _between(1.0, end_factor, min(1.0, (moment.step - top) / max(last - top, 1e-9)))


ONE_CYCLE = {
    "rise": ScheduleParameter(0.3, 0.01, 0.99),
    "start_factor": ScheduleParameter(1 / 25.0, 1e-6, 1.0),
    "end_factor": ScheduleParameter(1 / 250000.0, 0.0, 1.0),
}


def _between(first, last, share):
    return last + (first - last) * (1.0 + math.cos(math.pi * share)) / 2.0
