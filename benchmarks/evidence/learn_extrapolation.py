"""Read the standard deviations of extrapolation.json off the errors of the curve model on published curves.

    python benchmarks/evidence/learn_extrapolation.py [POINTS.csv]

Takes seconds. Run it after a change of the curve model, its beliefs or the table. What the file says of workloads comes
from elsewhere and stays.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from steptime.predict.curve.curve import ScalingCurve
from steptime.predict.curve.posterior import predict_curve
from steptime.predict.curve.scores import ScoredPoint, predict_holdout
from steptime.predict.curve.table import read_curves

ROOT = Path(__file__).parents[2]
POINTS = ROOT / "tests" / "evidence" / "data" / "published-scaling.csv"
RULE = ROOT / "src" / "steptime" / "predict" / "extrapolation.json"
REGIMES = {"seen": "regime_seen", "first_step_out": "first_step_out"}
EXTRAPOLATIONS = (2, 4)
"""Workers asked for over the most that a curve was fitted to; other ratios are counted with the nearest."""


def main() -> None:
    """Predict, sort what was missed by regime and extrapolation, and write."""
    curves = read_curves(Path(sys.argv[1]) if len(sys.argv) > 1 else POINTS)
    points = predict_holdout(curves, predict_curve)
    rule = json.loads(RULE.read_text())
    rule["source"] = (
        f"residuals of `steptime evidence` over {len(points)} held-out points of {len({p.curve for p in points})} "
        "published scaling curves, priors cross-validated by source; 90 % quantile of |log(measured / predicted)|"
    )
    for regime, name in REGIMES.items():
        rule[name] = rows([point for point in points if point.regime == regime], curves)
    RULE.write_text(json.dumps(rule, indent=1) + "\n")
    print(json.dumps({name: rule[name] for name in REGIMES.values()}, indent=1))


def rows(points: Sequence[ScoredPoint], curves: Sequence[ScalingCurve]) -> list[dict[str, float]]:
    """Return how many points there are of each extrapolation, and the 90 % quantile of what was missed."""
    fitted = {curve.name: max(point.workers for point in curve.fit) for curve in curves}
    extrapolations = np.array([point.workers / fitted[point.curve] for point in points])
    nearest = np.array(EXTRAPOLATIONS)[np.abs(np.log2(extrapolations[:, None] / EXTRAPOLATIONS)).argmin(axis=1)]
    missed = np.abs(np.log([point.measured / point.predicted for point in points]))
    return [
        {
            "extrapolation": extrapolation,
            "points": int((nearest == extrapolation).sum()),
            "q90": round(float(np.quantile(missed[nearest == extrapolation], 0.9)), 3),
        }
        for extrapolation in EXTRAPOLATIONS
    ]


if __name__ == "__main__":
    main()
