"""The whole: predict every holdout point of a table of curves, and score that beside the null models."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from steptime.predict.curve.curve import ScalingCurve
from steptime.predict.curve.nulls import score_references
from steptime.predict.curve.priors import predict_curve
from steptime.predict.curve.reference_models import NULLS
from steptime.predict.curve.scores import ScoredPoint, predict_holdout, score, score_groups, summary


def assess(curves: Sequence[ScalingCurve]) -> dict[str, Any]:
    """Return what ``steptime evidence --json`` prints."""
    points = predict_holdout(curves, predict_curve)
    references = score_references(curves)
    return {
        "points": [_form(point) for point in points],
        "summary": summary(points),
        "null_models": {name: _score_of(references[name]) for name in NULLS},
        "reference_models": {name: _score_of(scored) for name, scored in references.items() if name not in NULLS},
    }


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
