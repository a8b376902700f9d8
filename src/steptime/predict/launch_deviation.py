"""By how much launches of a predicted configuration differ: as much as those that were measured did."""

from collections.abc import Sequence
from math import log, log2, sqrt

import scipy  # type: ignore[import-untyped]  # scipy ships no types; its modules are imported when used

from steptime.catalog.choices import strategy_named
from steptime.fitting.fit import USUAL_LAUNCH_SPREAD
from steptime.fitting.posterior import LEVEL
from steptime.fitting.profile import MeasuredConfiguration, ProfileGroup
from steptime.predict.topology import Refusal
from steptime.statistics.interval import t_quantile

_SURE = 0.95
"""How sure it must be that launches of several workers differ more than those of other configurations do."""


_SEVERAL_STATES = log(2.0) / sqrt(2.0)
"""Standard deviation of the logarithms of launches of which one takes twice the time of the other."""


_KNOWN_LAUNCHES = 5
"""That say how often each state occurs, so that the interval holds all of them."""


_BOTH_STATES = 6
"""Launches that show both of two equal states in 97 of 100 profiles."""


_HALF_WIDTH = 1.645
"""Standard deviations from the middle of an interval of 90 % to its ends."""


def launch_spread(group: ProfileGroup, workers: int) -> float:
    """Return the relative standard deviation of launches of so many workers.

    It is that of all launches. Where those of the most workers that were measured surely differ more than those of one
    worker, by the ratio of their variances (R. Fisher's F), it is theirs, as large as it takes for the interval to hold
    every one of them, and as much is added with each doubling of workers beyond.

    Raises Refusal where a few launches differ so much that they were in different states.
    """
    several = _of_most_workers(group)
    if workers == 1 or not several:
        return group.spread
    most = several[0].deployment.workers
    for each in several:
        if each.launches < _KNOWN_LAUNCHES and _deviation(each) > _SEVERAL_STATES:
            message = (
                f"{each.launches} launches of {most} workers differ by more than a factor of two, and do not say which "
                f"of their states {workers} workers take; measure more: steptime run STUDY "
                f"launches.min={2 * _KNOWN_LAUNCHES} -o RESULTS"
            )
            raise Refusal(message)
    single = [each for each in group.measured if each.deployment.workers == 1 and each.launches > 1]
    alone, together = _pooled(single) or (USUAL_LAUNCH_SPREAD, 1), _pooled(several)
    if together is None or not _surely_wider(together, alone):
        return group.spread
    furthest = max(_furthest(each.launches) for each in several)
    spread = together[0] * max(1.0, furthest / _HALF_WIDTH)
    growth = max(spread - alone[0], 0.0) * max(log2(workers / most), 0.0) / log2(most)
    return max(group.spread, spread + growth)


def unknown_states(group: ProfileGroup, workers: int) -> str | None:
    """Return the sentence about launches too few to show that workers who do not wait for each other have two states.

    All of n launches are in one of two equal states with a probability of ``2^(1-n)``.
    """
    several = _of_most_workers(group)
    fewest = min((each.launches for each in several), default=_BOTH_STATES)
    if workers == 1 or strategy_named(group.key.strategy).synchronous or fewest >= _BOTH_STATES:
        return None
    return (
        f"{fewest} launches of {several[0].deployment.workers} workers do not tell whether steps have two states, as "
        f"some of servers have: launches.min={_BOTH_STATES}"
    )


def _of_most_workers(group: ProfileGroup) -> list[MeasuredConfiguration]:
    own = [each for each in group.measured if each.strategy == group.key.strategy and each.launches > 1]
    most = max((each.deployment.workers for each in own), default=1)
    return [each for each in own if each.deployment.workers == most > 1]


def _furthest(launches: int) -> float:
    """Return how many standard deviations one of so many values may be from their mean.

    P. Samuelson, *How deviant can you be?*, JASA 63 (1968) 1522.
    """
    return (launches - 1) / sqrt(launches)


def _surely_wider(one: tuple[float, int], other: tuple[float, int]) -> bool:
    """Say whether a standard deviation is larger than another, each with its degrees of freedom."""
    return (one[0] / max(other[0], 1e-12)) ** 2 > float(scipy.special.fdtri(one[1], other[1], _SURE))


def _deviation(each: MeasuredConfiguration) -> float:
    """Return the standard deviation of the logarithms of launches, of which the interval of their mean is known."""
    half = log(each.high_s / each.low_s) / 2
    return half * sqrt(each.launches) / float(t_quantile(each.launches - 1, LEVEL))


def _pooled(measured: Sequence[MeasuredConfiguration]) -> tuple[float, int] | None:
    """Return the standard deviation within configurations and its degrees of freedom; None without any."""
    freedom = sum(each.launches - 1 for each in measured)
    squares = sum((each.launches - 1) * _deviation(each) ** 2 for each in measured)
    return (sqrt(squares / freedom), freedom) if freedom else None
