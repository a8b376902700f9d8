"""Pairs of trials that their launches do not tell apart yet, which further launches of a budget are for."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from steptime.statistics.comparison import compare, launches_to_show
from steptime.statistics.launch_spread import pool_spread
from steptime.statistics.launch_times import LaunchTimes, in_turns


@dataclass(frozen=True)
class UndecidedPair:
    """Two trials of a group, by their ids."""

    trials: tuple[str, str]
    distance: float
    """The logarithm of their ratio, in half-widths of its interval; with 1 they would be told apart."""
    needed: int | None
    """About how many more launches of each would show a difference as large as the one that was seen, with a chance of
    80 %; None if that is unknown, or more than a thousand."""


def undecided_pairs(
    launches: Mapping[str, Sequence[LaunchTimes]], groups: Iterable[Sequence[str]]
) -> list[UndecidedPair]:
    """Return the pairs of each group that are not told apart, by the rule of rankings, the nearest to it first.

    Args:
        launches: of all trials of a study, by their ids, over which the spread of launches is pooled.
        groups: the ids of trials that are ranked together.
    """
    placed = in_turns({name: own for name, own in launches.items() if own})
    spreads = pool_spread(placed)
    pairs = []
    for members in groups:
        timed = [name for name in members if name in placed]
        for one, other in combinations(timed, 2):
            known = (spreads[one], spreads[other]) if one in spreads and other in spreads else None
            ratio = compare(placed[one], placed[other], spreads=known, family=len(timed))
            if ratio.undecided:
                half_width = 0.5 * float(np.log(ratio.high / ratio.low)) or 1.0
                needed = launches_to_show(ratio, ratio.ratio - 1.0) if ratio.ratio != 1.0 else None
                pairs.append(UndecidedPair((one, other), abs(float(np.log(ratio.ratio))) / half_width, needed))
    return sorted(pairs, key=lambda pair: -pair.distance)
