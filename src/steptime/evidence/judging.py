"""Predicting what is to be predicted of curves, by any model, and putting the measurements beside it."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from steptime.evidence.curve import Curve, Prediction
from steptime.evidence.scoring import Judged

Asked = Sequence[tuple[int, int | None]]
"""Workers and servers of points; None where the servers are not stated."""

Predictor = Callable[[Curve, Asked], Sequence[Prediction]]
"""Says what the points asked for take, from a curve that has none but its fit points."""


def judge(curves: Sequence[Curve], predictor: Predictor) -> list[Judged]:
    """Return predictions of all holdout points, in the order of the curves; the predictor never sees their times."""
    return [point for curve in curves if curve.holdout for point in _judge_curve(curve, predictor)]


def _judge_curve(curve: Curve, predictor: Predictor) -> list[Judged]:
    asked = [(point.workers, point.servers) for point in curve.holdout]
    predictions = predictor(replace(curve, holdout=()), asked)
    return [
        Judged(
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
