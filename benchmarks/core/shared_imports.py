"""How often intervals hold the truth where launches are forks of processes that have imported their framework.

``python benchmarks/core/shared_imports.py FILE [STUDIES]`` simulates studies of eight trials whose launches differ by
17 %, as PyTorch's do in forked-launches.csv, and writes a row of FILE for each case:

``between``: the part of the variance that is of the import; 0.28 is PyTorch's, 0.97 that of imports which differ by
17 % and forks of one which differ by 3. ``forks``: of each import, one after the other. ``others``: half of the trials
are like the other half (``forked``) or have as many fresh launches (``fresh``). ``holds``: percent of intervals of
forked trials that hold the truth, 95 is promised; ``unknown``: percent of trials that are known by one import alone, of
which nothing is claimed; ``half_width``: the median, in percent. ``holds_independent`` and ``half_width_independent``
are those of the rule that takes forks for fresh launches.

How many forks an import serves. Of variances b between imports and w of the forks of one, F forks of each of S imports
leave b / S + w / (S F) of a mean and cost S (c + F f) seconds, c of the import and f of a launch of every trial that it
serves: sqrt(c w / (f b)) forks cost least. In PyTorch (b 0.10², w 0.16², c 1.9 s, f 1.7 s of one and two workers of
LeNet-5) that is 1.7; one fork costs 7 % more, and half of what fresh launches do, whose three processes import for
themselves. One fork needs no b, which few imports hardly show: so an import serves each trial once.
"""

import csv
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np

from steptime.statistics.interval import LEVEL
from steptime.statistics.launch_spread import pool_spread, pooled_error
from steptime.statistics.launch_times import LaunchTimes
from steptime.statistics.shared_imports import one_of_each_import

SPREAD, TRIALS = 0.17, 8
BETWEEN = (0.0, 0.28, 0.97)
PLANS = ((1,) * 5, (1, 2, 2), (2, 2, 2), (3, 3), (6,))
COLUMNS = (
    "between", "forks", "others", "holds", "unknown", "half_width", "holds_independent", "half_width_independent",
)  # fmt: skip
Generator = np.random.Generator


def forked(rng: Generator, between: float, plan: Sequence[int]) -> list[LaunchTimes]:
    """Return the launches of a trial, whose truth is 0: as many forks of each import as the plan has."""
    imports = [number for number, count in enumerate(plan) for _ in range(count)]
    shared = SPREAD * np.sqrt(between) * rng.standard_normal(len(plan))
    logs = shared[imports] + SPREAD * np.sqrt(1.0 - between) * rng.standard_normal(len(imports))
    return [
        LaunchTimes(block, np.exp([log]), 0, float(log), 0.0, shared_import=str(imports[block]))
        for block, log in enumerate(logs)
    ]


def half_widths(launches: dict[str, list[LaunchTimes]]) -> dict[str, float]:
    """Return that of each trial of which something is claimed, as a difference of logarithms."""
    spreads = pool_spread(launches)
    return {
        name: pooled_error(
            [(spreads[name], dict.fromkeys(((each.block, 0) for each in own), 1.0 / len(own)))], LEVEL
        ).half_width
        for name, own in launches.items()
        if name in spreads
    }


def case(between: float, plan: Sequence[int], others: str, studies: int) -> list[object]:
    """Return a row of the table."""
    rng = np.random.default_rng([int(100 * between), len(plan), sum(plan), len(others)])
    seen: dict[bool, list[tuple[bool, float]]] = {True: [], False: []}
    unknown = 0
    for _ in range(studies):
        trials = {}
        for number in range(TRIALS):
            is_fresh = others == "fresh" and number % 2 == 1
            trials[f"{'fresh' if is_fresh else 'forked'} {number}"] = forked(
                rng, between, (1,) * sum(plan) if is_fresh else plan
            )
        averaged = {name: one_of_each_import(own) for name, own in trials.items()}
        for is_averaged, launches in ((True, averaged), (False, trials)):
            known = half_widths(launches)
            for name in (name for name in trials if name.startswith("forked")):
                centre = abs(float(np.mean([each.log_mean for each in launches[name]])))
                if name in known:
                    seen[is_averaged].append((centre <= known[name], known[name]))
                elif is_averaged:
                    unknown += 1
    row: list[object] = [between, "+".join(map(str, plan)), others]
    for is_averaged in (True, False):
        held = seen[is_averaged]
        holds = f"{100.0 * float(np.mean([one for one, _ in held])):.1f}" if held else ""
        width = f"{100.0 * float(np.expm1(np.median([half for _, half in held]))):.1f}" if held else ""
        share = [f"{100.0 * unknown / (unknown + len(held)):.1f}"] if is_averaged else []
        row += [holds, *share, width]
    return row


def main(path: Path, studies: int) -> None:
    """Write the table."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for between, plan, others in product(BETWEEN, PLANS, ("forked", "fresh")):
            writer.writerow(case(between, plan, others, studies))
            file.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 500)
