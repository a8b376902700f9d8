"""Steps in the order of time: in windows, so that few numbers show a long run, and counted by their length."""

from collections.abc import Iterator

import numpy as np

from steptime.attached.form import StepHistogram, StepWindow
from steptime.attached.job_time import CommandTime
from steptime.attached.step_parts import KeptSteps
from steptime.attached.step_spread import quantile
from steptime.phases import REST
from steptime.results.json_form import Interval
from steptime.statistics.interval import mean_within

_MOST = 64
"""Windows of a run: a page that draws 320 points shows all of them."""
_FEWEST_STEPS = 10
"""Of a window but the last."""
_BOUNDS_S = tuple(digit * 10.0**exponent for exponent in range(-4, 3) for digit in (1, 2, 5))
"""Of the histogram, from 100 us to 500 s, the same for every run."""


def step_windows(kept: KeptSteps, command: CommandTime) -> list[StepWindow]:
    """Return the steps that the parts are means of in windows of equal numbers of steps."""
    return list(_windows(kept, command))


def _windows(kept: KeptSteps, command: CommandTime) -> Iterator[StepWindow]:
    count = len(kept.numbers)
    size = max(_FEWEST_STEPS, -(-count // _MOST))
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
