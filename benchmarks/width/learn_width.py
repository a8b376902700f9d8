"""Fit how wide intervals are beyond what was measured to steps that predictions of ``predict`` itself did not know.

::

    python benchmarks/width/learn_width.py [FOLDER ...]

Reads the published curves of ``tests/curves/data``, and folders of ``benchmarks/accuracy/forecast.py``, of which
only cells on a quiet machine count; points of earlier runs whose folder is not given again are kept. Writes
``held_out_points.csv`` and ``extrapolation.json`` of ``src/steptime/predict``: the numbers with which intervals of 90 %
have the best interval score (T. Gneiting, A. Raftery, JASA 102 (2007) 359), on the scale of logarithms, with sources
counting alike; then the coverage, and the coverage on each source with the numbers fitted to all others.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from emulated_points import emulated_points, prototype_points
from held_out_points import LONGER, HeldOutPoint, read_points, write_points
from numpy.typing import NDArray
from published_points import published_points
from scipy.optimize import minimize

Array = NDArray[np.float64]
ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "tests" / "curves" / "data" / "published-scaling.csv"
PREDICT = ROOT / "src" / "steptime" / "predict"
POINTS, RULE = PREDICT / "held_out_points.csv", PREDICT / "extrapolation.json"
NAMES = ("per_doubling", "crossing", "turns", "shorter")
START = (0.15, 0.3, 0.05, 0.4)
PRIOR = 0.7
"""Standard deviation of each number's logarithm around ``START``, which holds where no point says anything."""
_DRAWS = 400
_LEVEL = 0.9


def main() -> None:
    """Collect points, fit, write and print."""
    found = [*published_points(PUBLISHED), *prototype_points()]
    for folder in sys.argv[1:]:
        found += emulated_points(Path(folder).resolve())
    cases = {point.case for point in found}
    kept = [point for point in read_points(POINTS) if point.kind == "emulated"] if POINTS.is_file() else []
    found += [point for point in kept if point.case not in cases]
    write_points(POINTS, found)
    fitted = fit(found)
    rule = json.loads(RULE.read_text())
    counts = {kind: sum(point.kind == kind for point in found) for kind in ("published", "emulated")}
    source = (
        f"held_out_points.csv: {counts['published']} points of published curves and {counts['emulated']} of emulated "
        f"hosts, of {len({point.case for point in found})} cases; benchmarks/width/learn_width.py"
    )
    numbers = {name: round(value, 4) for name, value in fitted.items()}
    RULE.write_text(json.dumps({"source": source, **numbers, "workload": rule["workload"]}, indent=1) + "\n")
    print(source, numbers, sep="\n")
    print(f"inside: {coverage(found, fitted):.0%} of {len(found)}")
    for name in dict.fromkeys(point.source for point in found):
        own, others = ([p for p in found if (p.source == name) == same] for same in (True, False))
        if others:
            print(f"{name}, fitted without it: inside {coverage(own, fit(others)):.0%} of {len(own)}")


def fit(points: Sequence[HeldOutPoint]) -> dict[str, float]:
    """Return the numbers of ``ErrorGrowth`` with the best interval score."""
    sources = [point.source for point in points]
    weights = np.array([1.0 / sources.count(source) for source in sources])

    def cost(logs: Array) -> float:
        low, high, measured = _bounds(points, dict(zip(NAMES, np.exp(logs), strict=True)))
        missed = np.maximum(low - measured, 0.0) + np.maximum(measured - high, 0.0)
        score = float(weights @ (high - low + 2.0 / (1.0 - _LEVEL) * missed) / weights.sum())
        # The prior counts as one point.
        return score + float(np.sum(((logs - np.log(START)) / PRIOR) ** 2)) / (2 * len(points))

    best = minimize(cost, np.log(START), method="Nelder-Mead", options={"xatol": 1e-2, "fatol": 1e-5, "maxiter": 600})
    return {name: float(value) for name, value in zip(NAMES, np.exp(best.x), strict=True)}


def coverage(points: Sequence[HeldOutPoint], fitted: Mapping[str, float]) -> float:
    """Return the share of points inside their intervals of 90 %."""
    low, high, measured = _bounds(points, fitted)
    return float(np.mean((low <= measured) & (measured <= high)))


def _bounds(points: Sequence[HeldOutPoint], fitted: Mapping[str, float]) -> tuple[Array, Array, Array]:
    """Return the ends of the intervals and what was measured, logarithms of seconds, (points,) each."""
    normal = np.random.default_rng(3).standard_normal((3, len(points), _DRAWS))
    doublings = np.log2([point.workers / point.known_workers for point in points]).clip(min=0.0)
    walked = fitted["per_doubling"] * np.sqrt(doublings)
    waiting = np.hypot(walked, fitted["crossing"] * np.array([p.crosses for p in points]))
    skewed = np.where(normal[0] > 0.0, normal[0], fitted["shorter"] * normal[0])
    longer = waiting[:, None] * skewed
    steps = np.log([[p.halved_s, p.predicted_s, p.doubled_s, p.quadrupled_s] for p in points])
    logs = np.stack([_interpolated(each, row) for each, row in zip(longer, steps, strict=True)])
    computing = fitted["turns"] * np.log2([point.turns for point in points])
    own = np.array([point.own_deviation for point in points])
    logs = logs + own[:, None] * normal[1] + computing[:, None] * normal[2]
    low, high = np.quantile(logs, [(1.0 - _LEVEL) / 2, (1.0 + _LEVEL) / 2], axis=1)
    return low, high, np.log([point.measured_s for point in points])


def _interpolated(longer: Array, steps: Array) -> Array:
    """Return logarithms of steps, linear between the kept ones and as steep beyond the longest as between the last."""
    known = np.log(LONGER)
    slope = (steps[-1] - steps[-2]) / (known[-1] - known[-2])
    found: Array = np.interp(longer, known, steps) + slope * np.maximum(longer - known[-1], 0.0)
    return found


if __name__ == "__main__":
    main()
