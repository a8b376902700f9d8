"""Whether intervals hold where a machine drifts for all workloads of a study, for one of them, or for none.

``python benchmarks/core/drifting_workloads.py FILE [STUDIES]`` simulates races of two workloads with steps of about
5 and 300 ms, whose launches spread by 5 and 2 %, and writes a row of FILE for each drift, order, number of launches and
trials of each workload, and way to pool:

- ``order``: ``turns`` launches all trials in each block; ``phases`` gives the first workload two blocks, then the other
  two, and launches the rest together, as a race with a budget does.
- ``pooled``: ``together`` takes the drift of blocks as common to all trials, ``by workload`` as each workload's own.
- ``holds_short``, ``holds_long``: percent of intervals of a step that hold the truth, of the workload with short steps
  and of the other; ``worst``: of the trial that is held most seldom. ``short_half_width``, ``long_half_width``: their
  medians, in percent.
- ``false_slower``: percent of rankings of equal trials that call one slower than the best. ``told_apart``: percent of
  pairs 1.25 apart that are told apart.
"""

import csv
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from steptime.statistics.comparison import compare
from steptime.statistics.interval import LEVEL
from steptime.statistics.launch_spread import TrialSpread, pool_spread, pooled_error
from steptime.statistics.launch_times import LaunchTimes

Array = NDArray[np.float64]
Generator = np.random.Generator

STEPS_S, SPREADS = (0.005, 0.3), (0.05, 0.02)
"""Of the two workloads."""
WITHIN = 4.0
"""Times that the longest step of a workload is as long as its shortest."""
DRIFT = 0.06
"""Standard deviation of what a block has of its own, where it has any."""
APART = float(np.log(1.25))
LAUNCHES, TRIALS = (2, 3, 5), (4, 8)
"""Launches of each trial, and trials of each workload."""
COLUMNS = (
    "drift", "order", "launches", "trials", "pooled", "holds_short", "holds_long", "worst", "short_half_width",
    "long_half_width", "false_slower", "told_apart",
)  # fmt: skip

Drift = Callable[[Generator, Array, int], Array]
"""Draws what blocks add to the trials, trials x blocks, from the logarithms of their steps."""


def none(_: Generator, lengths: Array, blocks: int) -> Array:
    """Draw a machine that does not drift."""
    return np.zeros((len(lengths), blocks))


def common(rng: Generator, lengths: Array, blocks: int) -> Array:
    """Draw what all trials feel."""
    return none(rng, lengths, blocks) + DRIFT * rng.standard_normal(blocks)


def of_short(rng: Generator, lengths: Array, blocks: int) -> Array:
    """Draw what the workload with the shorter steps feels alone."""
    return common(rng, lengths, blocks) * _of_short(lengths)[:, None]


def of_each(rng: Generator, lengths: Array, blocks: int) -> Array:
    """Draw what each workload has of its own."""
    return of_short(rng, lengths, blocks) + common(rng, lengths, blocks) * ~_of_short(lengths)[:, None]


def by_length(rng: Generator, lengths: Array, blocks: int) -> Array:
    """Draw what short steps feel twice, and steps a hundred times as long hardly."""
    felt = np.clip(2.0 - 0.4 * (lengths - lengths.min()), 0.0, None)
    return felt[:, None] * common(rng, lengths, blocks)


def trend(rng: Generator, lengths: Array, blocks: int) -> Array:
    """Draw a machine that warms up for the shorter steps: from slow to fast, and then no further."""
    slower = 2.0 * DRIFT * np.exp(-np.arange(blocks) / 2.0) * rng.uniform(0.5, 1.5)
    return none(rng, lengths, blocks) + (slower - slower.mean()) * _of_short(lengths)[:, None]


DRIFTS: Mapping[str, Drift] = {
    "none": none,
    "common": common,
    "of short steps": of_short,
    "each workload's own": of_each,
    "by length of step": by_length,
    "short steps get faster": trend,
}


def _of_short(lengths: Array) -> NDArray[np.bool_]:
    return lengths < float(np.log(STEPS_S).mean())


def blocks_of(order: str, launches: int) -> Array:
    """Return the blocks of the launches of each workload."""
    turns = np.arange(launches)
    if order == "turns":
        return np.array([turns, turns])
    return np.array([np.where(turns < 2, turns, turns + 2), turns + 2])


class Race:
    """One simulated race: its launches with and without what trials differ in."""

    def __init__(self, rng: Generator, drift: Drift, order: str, launches: int, trials: int) -> None:
        """Draw it; trials of a workload are equal but for the lengths of their steps."""
        self.workloads = {f"{workload} {trial}": str(workload) for workload in (0, 1) for trial in range(trials)}
        self.names = list(self.workloads)
        lengths = np.concatenate([np.log(step) + np.linspace(0.0, np.log(WITHIN), trials) for step in STEPS_S])
        blocks = blocks_of(order, launches)
        drifts = drift(rng, lengths, int(blocks.max()) + 1)
        self.launches: dict[str, list[LaunchTimes]] = {}
        self.centres = np.zeros(2 * trials)
        for row, name in enumerate(self.names):
            fewer = order == "phases" and launches > 2 and row % 2
            own = blocks[row // trials][: launches - fewer]
            deviations = SPREADS[row // trials] * rng.standard_normal(len(own)) + drifts[row, own]
            logs = lengths[row] + deviations
            self.centres[row] = deviations.mean()
            self.launches[name] = [
                LaunchTimes(int(block), np.exp([log]), 0, float(log), 0.0) for block, log in zip(own, logs, strict=True)
            ]

    def spreads(self, pooled: str) -> dict[str, TrialSpread]:
        """Return how launches of each trial spread."""
        return pool_spread(self.launches, self.workloads if pooled == "by workload" else None)

    def half_widths(self, spreads: Mapping[str, TrialSpread]) -> Array:
        """Return that of each trial's step, as a difference of logarithms."""
        found = []
        for name, own in self.launches.items():
            share = {each.block: 1.0 / len(own) for each in own}
            found.append(pooled_error([(spreads[name], share)], LEVEL).half_width)
        return np.array(found)

    def half_width(self, spreads: Mapping[str, TrialSpread], row: int, other: int) -> float:
        """Return that of the ratio of two trials in the ranking of their workload, as a difference of logarithms."""
        names = [self.names[each] for each in (row, other)]
        found = compare(
            *(self.launches[name] for name in names),
            spreads=(spreads[names[0]], spreads[names[1]]),
            family=len(self.names) // 2,
        )
        return 0.5 * float(np.log(found.high / found.low))

    def ranked(self, spreads: Mapping[str, TrialSpread], rows: Sequence[int]) -> tuple[bool, float]:
        """Return whether one of equal trials is called slower than the best, and the share told apart of 1.25."""
        best = min(rows, key=lambda row: self.centres[row])
        false = any(
            self.centres[row] - self.centres[best] > self.half_width(spreads, row, best) for row in rows if row != best
        )
        pairs = list(zip(rows[::2], rows[1::2], strict=True))
        apart = [
            self.centres[row] - self.centres[other] + APART > self.half_width(spreads, row, other)
            for row, other in pairs
        ]
        return false, float(np.mean(apart))


def cell(drift: str, order: str, launches: int, trials: int, studies: int) -> list[list[object]]:
    """Return the rows of both ways to pool; both meet the same noise."""
    rng = np.random.default_rng([list(DRIFTS).index(drift), len(order), launches, trials])
    races = [Race(rng, DRIFTS[drift], order, launches, trials) for _ in range(studies)]
    rows: list[list[object]] = []
    for pooled in ("together", "by workload"):
        held, widths, false, apart = [], [], [], []
        for race in races:
            spreads = race.spreads(pooled)
            widths.append(race.half_widths(spreads))
            held.append(np.abs(race.centres) <= widths[-1])
            for rows_of in np.split(np.arange(2 * trials), 2):
                wrong, told = race.ranked(spreads, rows_of.tolist())
                false.append(wrong)
                apart.append(told)
        of_trials = 100.0 * np.mean(held, axis=0)
        medians = 100.0 * np.expm1([np.median(each) for each in np.split(np.array(widths), 2, axis=1)])
        figures = [of_trials[:trials].mean(), of_trials[trials:].mean(), of_trials.min()]
        shares = [100.0 * float(np.mean(each)) for each in (false, apart)]
        formatted = [f"{each:.1f}" for each in (*figures, *medians, *shares)]
        rows.append([drift, order, launches, trials, pooled, *formatted])
    return rows


def main(path: Path, studies: int) -> None:
    """Write the table."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for drift, order, launches, trials in product(DRIFTS, ("turns", "phases"), LAUNCHES, TRIALS):
            writer.writerows(cell(drift, order, launches, trials, studies))
            file.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 300)
