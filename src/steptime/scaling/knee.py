"""The knee: the number of workers from which more of them bring less than was asked for, with its interval.

It is read off draws of a forecast over doublings of workers: each draw reaches a limit somewhere, or not at all, and
the interval holds 90 % of where they do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from steptime.results.json_form import Interval
from steptime.units import format_count, is_undecided, parse_share

Array = NDArray[np.float64]

SHARES = (0.8, 0.5)
"""Of efficiency, that are searched unless others are chosen."""
GAIN = 1.5
"""How many times the throughput of half the workers a doubling shall have."""
MOST_WORKERS = 1024
"""Up to so many a knee is searched."""
_LEVELS = (0.05, 0.5, 0.95)
_AT_LEAST = 2
"""Numbers of workers that a knee lies between."""
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Knee:
    """Where the draws of a forecast reach a limit; numbers of workers that are None lie beyond ``searched_to``."""

    measure: Literal["efficiency", "doubling"]
    limit: float
    """The share of 1 that efficiency falls below, or the throughput of twice the workers over theirs."""
    workers: Interval[float | None]
    """The median of the draws with its interval."""
    searched_to: int
    """The most workers that the forecast was asked about."""
    unreached: float
    """The share of draws that do not reach the limit."""

    @property
    def sentence(self) -> str:
        """Return ``efficiency falls below 80 % at 24 workers (12 to 41)``; of a wide interval the ends alone.

        One worker does not fall below: it is below, as with servers that its baseline does not have.
        """
        middle, low, high = self.workers.value, self.workers.low, self.workers.high
        if low is None:
            return self._unreached
        if self.measure == "efficiency":
            # One worker is what efficiency is relative to, but for its servers.
            verb = "is" if middle == 1 else "falls"
            what, at = f"efficiency {verb} below {100 * self.limit:.0f} %", "from" if verb == "is" else "at"
        else:
            what, at = f"another doubling gains less than {self.limit:g}x", "from"
        ends = f"{low:.0f} to {f'more than {self.searched_to}' if high is None else f'{high:.0f}'}"
        if middle is None or is_undecided(low, high or self.searched_to):
            return f"{what} {at} {ends} workers (inconclusive)"
        where = f"{at} {format_count(int(middle), 'worker')}"
        return f"{what} {where}" if low == high else f"{what} {where} ({ends})"

    @property
    def _unreached(self) -> str:
        """Return that no number of workers that was searched reaches the limit."""
        if self.measure == "efficiency":
            most, lead = self.searched_to, f"efficiency does not fall below {100 * self.limit:.0f} %"
        else:  # twice the most, which were searched as the other end of their doubling
            most, lead = 2 * self.searched_to, f"every doubling gains at least {self.limit:g}x"
        return f"{lead} up to {format_count(most, 'worker')}, the most that were searched"

    def to_json(self) -> dict[str, Any]:
        """Return the object that docs/prediction.md describes."""
        return asdict(self)


def doublings(first: int, most: int = MOST_WORKERS) -> list[int]:
    """Return the numbers of workers over which a knee is searched."""
    counts = [first]
    while 2 * counts[-1] <= most:
        counts.append(2 * counts[-1])
    return counts


def knees(
    counts: Sequence[int],
    efficiency: Array,
    throughput: Array,
    shares: Sequence[float] = SHARES,
    gain: float = GAIN,
) -> list[Knee]:
    """Return where efficiency falls below each share, and where another doubling gains less than ``gain`` times.

    Args:
        counts: of workers, each twice the one before.
        efficiency: (draws, counts).
        throughput: in any unit, of all workers together, (draws, counts).
        shares: of 1.
        gain: throughput of twice the workers over theirs.

    Returns nothing of fewer than two counts.
    """
    if len(counts) < _AT_LEAST:
        return []
    reached = [_knee("efficiency", share, _crossings(counts, efficiency, share), counts[-1]) for share in shares]
    short = throughput[:, 1:] / throughput[:, :-1] < gain
    first = np.where(short.any(axis=1), np.asarray(counts, dtype=float)[short.argmax(axis=1)], np.inf)
    return [*reached, _knee("doubling", gain, first, counts[-2])]


def _crossings(counts: Sequence[int], efficiency: Array, share: float) -> Array:
    """Return the fewest workers of each draw below a share, straight between logarithms; infinity if it never is."""
    below = efficiency < share
    after, draws = below.argmax(axis=1), np.arange(len(efficiency))
    before = np.maximum(after - 1, 0)
    logs, doubled = np.log(efficiency), np.log2(np.asarray(counts, dtype=float))
    fall = np.maximum(logs[draws, before] - logs[draws, after], _ROUNDING)
    part = np.clip((logs[draws, before] - np.log(share)) / fall, 0.0, 1.0)
    workers = np.exp2(doubled[before] + part * (doubled[after] - doubled[before]))
    return np.where(below.any(axis=1), np.ceil(workers - _ROUNDING * workers), np.inf)


def _knee(measure: Literal["efficiency", "doubling"], limit: float, reached: Array, searched_to: int) -> Knee:
    ends = np.quantile(reached, _LEVELS, method="inverted_cdf")
    low, middle, high = (float(end) if np.isfinite(end) else None for end in ends)
    return Knee(measure, limit, Interval(middle, low, high), searched_to, float(np.mean(np.isinf(reached))))


def read_shares(text: str) -> list[float]:
    """Return the shares of ``80,50``, ``80%,50%`` or ``0.8,0.5``; raises ValueError for another text."""
    shares = []
    for part in text.split(","):
        share = parse_share(part, below_one=True)
        if not 0.0 < share < 1.0:
            message = f"{part.strip()!r} is not between 0% and 100%; write 80,50 or 80%,50%"
            raise ValueError(message)
        shares.append(share)
    return sorted(set(shares), reverse=True)


def knee_of(knee: Mapping[str, Any]) -> Knee:
    """Return a knee from what JSON has of it."""
    return Knee(**{**knee, "workers": Interval(**knee["workers"])})


def knee_line(bends: Sequence[Knee]) -> str:
    """Return the knees in one sentence; empty without any."""
    return f"Knee (90 %): {'; '.join(knee.sentence for knee in bends)}." if bends else ""
