"""Assessment of the curve model: predictions of every held-out point of a table, beside null and reference models.

Scores of predictions of held-out points: errors, bias and coverage of the intervals, for any model of a curve.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from steptime.curves.curve import HOLDOUT, Array, PointsAsked, ScalingCurve, times, workers
from steptime.curves.posterior import predict_curve
from steptime.curves.reference_models import INFORMED, NULLS, REFERENCES, CurveModel, InformedModel, job_of
from steptime.errors import UsageError
from steptime.results.json_form import Interval

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
