"""Assessment of the curve model: predictions of every held-out point of a table, beside null and reference models."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

from steptime.errors import UsageError
from steptime.measurements.json_form import Interval
from steptime.predict.curve.curve import HOLDOUT, Array, PointsAsked, ScalingCurve, times, workers
from steptime.predict.curve.job_models import INFORMED, InformedModel, job_of
from steptime.predict.curve.posterior import predict_curve
from steptime.predict.curve.reference_models import NULLS, REFERENCES, CurveModel
from steptime.predict.curve.scores import (
    Predictor,
    Score,
    ScoredPoint,
    mean_scores,
    predict_holdout,
    score,
    score_groups,
    summary,
)

_LEVELS = (0.05, 0.95)
_LEAST_SHARE = 1e-3
"""Of the smallest measured time: nothing is predicted to take less."""


def assess(curves: Sequence[ScalingCurve], seeds: int = 1) -> dict[str, Any]:
    """Return the object that ``steptime evidence --json`` prints.

    The posterior is made of samples: with several seeds all scores of the model are means over them, and ``seeds`` has
    the score of each; the points are those of the first.

    Raises UsageError where no curve has a held-out point: there is nothing to score.
    """
    if not any(curve.holdout for curve in curves):
        message = (
            f"no row has the role {HOLDOUT}, so that no prediction can be scored; give the largest worker counts of "
            f"each curve the role {HOLDOUT}, or predict further counts: steptime predict --curve POINTS.csv --workers N"
        )
        raise UsageError(message)
    drawn = [predict_holdout(curves, partial(predict_curve, seed=seed)) for seed in range(seeds)]
    points = drawn[0]
    references = score_references(curves)
    return {
        "points": [_form(point) for point in points],
        "summary": _mean_summary([summary(each) for each in drawn]),
        "seeds": [asdict(score(each)) for each in drawn],
        "null_models": {name: _score_of(references[name]) for name in NULLS},
        "reference_models": {name: _score_of(scored) for name, scored in references.items() if name not in NULLS},
    }


def _mean_summary(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the means of summaries of the same points."""
    groups = {
        kind: {name: _mean([each[kind][name] for each in found]) for name in found[0][kind]}
        for kind in ("by_source", "by_class")
    }
    return {"all": _mean([each["all"] for each in found]), **groups}


def _mean(scores: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return asdict(mean_scores([Score(**each) for each in scores]))


def _form(point: ScoredPoint) -> dict[str, Any]:
    return {
        "curve": point.curve,
        "source": point.source,
        "class": point.regime,
        "workers": point.workers,
        "measured_s": point.measured,
        "predicted_s": point.predicted,
        "low_s": point.low,
        "high_s": point.high,
        "ape": point.ape,
    }


def _score_of(points: Sequence[ScoredPoint]) -> dict[str, Any]:
    if not points:
        return {"n": 0}
    return {
        **asdict(score(points)),
        "by_source": score_groups(points, lambda point: point.source),
        "by_class": score_groups(points, lambda point: point.regime),
    }


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


def _counts(asked: PointsAsked) -> Array:
    return np.array([count for count, _ in asked], dtype=float)


def _sure(curve: ScalingCurve, values: Array) -> list[Interval[float, float]]:
    """Return values without intervals; below the points fitted, some models come down to no time at all."""
    least = _LEAST_SHARE * times(curve.fit).min()
    return [Interval(value, value, value) for value in map(float, np.maximum(values, least))]
