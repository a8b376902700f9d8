"""Whether intervals of 90 % hold by source, and whether widening them by what other sources missed would help.

The rule, which was committed before anything was scored by it. Points are in one of three groups: on as many hosts as
those fitted (``same hosts``), on more than the one of all those fitted (``first off the host``), and on more than the
several that were fitted (``more hosts``). A point misses its interval by ``max(log(low / t), log(t / high))``,
negative inside. Intervals of a source's points in a group are widened to both sides by the quantile of 90 % of what
points of the other sources in that group missed theirs by, each source with the same weight in all (pooled
distributions of R. Dunn, L. Wasserman, A. Ramdas, *Distribution-free prediction sets for two-layer hierarchical
models*, 2022), where that is above zero; never narrowed. No number of it is chosen. It is taken only if coverage in
a group that is not within 85 to 97 % comes to lie there, the interval score of that group does not get worse, and no
group that is within leaves it.

    python benchmarks/evidence/by_source.py [TABLE...] > benchmarks/evidence/by-source.csv

Coverage has an interval of 95 % from 2,000 draws of whole curves.
"""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from learn_priors import POINTS

from steptime.curves.posterior import predict_curve
from steptime.curves.table import read_curves
from steptime.scaling.assessment import ScoredPoint, predict_holdout, score

LEVEL, DRAWS = 0.9, 2000
GROUPS = ("same hosts", "first off the host", "more hosts")


def missed_by(points: Sequence[ScoredPoint]) -> np.ndarray:
    """Return by how much measured times lie outside of their intervals, as logarithms."""
    return np.array([max(np.log(p.low / p.measured), np.log(p.measured / p.high)) for p in points])


def widening(others: Sequence[ScoredPoint]) -> float:
    """Return the logarithm by which points of other sources widen intervals; nothing where there are none."""
    if not others:
        return 0.0
    names = [point.source for point in others]
    weights = np.array([1.0 / names.count(name) for name in names])
    missed = missed_by(others)
    order = np.argsort(missed)
    reached = np.cumsum(weights[order]) / weights.sum()
    return max(0.0, float(missed[order][np.searchsorted(reached, LEVEL - 1e-9)]))


def widened(points: Sequence[ScoredPoint]) -> list[ScoredPoint]:
    """Return the points of one group, each widened by those of other sources."""
    by = {name: widening([p for p in points if p.source != name]) for name in {p.source for p in points}}
    return [
        ScoredPoint(**{**vars(p), "low": p.low * np.exp(-by[p.source]), "high": p.high * np.exp(by[p.source])})
        for p in points
    ]


def coverage(points: Sequence[ScoredPoint]) -> tuple[float, float, float]:
    """Return the share of points inside, in percent, with its interval over curves."""
    inside = missed_by(points) <= 0.0
    curves = sorted({p.curve for p in points})
    held = np.array([sum(i for i, p in zip(inside, points, strict=True) if p.curve == c) for c in curves], float)
    many = np.array([sum(p.curve == c for p in points) for c in curves], float)
    drawn = np.random.default_rng(0).integers(len(curves), size=(DRAWS, len(curves)))
    shares = held[drawn].sum(axis=1) / many[drawn].sum(axis=1)
    return (100 * inside.mean(), *(100 * np.quantile(shares, [0.025, 0.975])))


def main() -> None:
    """Print scores before and after, by group and by source."""
    tables = [*POINTS, Path(__file__).with_name("held-out-curves.csv"), *map(Path, sys.argv[1:])]
    curves = [curve for table in dict.fromkeys(tables) for curve in read_curves(table) if curve.holdout]
    named: dict[str, list[ScoredPoint]] = {group: [] for group in GROUPS}
    for curve in curves:
        most = max(curve.hosts(point.workers) for point in curve.fit)
        for point in predict_holdout([curve], predict_curve):
            hosts = curve.hosts(point.workers)
            named[GROUPS[0] if hosts <= most else GROUPS[1 if most == 1 else 2]].append(point)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    ends = [f"{when} {what}" for when in ("before", "after") for what in ("inside", "low", "high", "interval score")]
    writer.writerow(["group", "source", "curves", "points", *ends])
    for group, points in named.items():
        after = widened(points)
        for source in ["", *sorted({point.source for point in points})]:
            sides = [[p for p in side if source in ("", p.source)] for side in (points, after)]
            if sides[0]:
                found = [[*(f"{x:.0f}" for x in coverage(s)), f"{score(s).interval_score:.3f}"] for s in sides]
                count = len({p.curve for p in sides[0]})
                writer.writerow([group, source or "all", count, len(sides[0]), *found[0], *found[1]])


if __name__ == "__main__":
    main()
