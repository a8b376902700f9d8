"""Whether launches that go to the nearest pairs leave intervals and ties as true as launches in turn.

``python benchmarks/core/adaptive_launches.py FILE [STUDIES] [SHAPE ...]`` simulates studies of four trials in the 17
shapes of noise of noise_shapes.py. Each has two launches of every trial and then as many more launches as the budget
holds, divided in four ways:

- ``turns``: a launch of each in turn, as runs without a budget do it;
- ``nearest``: both trials of the pair that is nearest to being told apart, looked for anew after each launch of both;
  pairs that are told apart get none;
- ``open``: a launch of each trial in turn that is not told apart from all others yet;
- ``reachable``, as runs do it: of these, those of pairs that the rest of the budget would tell apart, if there are any.

``false_faster``: percent of studies of equal trials in which any two are told apart. ``false_best``: in which any is
called slower than the best. ``covers``: percent of the trials' intervals that hold the typical launch of their shape.
``told_apart``: percent of pairs of trials 0, 4, 8 and 30 % slower than the first that are told apart rightly, and
``wrong_way`` wrongly.
"""

import csv
import sys
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
from noise_shapes import _MEDIANS, SHAPES, Array

from steptime.statistics.comparison import compare
from steptime.statistics.interval import LEVEL
from steptime.statistics.launch_spread import pool_spread, pooled_error
from steptime.statistics.launch_times import LaunchTimes, by_block
from steptime.statistics.undecided_pairs import settled_within, undecided_pairs

TRIALS = 4
LEAST = 2
BUDGETS = (6,)
"""Launches of each trial that a budget holds on average."""
SLOWER = np.log(np.array([1.0, 1.04, 1.08, 1.3]))
COLUMNS = ("shape", "budget", "way", "false_faster", "false_best", "covers", "told_apart", "wrong_way")


class Race:
    """A study whose launches are made one block after the other."""

    def __init__(self, logs: Array, budget: int) -> None:
        """Take what each trial would take at each moment: trials x launches of all trials together, ``budget``."""
        self.logs = logs
        self.budget = budget
        self.launches: list[list[LaunchTimes]] = [[] for _ in logs]
        self.blocks = 0

    @property
    def count(self) -> int:
        """How many launches were made."""
        return sum(map(len, self.launches))

    def launch(self, trials: Sequence[int]) -> None:
        """Launch trials in one block, which the drift of the machine hits alike."""
        moment = self.count
        for trial in trials:
            log = float(self.logs[trial, moment])
            self.launches[trial].append(LaunchTimes(self.blocks, np.exp([log]), 0, log, 0.0))
        self.blocks += 1

    def distances(self) -> dict[tuple[int, int], float]:
        """Return the logarithm of each pair's ratio in half-widths of its interval: above 1 they are told apart."""
        pooled = pool_spread({str(row): own for row, own in enumerate(self.launches)})
        distances = {}
        for pair in combinations(range(len(self.launches)), 2):
            one, other = pair
            spreads = (pooled[str(one)], pooled[str(other)]) if pooled else None
            ratio = compare(self.launches[one], self.launches[other], spreads=spreads, family=len(self.launches))
            distances[pair] = 2.0 * float(np.log(ratio.ratio) / max(np.log(ratio.high / ratio.low), 1e-12))
        return distances

    def covered(self, truth: Array) -> list[bool]:
        """Return whether the interval of each trial's step holds the truth."""
        pooled = pool_spread({str(row): own for row, own in enumerate(self.launches)})
        held = []
        for row, own in enumerate(self.launches):
            share = dict.fromkeys(by_block(own), 1.0 / len(own))
            half_width = pooled_error([(pooled[str(row)], share)], LEVEL).half_width
            centre = float(np.mean([each.log_mean for each in own]))
            held.append(bool(abs(centre - truth[row]) <= half_width))
        return held


def in_turn(_: Race) -> list[int]:
    """Choose all trials."""
    return list(range(TRIALS))


def nearest(race: Race) -> list[int]:
    """Choose the pair that is nearest to being told apart."""
    waiting = {pair: abs(distance) for pair, distance in race.distances().items() if abs(distance) <= 1.0}
    return list(max(waiting, key=lambda pair: waiting[pair])) if waiting else in_turn(race)


def still_open(race: Race) -> list[int]:
    """Choose the trials that are not told apart from all others."""
    waiting = [pair for pair, distance in race.distances().items() if abs(distance) <= 1.0]
    return sorted({trial for pair in waiting for trial in pair}) or in_turn(race)


def reachable(race: Race) -> list[int]:
    """Choose the trials of pairs that the rest of the budget would tell apart."""
    launches = {str(row): own for row, own in enumerate(race.launches)}
    pairs = undecided_pairs(launches, [list(launches)])
    settled = settled_within(pairs, race.budget - race.count, lambda _: 1.0)
    return sorted({int(name) for pair in settled for name in pair.trials}) or still_open(race)


WAYS: dict[str, Callable[[Race], list[int]]] = {
    "turns": in_turn,
    "nearest": nearest,
    "open": still_open,
    "reachable": reachable,
}


def run(logs: Array, budget: int, way: str) -> Race:
    """Return a study with all launches that the budget holds."""
    race = Race(logs, budget * TRIALS)
    while race.count < budget * TRIALS:
        chosen = in_turn(race) if race.count < LEAST * TRIALS else WAYS[way](race)
        race.launch(chosen[: budget * TRIALS - race.count])
    return race


def cell(shape: str, budget: int, way: str, studies: int) -> list[object]:
    """Return a row of the table; all ways meet the same noise."""
    rng = np.random.default_rng([list(SHAPES).index(shape), budget])
    faster, best, covers, right, wrong = [], [], [], [], []
    typical = _MEDIANS.get(shape, 0.0)
    for _ in range(studies):
        logs = SHAPES[shape](rng, TRIALS, budget * TRIALS)
        equal = run(logs, budget, way)
        apart = {pair: distance for pair, distance in equal.distances().items() if abs(distance) > 1.0}
        faster.append(bool(apart))
        first = int(np.argmin([np.mean([each.log_mean for each in own]) for own in equal.launches]))
        best.append(any(first in pair for pair in apart))
        covers += equal.covered(np.full(TRIALS, typical))
        unequal = run(logs + SLOWER[:, None], budget, way).distances()
        right += [distance < -1.0 for distance in unequal.values()]
        wrong += [distance > 1.0 for distance in unequal.values()]
    return [
        shape,
        studies,
        budget,
        way,
        *(f"{100.0 * float(np.mean(each)):.1f}" for each in (faster, best, covers, right, wrong)),
    ]


def main(path: Path, studies: int, shapes: Sequence[str]) -> None:
    """Write the table."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for shape in shapes:
            for budget in BUDGETS:
                for way in WAYS:
                    writer.writerow(cell(shape, budget, way, studies))
                    file.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 300, sys.argv[3:] or list(SHAPES))
