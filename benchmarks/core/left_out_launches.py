"""How often intervals of a few real launches hold the mean of launches that they do not know.

``python benchmarks/core/left_out_launches.py FILE NAME=PLACE[@LEAST] ...`` takes launches of stored studies apart: so
many of each trial are kept, of all the same in their order, in every way or in 2,000, and get their intervals as a
report gives them, with the spread pooled over the study. A PLACE is a results folder, or rows of ``forked_launches.py
forked``, of which the fresh launches are taken; trials with fewer than LEAST launches (3) do not take part. FILE gets a
row for each study and number of launches kept:

``holds``: percent of intervals that hold the mean of the launches left out, each widened by what that mean itself is
unsure of (launches that spread alike: by the root of 1 + kept / left out); 95 is promised. ``worst``: of the trial that
is held most seldom. ``half_width``: the median, in percent, as reported.
"""

import csv
import random
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import comb, exp, log, sqrt
from pathlib import Path

import numpy as np

from steptime.results.store import Store
from steptime.statistics.interval import LEVEL, step_time
from steptime.statistics.launch_spread import pool_spread, pooled_error
from steptime.statistics.launch_times import LaunchTimes, in_turns
from steptime.statistics.stopping_rule import reduced

DRAWS = 2000
KEPT = (2, 3, 4, 5)
COLUMNS = ("study", "trials", "launches", "kept", "intervals", "holds", "worst", "half_width")
Launches = Mapping[str, Sequence[LaunchTimes]]
Workloads = Mapping[str, str]


def read(place: Path) -> tuple[Launches, Workloads]:
    """Return the timed launches of each trial of a folder or a file, and what each trains."""
    if place.is_dir():
        store = Store.open(place)
        trials = list(store.trials())
        launches = in_turns({each.id: reduced(each, store.launches(each.id)) for each in trials})
        return launches, {each.id: each.workload for each in trials}
    found: dict[str, list[LaunchTimes]] = {}
    with place.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["kind"] == "fresh":
                seconds = float(row["mean_ms"]) / 1e3
                one = LaunchTimes(int(row["round"]), np.array([seconds]), 0, log(seconds), 0.0)
                found.setdefault(row["framework"], []).append(one)
    return found, dict.fromkeys(found, "")


def choices(fewest: int, kept: int) -> list[set[int]]:
    """Return which launches are kept of each trial, by their place in its order."""
    if comb(fewest, kept) <= DRAWS:
        return [set(each) for each in combinations(range(fewest), kept)]
    rng = random.Random(kept)  # noqa: S311 - reproducible, not secret
    return [set(rng.sample(range(fewest), kept)) for _ in range(DRAWS)]


def held(launches: Launches, workloads: Workloads, chosen: set[int]) -> list[tuple[str, bool, float]]:
    """Return whether each trial's interval holds the mean of the rest, and its half-width as a logarithm."""
    kept = len(chosen)
    known = {name: [each for place, each in enumerate(own) if place in chosen] for name, own in launches.items()}
    spreads = pool_spread(known, workloads)
    found = []
    for name, own in known.items():
        rest = [each.log_mean for place, each in enumerate(launches[name]) if place not in chosen]
        if not rest:
            continue
        if name in spreads:
            half = pooled_error([(spreads[name], {each.block: 1.0 / kept for each in own})], LEVEL).half_width
        else:
            interval = step_time(own)
            half = 0.5 * log(interval.high / interval.low)
        apart = statistics.fmean(each.log_mean for each in own) - statistics.fmean(rest)
        found.append((name, abs(apart) <= half * sqrt(1.0 + kept / len(rest)), half))
    return found


def main(path: Path, studies: Sequence[tuple[str, Path, int]]) -> None:
    """Write the table."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for name, place, least in studies:
            every, workloads = read(place)
            launches = {trial: own for trial, own in every.items() if len(own) >= least}
            fewest, most = (end(map(len, launches.values())) for end in (min, max))
            for kept in KEPT:
                if kept > fewest or kept == most:
                    continue
                found = [each for chosen in choices(fewest, kept) for each in held(launches, workloads, chosen)]
                each_held = {trial: [is_held for which, is_held, _ in found if which == trial] for trial in launches}
                shares = [100.0 * statistics.fmean(own) for own in each_held.values() if own]
                holds = 100.0 * statistics.fmean(is_held for _, is_held, _ in found)
                width = 100.0 * (exp(statistics.median(half for _, _, half in found)) - 1.0)
                count = f"{fewest} to {most}" if fewest < most else most
                figures = [f"{each:.1f}" for each in (holds, min(shares), width)]
                writer.writerow([name, len(launches), count, kept, len(found), *figures])
                file.flush()


def asked(words: Sequence[str]) -> Iterator[tuple[str, Path, int]]:
    """Yield the name of each study, its place, and the fewest launches of a trial."""
    for each in words:
        name, _, rest = each.partition("=")
        place, _, least = rest.partition("@")
        yield name, Path(place), int(least or 3)


if __name__ == "__main__":
    main(Path(sys.argv[1]), list(asked(sys.argv[2:])))
