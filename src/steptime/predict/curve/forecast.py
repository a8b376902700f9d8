"""Forecasts of a user's own scaling curve: step times at further worker counts, and scores of held-out rows."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from steptime.measurements.json_form import Interval
from steptime.predict.curve.curve import ScalingCurve
from steptime.predict.curve.information_value import EmptyColumn, FurtherPoint, empty_columns, further_points
from steptime.predict.curve.posterior import posterior, predict_curve, summarize
from steptime.predict.curve.priors import priors_for
from steptime.predict.curve.scores import ScoredPoint, predict_holdout, score


@dataclass(frozen=True)
class ForecastPoint:
    """The forecast of one number of workers; each worker keeps its batch."""

    workers: int
    step_s: Interval[float, float]
    throughput: float | None
    """Samples per second over all workers; None if the table has no batch per worker."""
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
    empty_columns: tuple[EmptyColumn, ...] = ()
    """What the table does not state, by how far each is expected to narrow the last point's interval."""
    further_points: tuple[FurtherPoint, ...] = ()
    """Numbers of workers to measure next, by how far each is expected to narrow the last point's interval."""

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
            "empty_columns": [
                {"column": each.column, "expected_high_over_low": each.ratio, "question": each.question}
                for each in self.empty_columns
            ],
            "further_points": [
                {"workers": each.workers, "expected_high_over_low": each.ratio} for each in self.further_points
            ],
            "score": asdict(score(self.held_out)) if self.held_out else None,
        }


def forecast(curves: Sequence[ScalingCurve], workers: Sequence[int]) -> list[Forecast]:
    """Return the forecasts of each curve at each number of workers; held-out rows take no part in them."""
    return [_forecast(curve, workers) for curve in curves]


_MOST_FURTHER_POINTS = 4


def _forecast(curve: ScalingCurve, workers: Sequence[int]) -> Forecast:
    servers = curve.fit[-1].servers
    counts = [point.workers for point in curve.fit]
    candidates = _candidates(max(counts), max(workers, default=0))
    asked = [(count, servers) for count in (*workers, *candidates)]
    found = posterior(curve, asked, priors_for(curve.setup.source)) if workers else []
    predicted = summarize(found)[: len(workers)] if workers else []
    first, batch = curve.fit[0], curve.setup.batch_per_worker
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
    held_out = tuple(predict_holdout([curve], predict_curve))
    if not workers:
        return Forecast(curve, points, held_out)
    last = max(range(len(workers)), key=lambda index: workers[index])
    places = {count: len(workers) + index for index, count in enumerate(candidates)}
    return Forecast(
        curve,
        points,
        held_out,
        tuple(empty_columns(curve, found, last)),
        tuple(further_points(found, places, last)),
    )


def _candidates(measured: int, asked: int) -> list[int]:
    """Return numbers of workers to measure next: doublings of the most measured that are fewer than those asked for."""
    doublings = [measured * 2**power for power in range(1, _MOST_FURTHER_POINTS + 1)]
    return [count for count in doublings if count < asked]
