"""Pairs of trials that their launches do not tell apart yet, which further launches of a budget are for.

A comparison costs some tenths of a millisecond, and pairs grow with the square of trials. So only those are compared
whose distance a bound of their interval does not exceed, in vectors: no interval is wider than it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steptime.statistics.comparison import Comparison, compare, launches_to_show, several_sites
from steptime.statistics.interval import LEVEL
from steptime.statistics.launch_spread import TrialSpread, pool_spread
from steptime.statistics.launch_times import LaunchTimes, in_turns
from steptime.statistics.simultaneous import critical_value

_MOST_PAIRS = 2000
"""So many pairs of a group are returned, those that seem nearest to being told apart."""
_MARGIN = 1.01
"""For what critical values are off by interpolation."""


@dataclass(frozen=True)
class UndecidedPair:
    """Two trials of a group, by their ids."""

    trials: tuple[str, str]
    distance: float
    """The logarithm of their ratio, in half-widths of its interval; with 1 they would be told apart."""
    needed: int | None
    """About how many more launches of each would show a difference as large as the one that was seen, with a chance of
    80 %, and at least one; None if that is unknown, or more than a thousand."""

    def seconds(self, launch_s: Callable[[str], float]) -> float:
        """Return how long these take; infinity where their number is unknown.

        Args:
            launch_s: returns about how long a launch of a trial takes, by its id.
        """
        return float("inf") if self.needed is None else self.needed * sum(map(launch_s, self.trials))


@dataclass(frozen=True)
class _LaunchedGroup:
    """The trials of a group that were launched."""

    names: Sequence[str]
    launches: Mapping[str, Sequence[LaunchTimes]]
    spreads: Mapping[str, TrialSpread]

    def compared(self, one: int, other: int) -> Comparison:
        """Return the comparison of two of them, by the rule of rankings."""
        first, second = self.names[one], self.names[other]
        both = first in self.spreads and second in self.spreads
        spreads = (self.spreads[first], self.spreads[second]) if both else None
        return compare(self.launches[first], self.launches[second], spreads=spreads, family=len(self.names))

    def nearness(self) -> NDArray[np.float64]:
        """Return, for each two trials, how far they are apart at least, in half-widths: beyond 1 they are told apart.

        0 where no bound is known: without pooled spreads, and where only launches of common blocks are compared.
        """
        count = len(self.names)
        known = [self.spreads.get(name) for name in self.names]
        own = [spread for spread in known if spread is not None]
        if not own or several_sites([launch for name in self.names for launch in self.launches[name]]):
            return np.zeros((count, count))
        freedom = min(min(each.blocks.freedom, each.blocks.residual_freedom, each.common_freedom) for each in own)
        critical = _MARGIN * float(critical_value(freedom, LEVEL, count))
        means = np.array([np.mean([each.log_mean for each in self.launches[name]]) for name in self.names])
        shares = np.array([1.0 / len(self.launches[name]) for name in self.names])
        # Without a spread of its own, a trial is never out of reach.
        variances = np.array([np.inf if each is None else each.variance + each.blocks.variance for each in known])
        squares = np.add.outer(shares, shares) * np.maximum.outer(variances, variances)
        distances = np.abs(np.subtract.outer(means, means))
        reach = critical * np.sqrt(squares)
        nearness: NDArray[np.float64] = np.divide(distances, reach, out=np.zeros_like(reach), where=reach > 0.0)
        return np.where((reach == 0.0) & (distances > 0.0), np.inf, nearness)


def undecided_pairs(
    launches: Mapping[str, Sequence[LaunchTimes]],
    groups: Iterable[Sequence[str]],
    workloads: Mapping[str, str] | None = None,
) -> list[UndecidedPair]:
    """Return the pairs of each group that are not told apart, by the rule of rankings, the nearest to it first.

    Of a group with more such pairs than ``_MOST_PAIRS``, only so many are returned, the nearest by their bounds.

    Args:
        launches: of all trials of a study, by their ids, over which the spread of launches is pooled.
        groups: the ids of trials that are ranked together.
        workloads: as ``pool_spread`` has them.
    """
    pairs = []
    for group in _launched(launches, groups, workloads):
        nearness = np.triu(group.nearness() + 1.0, 1) - 1.0  # -1 outside of the upper triangle
        ones, others = np.nonzero((nearness >= 0.0) & (nearness <= 1.0))
        own: list[UndecidedPair] = []
        for index in np.argsort(-nearness[ones, others], kind="stable"):
            one, other = int(ones[index]), int(others[index])
            ratio = group.compared(one, other)
            if ratio.undecided:
                half_width = 0.5 * float(np.log(ratio.high / ratio.low)) or 1.0
                needed = launches_to_show(ratio, ratio.ratio - 1.0) if ratio.ratio != 1.0 else None
                names = (group.names[one], group.names[other])
                distance = abs(float(np.log(ratio.ratio))) / half_width
                # 0 where the launches there are would do so four times in five.
                own.append(UndecidedPair(names, distance, None if needed is None else max(needed, 1)))
            if len(own) == _MOST_PAIRS:
                break
        pairs += own
    return sorted(pairs, key=lambda pair: (-pair.distance, pair.trials))


def settled_within(
    pairs: Sequence[UndecidedPair], total_s: float, launch_s: Callable[[str], float]
) -> list[UndecidedPair]:
    """Return the pairs, cheapest first, whose launches fit together; those of a trial serve all pairs that it is in.

    Args:
        pairs: that are not told apart.
        total_s: the seconds for their launches.
        launch_s: as ``UndecidedPair.seconds`` has it.
    """
    made: dict[str, int] = {}
    left_s, settled = total_s, []
    for pair in sorted(pairs, key=lambda pair: pair.seconds(launch_s)):
        if pair.needed is None:
            break
        cost_s = sum(max(0, pair.needed - made.get(name, 0)) * launch_s(name) for name in pair.trials)
        if cost_s <= left_s:
            left_s -= cost_s
            made |= {name: max(pair.needed, made.get(name, 0)) for name in pair.trials}
            settled.append(pair)
    return settled


def undecided_trials(
    launches: Mapping[str, Sequence[LaunchTimes]],
    groups: Iterable[Sequence[str]],
    workloads: Mapping[str, str] | None = None,
) -> set[str]:
    """Return the trials that are in such a pair, of all pairs; the arguments are those of ``undecided_pairs``.

    Each is compared, with the nearest first, until one is not told apart from it.
    """
    undecided: set[str] = set()
    for group in _launched(launches, groups, workloads):
        nearness = group.nearness()
        for one, name in enumerate(group.names):
            if name in undecided:
                continue
            near = np.argsort(nearness[one], kind="stable")
            for other in map(int, near[nearness[one, near] <= 1.0]):
                if other != one and group.compared(*sorted((one, other))).undecided:
                    undecided |= {name, group.names[other]}
                    break
    return undecided


def _launched(
    launches: Mapping[str, Sequence[LaunchTimes]],
    groups: Iterable[Sequence[str]],
    workloads: Mapping[str, str] | None,
) -> Iterator[_LaunchedGroup]:
    placed = in_turns({name: own for name, own in launches.items() if own})
    spreads = pool_spread(placed, workloads)
    for members in groups:
        if names := [name for name in members if name in placed]:
            yield _LaunchedGroup(names, placed, spreads)
