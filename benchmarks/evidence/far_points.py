"""Whether intervals hold points at four and more times the workers of a fit on several hosts, by source.

    python benchmarks/evidence/far_points.py [--cuts]

Of all tables of curves, with beliefs that were learned without the source of each. With ``--cuts`` every curve is also
cut at every number of workers that spans several hosts, and not only where its table says.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from learn_priors import POINTS

from steptime.curves.curve import ScalingCurve
from steptime.curves.posterior import predict_curve
from steptime.curves.table import read_curves
from steptime.scaling.assessment import predict_holdout

_TIMES = 4


def cuts(curve: ScalingCurve) -> Iterator[ScalingCurve]:
    """Yield the curve fitted to its first two points, three, and so on."""
    points = sorted((*curve.fit, *curve.holdout), key=lambda point: point.workers)
    for known in range(2, len(points)):
        yield replace(curve, fit=tuple(points[:known]), holdout=tuple(points[known:]))


def far(curve: ScalingCurve) -> ScalingCurve | None:
    """Return the curve with the points alone that lie so far out; None without any, or if its fit never left a host."""
    points = tuple(point for point in curve.holdout if point.workers >= _TIMES * curve.fit[-1].workers)
    return replace(curve, holdout=points) if points and curve.left_host else None


def main() -> None:
    """Print a line for each source, and one for all."""
    tables = [*POINTS, Path(__file__).with_name("held-out-curves.csv")]
    curves = [curve for table in tables for curve in read_curves(table)]
    if "--cuts" in sys.argv[1:]:
        curves = [cut for curve in curves for cut in cuts(curve)]
    points = predict_holdout([each for each in map(far, curves) if each is not None], predict_curve)
    for source in ["", *sorted({point.source for point in points})]:
        own = [point for point in points if source in ("", point.source)]
        held = sum(point.low <= point.measured <= point.high for point in own)
        slower = sum(point.measured > point.high for point in own)
        width = np.mean([np.log(point.high / point.low) for point in own])
        print(
            f"{source or 'all':24} {held} of {len(own)} inside, {slower} slower, mean width {width:.2f} in logarithms"
        )


if __name__ == "__main__":
    main()
