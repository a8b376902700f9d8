"""Null and reference models on the same points, with the intervals that their own errors would have needed."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from steptime.evidence.curve import Curve, times, workers
from steptime.evidence.scoring import Judged
from steptime.perfmodels.references.curve_model import CurveModel

_LEVELS = (0.05, 0.95)


def judge_reference(model: CurveModel, curves: Sequence[Curve]) -> list[Judged]:
    """Return a reference model's predictions of all holdout points.

    Its intervals are the quantiles of its own errors on the very points of each class: knowledge after the event,
    which flatters the reference, so that a model whose intervals score better has earned it.
    """
    judged = [point for curve in curves for point in _predicted(model, curve)]
    found: dict[str, tuple[float, float]] = {}
    for regime in {point.regime for point in judged}:
        errors = [np.log(point.measured / point.predicted) for point in judged if point.regime == regime]
        low, high = np.quantile(errors, _LEVELS)
        found[regime] = float(np.exp(low)), float(np.exp(high))
    return [
        replace(point, low=point.predicted * found[point.regime][0], high=point.predicted * found[point.regime][1])
        for point in judged
    ]


def _predicted(model: CurveModel, curve: Curve) -> list[Judged]:
    if not curve.holdout:
        return []
    values = model(workers(curve.fit), times(curve.fit), workers(curve.holdout))
    return [
        Judged(
            curve=curve.name,
            source=curve.setup.source,
            regime=curve.regime(point.workers),
            workers=point.workers,
            measured=point.step_time,
            predicted=float(value),
            low=float(value),
            high=float(value),
        )
        for point, value in zip(curve.holdout, values, strict=True)
    ]
