"""Whether the count that ``predict`` names to measure next narrows an interval more than the next count would.

    python benchmarks/evidence/next_counts.py

Of each published curve of five points and more, with beliefs that were learned without its source: the first two points
are known, the last is asked for, and those between may be measured next. The count that is named is read off the two
points alone; then each of those between is added as it was measured, and the interval of the last one computed anew.
Beside it is what one does without advice: to measure the next count, which in these tables is about twice the last.
"""

import csv
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from learn_priors import POINTS

from steptime.curves.curve import ScalingCurve
from steptime.curves.posterior import posterior, summarize
from steptime.curves.shape import priors_for
from steptime.curves.table import read_curves
from steptime.scaling.further_points import further_points

FEWEST = 5
TABLE = Path(__file__).parent / "next-counts.csv"
COLUMNS = ("curve", "source", "known", "asked", "now", "named", "next", "named_ratio", "next_ratio", "best_ratio")


def ratio_with(curve: ScalingCurve, known: int) -> float:
    """Return upper over lower end of the interval of the last point, with one more point known."""
    more = replace(curve, fit=(*curve.fit, curve.holdout[known]), holdout=())
    last = curve.holdout[-1]
    [step] = summarize(posterior(more, [(last.workers, last.servers)], priors_for(curve.setup.source)))
    return step.high / step.low


def judge(curve: ScalingCurve) -> dict[str, object]:
    """Return a row of the table of one curve, of which two points are fitted."""
    between = curve.holdout[:-1]
    asked = [(point.workers, point.servers) for point in curve.holdout]
    assumed = posterior(curve, asked, priors_for(curve.setup.source))
    [*_, step] = summarize(assumed)
    places = {point.workers: place for place, point in enumerate(between)}
    named = places[further_points(assumed, places, len(between))[0].workers]
    ratios = [ratio_with(curve, place) for place in range(len(between))]
    return dict(
        zip(
            COLUMNS,
            (
                curve.name,
                curve.setup.source,
                curve.fit[-1].workers,
                curve.holdout[-1].workers,
                f"{step.high / step.low:.4g}",
                between[named].workers,
                between[0].workers,
                f"{ratios[named]:.4g}",
                f"{ratios[0]:.4g}",
                f"{min(ratios):.4g}",
            ),
            strict=True,
        )
    )


def main() -> None:
    """Write the table and print what it comes to."""
    rows = []
    for curve in (curve for path in POINTS for curve in read_curves(path)):
        points = tuple(sorted((*curve.fit, *curve.holdout), key=lambda point: point.workers))
        if len(points) >= FEWEST:
            rows.append(judge(replace(curve, fit=points[:2], holdout=points[2:])))
            print(rows[-1], file=sys.stderr, flush=True)
    with TABLE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    names = ("named_ratio", "next_ratio", "now")
    named, following, now = (np.log([float(str(row[name])) for row in rows]) for name in names)
    differs = np.array([row["named"] != row["next"] for row in rows])
    narrower, wider = named < following, named > following
    print(f"{len(rows)} curves; another count than the next is named in {differs.sum()}")
    print(f"of these its interval is narrower in {(narrower & differs).sum()}, wider in {(wider & differs).sum()}")
    print(f"log width: now {now.mean():.3f}, count named {named.mean():.3f}, next count {following.mean():.3f}")


if __name__ == "__main__":
    main()
