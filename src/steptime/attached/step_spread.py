"""How long single steps take: quantiles, the longest, stalls with their period, windows of a run, a histogram."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from steptime.attached.few_steps import how_regular, regular_distance
from steptime.attached.form import StepHistogram, StepSpread, StepStalls, StepWindow
from steptime.attached.job_time import CommandTime
from steptime.attached.step_parts import KeptSteps
from steptime.phases import REST
from steptime.results.json_form import Interval
from steptime.statistics.interval import mean_within
from steptime.units import format_count, format_seconds

_LONG, _LONG_S = 3.0, 0.005
"""Times the median, and seconds beyond it, from which on a step is a stall."""
_FEWEST = 3
_MOST_SHARE = 0.25
"""Of the steps: more are a second kind of steps."""
_NOTABLE = 0.1
"""Of the time of all steps, that stalls take beyond the median at least to be named."""
_OF_LONGEST = 0.5
"""Of what the longest stall is longer, that stalls which come regularly are longer at least."""
_ALIKE = 1.5
"""Times what a step was longer, that others wait for it in the next one at most."""
_FEWEST_OF = {0.9: 10, 0.99: 100}
"""Steps that a quantile needs."""
_MOST_WINDOWS = 64
"""Windows of a run: a page that draws 320 points shows all of them."""
_WINDOW_STEPS = 10
"""Of a window but the last."""
_BOUNDS_S = tuple(digit * 10.0**exponent for exponent in range(-4, 3) for digit in (1, 2, 5))
"""Of the histogram, from 100 us to 500 s, the same for every run."""


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
        stalls=_stalls(np.array(kept.numbers), kept.length_s),
    )


def quantile(lengths: NDArray[np.float64], level: float) -> float | None:
    """Return a quantile of steps; None if they are too few for it."""
    return float(np.quantile(lengths, level)) if len(lengths) >= _FEWEST_OF[level] else None


def _stalls(numbers: NDArray[np.int64], by_rank: NDArray[np.float64]) -> StepStalls | None:
    """Return the long steps; one behind another that was long on other ranks is their waiting for the same stall."""
    lengths = by_rank.mean(axis=0)
    median = float(np.median(lengths))
    long = _are_long(lengths)
    own = np.array([_are_long(each) for each in by_rank])
    excess = (by_rank - np.median(by_rank, axis=1, keepdims=True)).max(axis=0)
    again = np.zeros_like(long)
    again[1:] = long[1:] & long[:-1] & own[:, 1:].any(axis=0) & ~(own[:, 1:] & own[:, :-1]).any(axis=0)
    again[1:] &= (np.diff(numbers) == 1) & (excess[1:] <= _ALIKE * excess[:-1])
    lasting = lengths.copy()
    lasting[:-1] += np.where(again[1:], lengths[1:] - median, 0.0)
    total, beyond, share = float(lengths.sum()), float((lengths[long] - median).sum()), float(lengths[long].sum())
    long &= ~again
    count = int(long.sum())
    if not _FEWEST <= count <= _MOST_SHARE * len(lengths) or beyond < _NOTABLE * total:
        return None
    every = regular_distance(numbers[long], numbers)
    main = long & (excess >= _OF_LONGEST * excess[long].max())
    if every is None and int(main.sum()) >= _FEWEST and (every := regular_distance(numbers[main], numbers)) is not None:
        long, count = main, int(main.sum())  # the others are noise between stalls that come regularly
        beyond, share = float((lasting[long] - median).sum()), float(lasting[long].sum())
    return StepStalls(
        count=count,
        steps=len(lengths),
        shortest_s=float(lasting[long].min()),
        share=share / total,
        lost_s=beyond,
        every=every,
    )


def _are_long(lengths: NDArray[np.float64]) -> NDArray[np.bool_]:
    median = float(np.median(lengths))
    return lengths > max(_LONG * median, median + _LONG_S)


def stalls_sentence(stalls: StepStalls, median_s: float) -> str:
    """Return what stalls take, and how they come."""
    return (
        f"{stalls.count} of {format_count(stalls.steps, 'step')} took {format_seconds(stalls.shortest_s)} or more, "
        f"{how_regular(stalls.every)}, together {100 * stalls.share:.0f} % of the time of steps; the median step takes "
        f"{format_seconds(median_s)}"
    )


def step_windows(kept: KeptSteps, command: CommandTime) -> list[StepWindow]:
    """Return the steps that the parts are means of in windows of equal numbers of steps."""
    return list(_windows(kept, command))


def _windows(kept: KeptSteps, command: CommandTime) -> Iterator[StepWindow]:
    count = len(kept.numbers)
    size = max(_WINDOW_STEPS, -(-count // _MOST_WINDOWS))
    parts = {**kept.phases_s, **kept.gaps_s, REST: kept.rest_s} if count else {}
    process = next(iter(kept.attempt.processes.values()), None)
    for first in range(0, count, size):
        own = slice(first, min(first + size, count))
        numbers, by_rank = kept.numbers[own], kept.length_s[:, own]
        lengths = by_rank.mean(axis=0)
        mean = mean_within(lengths)
        end_ns = kept.attempt.steps[numbers[-1]][0].end_ns
        assert process is not None  # noqa: S101 - it has steps
        yield StepWindow(
            first_step=numbers[0],
            last_step=numbers[-1],
            steps=len(numbers),
            end_s=(command.on_own_clock(process, end_ns) - command.begin_ns) * 1e-9,
            mean_s=Interval(mean.value, mean.low, mean.high),
            median_s=float(np.median(lengths)),
            p90_s=quantile(lengths, 0.9),
            longest_s=float(lengths.max()),
            longest_step=numbers[int(lengths.argmax())],
            ranks_s=[float(seconds) for seconds in by_rank.mean(axis=1)],
            parts_s={name: float(seconds[:, own].mean()) for name, seconds in parts.items()},
        )


def step_histogram(kept: KeptSteps) -> StepHistogram | None:
    """Return how many of these steps took how long on each rank; None without any."""
    if not kept.numbers:
        return None
    places = [np.searchsorted(_BOUNDS_S, lengths) for lengths in kept.length_s]
    return StepHistogram(
        bounds_s=list(_BOUNDS_S),
        counts=[np.bincount(own, minlength=len(_BOUNDS_S) + 1).tolist() for own in places],
        sums_s=kept.length_s.sum(axis=1).tolist(),
    )
