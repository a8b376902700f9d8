"""How long single steps take: quantiles, the longest, and the stalls among them with their period."""

import numpy as np
from numpy.typing import NDArray

from steptime.attached.form import StepSpread, StepStalls
from steptime.attached.step_parts import KeptSteps
from steptime.units import format_count, format_seconds

_LONG, _LONG_S = 3.0, 0.005
"""Times the median, and seconds beyond it, from which on a step is a stall."""
_FEWEST = 3
_MOST_SHARE = 0.25
"""Of the steps: more are a second kind of steps."""
_NOTABLE = 0.1
"""Of the time of all steps, that stalls take beyond the median at least to be named."""
_REGULAR = 0.5
"""Of the mean distance between two stalls, by which distances may differ where they come regularly."""
_FEWEST_OF = {0.9: 10, 0.99: 100}
"""Steps that a quantile needs."""


def step_spread(kept: KeptSteps) -> StepSpread | None:
    """Return quantiles and stalls of the steps that the parts are means of; None without any.

    A step is as long as the mean over its ranks, which exchange gradients and so end together.
    """
    if not kept.numbers:
        return None
    lengths = kept.length_s.mean(axis=0)
    return StepSpread(
        median_s=float(np.median(lengths)),
        p90_s=quantile(lengths, 0.9),
        p99_s=quantile(lengths, 0.99),
        longest_s=float(lengths.max()),
        longest_step=kept.numbers[int(lengths.argmax())],
        stalls=_stalls(np.array(kept.numbers), lengths),
    )


def quantile(lengths: NDArray[np.float64], level: float) -> float | None:
    """Return a quantile of steps; None if they are too few for it."""
    return float(np.quantile(lengths, level)) if len(lengths) >= _FEWEST_OF[level] else None


def _stalls(numbers: NDArray[np.int64], lengths: NDArray[np.float64]) -> StepStalls | None:
    median = float(np.median(lengths))
    long = lengths > max(_LONG * median, median + _LONG_S)
    count, total = int(long.sum()), float(lengths.sum())
    beyond = float((lengths[long] - median).sum())
    if not _FEWEST <= count <= _MOST_SHARE * len(lengths) or beyond < _NOTABLE * total:
        return None
    distances = np.diff(numbers[long])
    regular = np.ptp(distances) <= max(1.0, _REGULAR * float(distances.mean()))
    return StepStalls(
        count=count,
        steps=len(lengths),
        shortest_s=float(lengths[long].min()),
        share=float(lengths[long].sum()) / total,
        lost_s=beyond,
        every=float(distances.mean()) if regular else None,
    )


def stalls_sentence(stalls: StepStalls, median_s: float) -> str:
    """Return what stalls take, and how they come."""
    period = f"every {stalls.every:.3g} steps" if stalls.every else "at no regular distance"
    return (
        f"{stalls.count} of {format_count(stalls.steps, 'step')} took {format_seconds(stalls.shortest_s)} or more, "
        f"{period}, together {100 * stalls.share:.0f} % of the time of steps; the median step takes "
        f"{format_seconds(median_s)}"
    )
