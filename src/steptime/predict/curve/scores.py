"""Scores of predictions of held-out points: errors, bias and coverage of the intervals, for any model of a curve."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from steptime.measurements.json_form import Interval
from steptime.predict.curve.curve import Array, PointsAsked, ScalingCurve

_TAIL = 0.1
"""Share of truths that may lie outside an interval of 90 %."""


@dataclass(frozen=True)
class ScoredPoint:
    """A predicted point beside its measurement; times in seconds."""

    curve: str
    source: str
    regime: str
    workers: int
    measured: float
    predicted: float
    low: float
    high: float

    @property
    def ape(self) -> float:
        """Absolute error in percent of the measured time."""
        return abs(self.predicted / self.measured - 1) * 100


@dataclass(frozen=True)
class Score:
    """Of several points; shares are of 1, errors in percent."""

    n: int
    mape: float
    median_ape: float
    p90_ape: float
    bias: float
    """Mean signed error in percent; positive where predicted times are too long."""
    coverage90: float
    interval_score: float
    """Mean of the logarithmic width, and of twenty times how far (in log) a truth lies outside; lower is better."""


def score(points: Sequence[ScoredPoint]) -> Score:
    """Return the score of points; there must be one."""
    ape = np.array([point.ape for point in points])
    measured, predicted, low, high = (
        np.log([getattr(point, name) for point in points]) for name in ("measured", "predicted", "low", "high")
    )
    return Score(
        n=len(points),
        mape=float(ape.mean()),
        median_ape=float(np.median(ape)),
        p90_ape=float(np.percentile(ape, 90)),
        bias=float(np.mean(np.expm1(predicted - measured)) * 100),
        coverage90=float(np.mean((low <= measured) & (measured <= high))),
        interval_score=float(np.mean(_interval_scores(measured, low, high))),
    )


def score_groups(points: Sequence[ScoredPoint], group: Callable[[ScoredPoint], str]) -> dict[str, dict[str, float]]:
    """Return the scores of groups of points, by the group's name."""
    names = sorted({group(point) for point in points})
    return {name: asdict(score([point for point in points if group(point) == name])) for name in names}


def summary(points: Sequence[ScoredPoint]) -> dict[str, Any]:
    """Return the scores of all points, by source and by class; empty where there is no point."""
    if not points:
        return {"all": {"n": 0}, "by_source": {}, "by_class": {}}
    return {
        "all": asdict(score(points)),
        "by_source": score_groups(points, lambda point: point.source),
        "by_class": score_groups(points, lambda point: point.regime),
    }


def mean_scores(scores: Sequence[Score]) -> Score:
    """Return the mean of scores of the same points, as by several seeds."""
    columns = np.mean([[value for key, value in asdict(each).items() if key != "n"] for each in scores], axis=0)
    return Score(scores[0].n, *map(float, columns))


def _interval_scores(measured: Array, low: Array, high: Array) -> Array:
    outside = np.maximum(low - measured, 0) + np.maximum(measured - high, 0)
    scores: Array = high - low + 2 / _TAIL * outside
    return scores


Predictor = Callable[[ScalingCurve, PointsAsked], Sequence[Interval[float, float]]]
"""Says what the points asked for take, from a curve that has none but its fit points."""


def predict_holdout(curves: Sequence[ScalingCurve], predictor: Predictor) -> list[ScoredPoint]:
    """Return predictions of all holdout points, in the order of the curves; the predictor never sees their times."""
    return [point for curve in curves if curve.holdout for point in _judge_curve(curve, predictor)]


def _judge_curve(curve: ScalingCurve, predictor: Predictor) -> list[ScoredPoint]:
    asked = [(point.workers, point.servers) for point in curve.holdout]
    predictions = predictor(replace(curve, holdout=()), asked)
    return [
        ScoredPoint(
            curve=curve.name,
            source=curve.setup.source,
            regime=curve.regime(point.workers),
            workers=point.workers,
            measured=point.step_time,
            predicted=prediction.value,
            low=prediction.low,
            high=prediction.high,
        )
        for point, prediction in zip(curve.holdout, predictions, strict=True)
    ]
