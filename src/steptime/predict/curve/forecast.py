"""Forecasts of a user's own scaling curve: step times at further worker counts, and scores of held-out rows."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from steptime.predict.curve.curve import PredictedPoint, ScalingCurve
from steptime.predict.curve.posterior import predict_curve
from steptime.predict.curve.scores import ScoredPoint, predict_holdout, score


@dataclass(frozen=True)
class ForecastPoint:
    """The forecast of one number of workers; each worker keeps its batch."""

    workers: int
    step_s: PredictedPoint
    throughput: float | None
    """Samples per second over all workers; None where the table has no batch per worker."""
    efficiency: float
    """Throughput per worker over the measured throughput per worker of the fewest workers."""
    extrapolation: float
    """How far the workers lie outside the measured numbers of workers, as a ratio; 1 inside."""


@dataclass(frozen=True)
class Forecast:
    """Forecasts of one curve, and its held-out rows beside their predictions."""

    curve: ScalingCurve
    points: tuple[ForecastPoint, ...]
    held_out: tuple[ScoredPoint, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the object that docs/prediction.md describes."""
        return {
            "curve": self.curve.name,
            "baseline_workers": self.curve.fit[0].workers,
            "predictions": [
                {
                    "workers": point.workers,
                    "step_time_s": asdict(point.step_s),
                    "throughput_samples_per_s": point.throughput,
                    "efficiency": point.efficiency,
                    "extrapolation": point.extrapolation,
                }
                for point in self.points
            ],
            "held_out": [
                {
                    "workers": point.workers,
                    "measured_s": point.measured,
                    "predicted_s": {"value": point.predicted, "low": point.low, "high": point.high},
                    "ape": point.ape,
                }
                for point in self.held_out
            ],
            "score": asdict(score(self.held_out)) if self.held_out else None,
        }


def forecast(curves: Sequence[ScalingCurve], workers: Sequence[int]) -> list[Forecast]:
    """Return the forecasts of each curve at each number of workers; held-out rows take no part in them."""
    return [_forecast(curve, workers) for curve in curves]


def _forecast(curve: ScalingCurve, workers: Sequence[int]) -> Forecast:
    servers = curve.fit[-1].servers
    predicted = predict_curve(curve, [(count, servers) for count in workers])
    first, batch = curve.fit[0], curve.setup.batch_per_worker
    counts = [point.workers for point in curve.fit]
    points = tuple(
        ForecastPoint(
            workers=count,
            step_s=step,
            throughput=None if batch is None else batch * count / step.value,
            efficiency=first.step_time / step.value,
            extrapolation=max(1.0, count / max(counts), min(counts) / count),
        )
        for count, step in zip(workers, predicted, strict=True)
    )
    return Forecast(curve, points, tuple(predict_holdout([curve], predict_curve)))
