"""Score every source once more with columns left empty, one at a time: does the model know what it does not know?

    python benchmarks/evidence/blank_columns.py [POINTS.csv ...] [--seeds 1]

Prints for each source and column the share of held-out points in their intervals of 90 %, how wide those are, and the
absolute errors beside the best null model's, which reads no column but workers. Wanted: 85 to 95 % in the intervals,
and errors that grow to those of the best null at most. Without ``framework`` nothing of ``stacks.toml`` is known of a
curve. Takes two minutes of one core a seed.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from learn_priors import POINTS

from steptime.curves.curve import Setup
from steptime.curves.facts import workload_of
from steptime.curves.posterior import predict_curve
from steptime.curves.reference_models import NULLS
from steptime.curves.table import read_curves
from steptime.scaling.assessment import ScoredPoint, of_curve, predict_holdout, score

BLANKED: Mapping[str, Callable[[Setup], Setup]] = {
    "none": lambda setup: setup,
    "inter_host_gbps": lambda setup: replace(setup, inter_host_rate=None, cards_per_host=None),
    "transport": lambda setup: replace(setup, transport=""),
    "accelerator": lambda setup: replace(setup, accelerator=""),
    "workers_per_host": lambda setup: replace(setup, workers_per_host=None),
    "framework": lambda setup: replace(setup, framework="", stack="", workload=workload_of(setup)),
    "intra_host_link": lambda setup: replace(setup, intra_host_link=""),
}


def main() -> None:
    """Score and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, nargs="*", default=[POINTS[0]])
    parser.add_argument("--seeds", type=int, default=1)
    asked = parser.parse_args()
    curves = [curve for table in asked.tables for curve in read_curves(table)]
    scored = {name: predict_holdout(curves, of_curve(model)) for name, model in NULLS.items()}
    nulls = {name: {"all": points, **_by_source(points)} for name, points in scored.items()}
    best = {source: min(score(null[source]).mape for null in nulls.values()) for source in nulls["last"]}
    print("| left empty | source | points | in 90 % | width | MAPE | median | P90 | interval score | best null: MAPE |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for column, blank in BLANKED.items():
        changed = [replace(curve, setup=blank(curve.setup)) for curve in curves]
        points = [
            point
            for seed in range(asked.seeds)
            for point in predict_holdout(changed, partial(predict_curve, seed=seed))
        ]
        for source, own in {"all": points, **_by_source(points)}.items():
            found = score(own)
            width = np.exp(np.median([np.log(point.high / point.low) for point in own]))
            print(
                f"| {column} | {source} | {len(own) // asked.seeds} | {found.coverage90:.0%} | {width:.2f} | "
                f"{found.mape:.1f} | {found.median_ape:.1f} | {found.p90_ape:.1f} | {found.interval_score:.3f} | "
                f"{best[source]:.1f} |",
                flush=True,
            )


def _by_source(points: Sequence[ScoredPoint]) -> dict[str, list[ScoredPoint]]:
    return {
        source: [point for point in points if point.source == source]
        for source in sorted({point.source for point in points})
    }


if __name__ == "__main__":
    main()
