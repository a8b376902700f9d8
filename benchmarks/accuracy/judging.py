"""How far predictions are from what was measured: over all cells, and with a correction learned from the others."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from predicting import Cell

LONG_S = 0.3
"""Steps above it are where tight claims are made."""
GROUPS: dict[str, Callable[[Cell], Hashable]] = {
    "workload": lambda cell: cell.load,
    "bandwidth": lambda cell: cell.megabits,
    "batch": lambda cell: cell.batch,
    "framework": lambda cell: cell.contestant,
}


@dataclass(frozen=True)
class Verdict:
    """Absolute errors in percent."""

    count: int
    median: float
    mean: float
    worst: float
    worst_long: float | None
    """Of steps above 300 ms; None where there is none."""

    def in_words(self) -> str:
        """Return one line."""
        long = "       -" if self.worst_long is None else f"{self.worst_long:8.1f}"
        return f"{self.count:5} {self.median:8.1f} {self.mean:8.1f} {self.worst:8.1f} {long}"


HEAD = f"{'cells':>5} {'median':>8} {'mean':>8} {'worst':>8} {'>300 ms':>8}"


def judge(cells: Sequence[Cell], way: str) -> Verdict:
    """Return the verdict on one way over some cells."""
    return _verdict(cells, [cell.error(way) for cell in cells])


def left_out(cells: Sequence[Cell], by: str) -> Verdict | None:
    """Return the verdict where each group is corrected by the mean factor of all the others; None for one group.

    Nothing is fitted to steps that send, so that this is what such a correction would change.
    """
    group = GROUPS[by]
    ratios = np.log([cell.predicted_s["steptime"] / cell.measured_s for cell in cells])
    own = [group(cell) for cell in cells]
    if len(set(own)) < 2:
        return None
    others = [np.mean([ratio for ratio, one in zip(ratios, own, strict=True) if one != each]) for each in own]
    return _verdict(cells, np.expm1(ratios - others))


def _verdict(cells: Sequence[Cell], errors: Sequence[float]) -> Verdict:
    percent = 100.0 * np.abs(np.asarray(errors))
    long = percent[[cell.measured_s > LONG_S for cell in cells]]
    return Verdict(
        count=len(cells),
        median=float(np.median(percent)),
        mean=float(percent.mean()),
        worst=float(percent.max()),
        worst_long=float(long.max()) if len(long) else None,
    )
