"""How many launches of a trial suffice."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from steptime.results.records import Launch
from steptime.statistics.interval import LEVEL, from_log, t_quantile
from steptime.statistics.launch_times import LaunchTimes, launch_times
from steptime.statistics.shared_imports import one_of_each_import
from steptime.study.trial import Trial

_IN_A_ROW = 2
"""How many launches in a row must leave the half-width under the target."""


@dataclass(frozen=True)
class Decision:
    """Whether to stop, and the relative half-width that was reached; None with fewer than two launches."""

    stop: bool
    half_width: float | None


def suffices(trial: Trial, launches: Sequence[Launch], target: float) -> bool:
    """Say whether the launches of ``trial`` that ended well give its step time within ``target`` (0.01: 1 %).

    The study's least and greatest number of launches are the schedule's business.
    """
    return decide([(each.log_mean, each.mean_error) for each in reduced(trial, launches)], target).stop


def reduced(trial: Trial, launches: Sequence[Launch]) -> list[LaunchTimes]:
    """Return what ``launches`` of ``trial`` took, of those that timed a step; each is reduced once.

    Those of one import are one.
    """
    times = [_reduced(_Key(launch, trial.strategy)) for launch in launches if launch.status == "ok"]
    return one_of_each_import([each for each in times if each is not None])


def decide(located: Sequence[tuple[float, float]], target: float) -> Decision:
    """Decide from each launch's log step time and its standard error within the launch, in order.

    Looking after every launch and stopping at the first narrow interval prefers launches that lie close together by
    luck, and so ends with intervals that are too narrow: with 3 to 10 launches, 91 % of them hold the truth instead
    of 95 %. Two rules give most of that back (to 93 % at worst, 95 % where launches hardly differ): for this decision
    the spread between launches counts at least as much as the spread within them, and the target must have been
    reached after the launch before as well. tests/statistics/test_stopping_rule.py holds the rule to that.

    Args:
        located: one pair per launch.
        target: the relative half-width that is wanted.
    """
    count = len(located)
    widths = [_half_width(located[:each]) for each in range(max(2, count + 1 - _IN_A_ROW), count + 1)]
    stop = len(widths) == _IN_A_ROW and max(widths) < target
    return Decision(stop, widths[-1] if widths else None)


def _half_width(located: Sequence[tuple[float, float]]) -> float:
    centres, errors = np.array(located).T
    count = len(centres)
    spread = max(centres.std(ddof=1), float(np.sqrt(np.mean(errors**2))))
    return from_log(float(t_quantile(count - 1, LEVEL) * spread / np.sqrt(count))) - 1.0


class _Key:
    """A launch that can be looked up: its number identifies it."""

    def __init__(self, launch: Launch, strategy: str) -> None:
        self.launch = launch
        self.strategy = strategy
        self._identity = (launch.trial, launch.launch, launch.started_at, strategy)

    def __hash__(self) -> int:
        return hash(self._identity)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._identity == other._identity


# The schedule asks again after every launch of every trial, and a launch does not change.
@lru_cache(maxsize=1024)
def _reduced(key: _Key) -> LaunchTimes | None:
    (times,) = launch_times([key.launch], key.strategy)
    return times
