"""How a model did on measurements that were left out of its fit, and by how much its intervals are wider for it.

Where some of them lie outside their intervals, the model errs by more than its draws, its launches and its distance
from what was measured explain. Its predictions are given the error with which the intervals would have held nine of ten
of them, on the scale of logarithms and independent of the rest.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import exp, log, sqrt

from steptime.fitting.profile import ProfileGroup
from steptime.results.json_form import Interval

_HALF_WIDTH = 1.645
"""Standard deviations from the middle of an interval of 90 % to its ends."""
_LITTLE = 1.1
_MOST_LOG = 700.0
"""Whose exponential is a number."""
_ALLOWED = 10
"""Of so many held-out measurements one may lie outside an interval of 90 %."""


@dataclass(frozen=True)
class HeldOutTest:
    """How a model predicted the measurements that were left out of its fit, one after the other."""

    points: int
    outside: int
    """Of them, outside their interval of 90 %."""
    farthest: float | None
    """The largest ratio between one of these and the end of its interval that it lies beyond; None without any."""
    deviation: float
    """Standard deviation of a logarithm; where it is added, the intervals hold nine of ten points."""
    elsewhere: "HeldOutTest | None" = None
    """Without points: how it did on one worker where several were asked for, or on several; None if it has neither."""

    @property
    def doubt(self) -> str:
        """What it leaves to doubt, as a clause about the model; empty where all points lay inside."""
        if not self.points:
            return (
                "not tested on held-out points" if self.elsewhere is None else "tested on other numbers of workers only"
            )
        return "" if self.farthest is None else f"{self.outside} of {self.points} held-out points outside its interval"

    def in_words(self) -> str:
        """Return it as a sentence."""
        if not self.points:
            other = self.elsewhere
            if other is None:
                return "The model was not tested on held-out points."
            return f"The model was tested on other numbers of workers: {other.outside} of {other.points} lay outside."
        one = self.points == 1
        if self.farthest is None:
            which = "The one held-out measurement" if one else f"All {self.points} held-out measurements"
            return f"{which} lay inside this model's interval."
        which = "The one held-out measurement" if one else f"{self.outside} of {self.points} held-out measurements"
        return f"{which} lay outside this model's interval (by {'' if one else 'up to '}{_beyond(self.farthest)})."


def _beyond(ratio: float) -> str:
    """Return how far a measurement lies beyond an end: a little of it in percent, more as a factor."""
    return f"{100.0 * (ratio - 1.0):.2g} %" if ratio < _LITTLE else f"{ratio:.3g} times"


def held_out_test(group: ProfileGroup, workers: int) -> HeldOutTest:
    """Return how the model of a group did on what was left out of its fit: one worker, or several as ``workers`` are.

    One worker exchanges nothing, so that neither tells of the other.
    """
    alike, others = (
        judged(
            (each.measured_s, Interval(each.predicted.value_s, each.predicted.low_s, each.predicted.high_s))
            for each in group.held_out
            if ((each.workers == 1) == (workers == 1)) is wanted
        )
        for wanted in (True, False)
    )
    return alike if alike.points or not others.points else replace(alike, elsewhere=others)


def judged(points: Iterable[tuple[float, Interval[float, float]]]) -> HeldOutTest:
    """Return how intervals did that were predicted without the measurements beside them."""
    count, beyond, missing = 0, [], []
    for measured, predicted in points:
        count += 1
        if predicted.low <= measured <= predicted.high:
            continue
        end = predicted.high if measured > predicted.high else predicted.low
        off, half = log(measured) - log(predicted.value), log(end) - log(predicted.value)
        beyond.append(exp(min(abs(log(measured) - log(end)), _MOST_LOG)))
        missing.append(sqrt(max(off**2 - half**2, 0.0)) / _HALF_WIDTH)
    counted = sorted(missing, reverse=True)[count // _ALLOWED :]
    return HeldOutTest(count, len(beyond), max(beyond, default=None), max(counted, default=0.0))
