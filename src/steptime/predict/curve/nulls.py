"""Null and reference models on the same points, with the intervals that their own errors would have needed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from steptime.predict.curve.curve import Array, PredictedPoint, ScalingCurve, times, workers
from steptime.predict.curve.informed_models import INFORMED, InformedModel
from steptime.predict.curve.jobs import job_of
from steptime.predict.curve.reference_models import REFERENCES, CurveModel
from steptime.predict.curve.scores import Asked, Predictor, ScoredPoint, predict_holdout

_LEVELS = (0.05, 0.95)
_LEAST_SHARE = 1e-3
"""Of the smallest measured time: nothing is predicted to take less."""


def score_references(curves: Sequence[ScalingCurve]) -> dict[str, list[ScoredPoint]]:
    """Return every reference model's predictions of all holdout points, by the model's name."""
    predictors: Mapping[str, Predictor] = {
        **{name: of_curve(model) for name, model in REFERENCES.items()},
        **{name: of_job(model) for name, model in INFORMED.items()},
    }
    return {name: _with_own_quantiles(predict_holdout(curves, predictor)) for name, predictor in predictors.items()}


def of_curve(model: CurveModel) -> Predictor:
    """Return a model of workers and times as a predictor of curves, without intervals."""
    return lambda curve, asked: _sure(curve, model(workers(curve.fit), times(curve.fit), _counts(asked)))


def of_job(model: InformedModel) -> Predictor:
    """Return a model that is told of a job as a predictor of curves, without intervals."""
    return lambda curve, asked: _sure(
        curve, model(job_of(curve, asked), workers(curve.fit), times(curve.fit), _counts(asked))
    )


def _with_own_quantiles(scored: Sequence[ScoredPoint]) -> list[ScoredPoint]:
    """Give each point the quantiles of the model's own errors on the very points of its class.

    That is knowledge after the event, which flatters the reference, so that a model whose intervals score better has
    earned it.
    """
    found: dict[str, tuple[float, float]] = {}
    for regime in {point.regime for point in scored}:
        errors = [np.log(point.measured / point.predicted) for point in scored if point.regime == regime]
        low, high = np.quantile(errors, _LEVELS)
        found[regime] = float(np.exp(low)), float(np.exp(high))
    return [
        replace(point, low=point.predicted * found[point.regime][0], high=point.predicted * found[point.regime][1])
        for point in scored
    ]


def _counts(asked: Asked) -> Array:
    return np.array([count for count, _ in asked], dtype=float)


def _sure(curve: ScalingCurve, values: Array) -> list[PredictedPoint]:
    """Return values without intervals; below the points fitted, some models come down to no time at all."""
    least = _LEAST_SHARE * times(curve.fit).min()
    return [PredictedPoint(value, value, value) for value in map(float, np.maximum(values, least))]
