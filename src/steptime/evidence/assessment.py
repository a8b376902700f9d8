"""The whole: predict every holdout point of a table of curves, and score that beside the null models."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from steptime.evidence.curve import Curve
from steptime.evidence.nulls import judge_reference
from steptime.evidence.posterior import predict
from steptime.evidence.priors import beliefs_for
from steptime.evidence.scoring import Judged, score, score_groups, summary
from steptime.perfmodels.references.table import NULLS, REFERENCES


def judge(curves: Sequence[Curve]) -> list[Judged]:
    """Return the model's predictions of all holdout points, in the order of the curves."""
    return [point for curve in curves for point in _judge_curve(curve)]


def assess(curves: Sequence[Curve]) -> dict[str, Any]:
    """Return what ``steptime evidence --json`` prints."""
    points = judge(curves)
    references = {name: judge_reference(model, curves) for name, model in REFERENCES.items()}
    return {
        "points": [_form(point) for point in points],
        "summary": summary(points),
        "null_models": {name: _score_of(references[name]) for name in NULLS},
        "reference_models": {name: _score_of(judged) for name, judged in references.items() if name not in NULLS},
    }


def _judge_curve(curve: Curve) -> list[Judged]:
    asked = [(point.workers, point.servers) for point in curve.holdout]
    predictions = predict(curve, asked, beliefs_for(curve.setup.source))
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


def _form(point: Judged) -> dict[str, Any]:
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


def _score_of(points: Sequence[Judged]) -> dict[str, Any]:
    if not points:
        return {"n": 0}
    return {
        **asdict(score(points)),
        "by_source": score_groups(points, lambda point: point.source),
        "by_class": score_groups(points, lambda point: point.regime),
    }
