"""How often a ranking of equal trials is wrong, and intervals hold, whatever the shape of the noise between launches.

``python benchmarks/core/noise_shapes.py FILE [STUDIES] [SHAPE ...]`` simulates studies of equal trials, in 17 shapes of
noise and five sizes, with the functions that the report uses, and writes a row of FILE for each of the 85 cells:

``false_slower``: percent of studies in which a trial is called slower than the best one. ``covers_typical``,
``covers_mean``: percent of intervals of a step that hold the median, and the mean, of the logarithms that launches of
this shape have. ``found``: percent of changes, each as large as the smallest one promised by a study before, that a
new study of this shape shows; 80 is promised. ``half_width``, ``ratio_half_width``: medians, in percent, of a step's
interval and of the ratio of two trials.
"""

import csv
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from steptime.statistics.comparison import Comparison, compare, smallest_change
from steptime.statistics.estimate import least_half_widths
from steptime.statistics.interval import LEVEL, step_time
from steptime.statistics.launch_spread import pool_spread, pooled_error
from steptime.statistics.launch_times import LaunchTimes

Array = NDArray[np.float64]
Generator = np.random.Generator

NOISE = 0.02
"""Standard deviation of the logarithm of a launch's step time, where a shape has no other."""
SIZES = ((2, 4), (3, 2), (3, 4), (4, 8), (6, 4))
"""Launches and trials."""
STEP_S = 0.1
COLUMNS = (
    "shape", "launches", "trials", "false_slower", "covers_typical", "covers_mean", "found", "half_width",
    "ratio_half_width",
)  # fmt: skip

Shape = Callable[[Generator, int, int], Array]
"""Draws the deviations of launches from the typical one, trials x launches."""


def normal(rng: Generator, trials: int, launches: int) -> Array:
    """Draw what the intervals take for granted."""
    return NOISE * rng.standard_normal((trials, launches))


def _skewed(sign: float) -> Shape:
    def draw(rng: Generator, trials: int, launches: int) -> Array:
        return sign * NOISE * np.expm1(0.8 * rng.standard_normal((trials, launches)))

    return draw


def _states(share: float, gap: float) -> Shape:
    """Launches that end in one of two states; the typical launch of two equally frequent ones lies between them."""

    def draw(rng: Generator, trials: int, launches: int) -> Array:
        slow = (rng.random((trials, launches)) < share) - (0.5 if share == 0.5 else 0.0)
        return gap * slow + 0.2 * normal(rng, trials, launches)

    return draw


def _unequal(rng: Generator, trials: int, launches: int) -> Array:
    return 3.0 ** rng.uniform(0.0, 1.0, (trials, 1)) * normal(rng, trials, launches)


def _one_spreads(factor: float) -> Shape:
    def draw(rng: Generator, trials: int, launches: int) -> Array:
        return np.where(np.arange(trials)[:, None] == 0, factor, 1.0) * normal(rng, trials, launches)

    return draw


def _drift(trend: float, *, equally: bool) -> Shape:
    """Add what blocks have of their own: a trend over the study, or chance; trials feel none to twice of it."""

    def draw(rng: Generator, trials: int, launches: int) -> Array:
        blocks = trend * np.linspace(-0.5, 0.5, launches) if trend else 2.0 * NOISE * rng.standard_normal(launches)
        felt = np.ones((trials, 1)) if equally else rng.uniform(0.0, 2.0, (trials, 1))
        return felt * blocks + normal(rng, trials, launches)

    return draw


def _correlated(rng: Generator, trials: int, launches: int) -> Array:
    values = rng.standard_normal((trials, launches))
    for column in range(1, launches):
        values[:, column] = 0.5 * values[:, column - 1] + np.sqrt(0.75) * values[:, column]
    return NOISE * values


def _heavy(freedom: float) -> Shape:
    def draw(rng: Generator, trials: int, launches: int) -> Array:
        return NOISE * rng.standard_t(freedom, (trials, launches))

    return draw


def _by_length(rng: Generator, trials: int, launches: int) -> Array:
    return np.where(np.arange(trials)[:, None] % 2 == 0, 4.0, 1.0) * normal(rng, trials, launches)


SHAPES: dict[str, Shape] = {
    "normal": normal,
    "skewed to slow": _skewed(1.0),
    "skewed to fast": _skewed(-1.0),
    "two states alike frequent": _states(0.5, 0.05),
    "two states, three in ten slow": _states(0.3, 0.05),
    "one launch in ten slow": _states(0.1, 0.2),
    "one launch in five slow": _states(0.2, 0.2),
    "one launch in five fast": _states(0.2, -0.1),
    "spreads up to threefold": _unequal,
    "one trial spreads threefold": _one_spreads(3.0),
    "spreads by length of step": _by_length,
    "heavy tails (t, 3)": _heavy(3.0),
    "heavy tails (t, 2)": _heavy(2.0),
    "correlated launches": _correlated,
    "drift felt equally": _drift(0.0, equally=True),
    "trend felt equally": _drift(0.1, equally=True),
    "drift felt unequally": _drift(0.0, equally=False),
}
MEANS = {
    "skewed to slow": NOISE * float(np.expm1(0.32)),
    "skewed to fast": -NOISE * float(np.expm1(0.32)),
    "two states, three in ten slow": 0.015,
    "one launch in ten slow": 0.02,
    "one launch in five slow": 0.04,
    "one launch in five fast": -0.02,
}
"""Means of the shapes whose typical launch is another one."""
_MEDIANS = {
    "two states, three in ten slow": 0.2 * NOISE * 0.566,
    "one launch in ten slow": 0.2 * NOISE * 0.14,
    "one launch in five slow": 0.2 * NOISE * 0.319,
    "one launch in five fast": -0.2 * NOISE * 0.319,
}
"""Medians of the logarithms, where the other state moves the middle of the frequent one."""
_TIMES_LONGER = 40.0
"""Steps of each second trial where spreads go by the length of the step."""


class Study:
    """One simulated study, with what the report makes of it."""

    def __init__(self, shape: str, rng: Generator, trials: int, launches: int, planted: float = 0.0) -> None:
        """Draw it; the second trial is slower by ``planted``, a difference of logarithms."""
        logs = SHAPES[shape](rng, trials, launches)
        logs[1] += planted
        longer = np.where(np.arange(trials) % 2 == 1, _TIMES_LONGER, 1.0)
        self.lengths = np.log(STEP_S * (longer if shape == "spreads by length of step" else np.ones(trials)))
        self.launches = [
            [LaunchTimes(block, np.exp([log]), 0, float(log), 0.0) for block, log in enumerate(own)]
            for own in logs + self.lengths[:, None]
        ]
        self.centres = logs.mean(axis=1)
        pooled = pool_spread({str(row): own for row, own in enumerate(self.launches)})
        self.spreads = [pooled[str(row)] for row in range(trials)] if pooled else None

    def compared(self, slow: int, fast: int) -> Comparison:
        """Compare two trials as a ranking does, without what their steps differ in on purpose."""
        launches = [
            [replace(each, log_mean=each.log_mean - self.lengths[row]) for each in self.launches[row]]
            for row in (slow, fast)
        ]
        spreads = (self.spreads[slow], self.spreads[fast]) if self.spreads else None
        return compare(launches[0], launches[1], spreads=spreads, family=len(self.launches))

    def calls_one_slower(self) -> bool:
        best = int(self.centres.argmin())
        return any(self.compared(row, best).low > 1.0 for row in range(len(self.launches)) if row != best)

    def half_widths(self) -> Array:
        """Return that of each trial's step, as a difference of logarithms."""
        if self.spreads is None:
            intervals = [step_time(own) for own in self.launches]
            least = least_half_widths({str(row): own for row, own in enumerate(self.launches)}, LEVEL)
            own = np.array([0.5 * np.log(each.high / each.low) for each in intervals])
            return np.maximum(own, [least.get(str(row), 0.0) for row in range(len(own))])
        share = dict.fromkeys(range(len(self.launches[0])), 1.0 / len(self.launches[0]))
        return np.array([pooled_error([(each, share)], LEVEL).half_width for each in self.spreads])


def cell(shape: str, launches: int, trials: int, studies: int) -> list[object]:
    """Return a row of the table."""
    rng = np.random.default_rng([list(SHAPES).index(shape), launches, trials])
    false, typical, mean, found, widths, ratio_widths = [], [], [], [], [], []
    for _ in range(studies):
        study = Study(shape, rng, trials, launches)
        false.append(study.calls_one_slower())
        half_widths = study.half_widths()
        typical.append(np.abs(study.centres - _MEDIANS.get(shape, 0.0)) <= half_widths)
        mean.append(np.abs(study.centres - MEANS.get(shape, 0.0)) <= half_widths)
        widths.append(half_widths)
        ratio = study.compared(1, 0)
        ratio_widths.append(0.5 * np.log(ratio.high / ratio.low))
        promised = smallest_change(ratio)
        if promised is not None:
            found.append(Study(shape, rng, trials, launches, float(np.log1p(promised))).compared(1, 0).low > 1.0)
    shares = [f"{100.0 * float(np.mean(each)):.1f}" for each in (false, typical, mean, found)]
    medians = [f"{100.0 * float(np.expm1(np.median(each))):.2f}" for each in (widths, ratio_widths)]
    return [shape, launches, trials, *shares, *medians]


def main(path: Path, studies: int, shapes: Sequence[str]) -> None:
    """Write the table, with what the goals say of it."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for shape, (launches, trials) in product(shapes, SIZES):
            writer.writerow(cell(shape, launches, trials, studies))
            file.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1000, sys.argv[3:] or list(SHAPES))
