"""Forecasts of a user's own scaling curve: step times at further worker counts, its knees, scores of held-out rows."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from steptime.curves.curve import Array, Point, ScalingCurve
from steptime.curves.facts import computes_on_processors
from steptime.curves.posterior import AssumedHosts, Explanation, posterior, predict_curve, summarize
from steptime.curves.shape import INDEX, joint_prior, priors_for
from steptime.curves.transformer import TransformerWork, transformer_work
from steptime.predict.held_out_test import HeldOutTest, judged
from steptime.predict.worker_ratio import WorkerRatio, worker_ratio
from steptime.results.json_form import Interval
from steptime.scaling.assessment import ScoredPoint, predict_holdout, score
from steptime.scaling.empty_columns import EmptyColumn, empty_columns
from steptime.scaling.further_pair import FurtherPair, further_pair
from steptime.scaling.further_points import FurtherPoint, further_points
from steptime.scaling.knee import MOST_WORKERS, SHARES, Knee, doublings, knees
from steptime.scaling.strong import drawn_steps, predict_strong, strong_posterior


@dataclass(frozen=True)
class ForecastPoint:
    """The forecast of one number of workers."""

    workers: int
    step_s: Interval[float, float]
    throughput: float | None
    """Samples per second over all workers; None if the table has no batch."""
    efficiency: float
    """Throughput per worker over the measured throughput per worker of the fewest workers."""
    extrapolation: float
    """How far the workers lie outside the measured numbers of workers, as a ratio; 1 inside."""
    work: TransformerWork | None = None
    """Of a transformer whose tokens the table states."""


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
    further_pair: FurtherPair | None = None
    """The two of them that narrow it most together; None of fewer than two."""
    knees: tuple[Knee, ...] = ()
    """Where more workers bring too little, each with its batch."""
    ratios: tuple[WorkerRatio, ...] = ()
    """Each forecast number of workers over the one before it."""

    @property
    def tested(self) -> HeldOutTest:
        """How it did on its held-out rows."""
        return judged((each.measured, Interval(each.predicted, each.low, each.high)) for each in self.held_out)

    @property
    def cores(self) -> str | None:
        """What the forecast takes of cores that workers share; None on devices, and where cores suffice."""
        setup = self.curve.setup
        most = max((point.workers for point in self.points), default=1)
        if setup.shared_cores is not None:
            return setup.shared_cores.sentence(int(min(most, setup.host_size))) or None
        if setup.accelerator and computes_on_processors(setup.accelerator):
            return "cores_per_host is empty: no workers are taken to share cores"
        return None

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
                    **_work_to_json(point.work),
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
            "further_pair": None
            if self.further_pair is None
            else {"workers": self.further_pair.workers, "expected_high_over_low": self.further_pair.ratio},
            "compared": [ratio.to_json() for ratio in self.ratios],
            "knees": [knee.to_json() for knee in self.knees],
            "cores": self.cores,
            "score": asdict(score(self.held_out)) if self.held_out else None,
        }


def _work_to_json(work: TransformerWork | None) -> dict[str, Any]:
    rates = dict.fromkeys(field.name for field in fields(TransformerWork)) if work is None else asdict(work)
    return {key: {"value": None, "low": None, "high": None} if value is None else value for key, value in rates.items()}


def forecast(
    curves: Sequence[ScalingCurve], workers: Sequence[int], shares: Sequence[float] = SHARES, error: float = 0.0
) -> list[Forecast]:
    """Return the forecasts of each curve at each number of workers; held-out rows take no part in them.

    Args:
        curves: each with points that are fitted.
        workers: numbers of them.
        shares: of efficiency, of which knees are searched.
        error: of the logarithm of the measured steps of the most workers over those of the fewest, for knees.
    """
    return [_forecast(curve, workers, shares, error) for curve in curves]


_MOST_FURTHER_POINTS = 4


def _forecast(curve: ScalingCurve, workers: Sequence[int], shares: Sequence[float], error: float) -> Forecast:
    if curve.setup.one_batch:
        return _forecast_strong(curve, workers, shares, error)
    servers = curve.fit[-1].servers
    counts = [point.workers for point in curve.fit]
    candidates = _candidates(max(counts), max(workers, default=0))
    asked = [(count, servers) for count in (*workers, *candidates)]
    found = posterior(curve, asked, priors_for(curve.setup.source)) if workers else []
    predicted = summarize(found)[: len(workers)] if workers else []
    points = _points(curve, workers, predicted)
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
        further_pair(found, places, last),
        tuple(curve_knees(curve, found, max(MOST_WORKERS, *workers), shares, error)),
        _ratios(points, partial(_drawn_s, curve, found), error),
    )


def _drawn_s(curve: ScalingCurve, assumed: Sequence[AssumedHosts], counts: Sequence[int]) -> Array:
    """Return draws of the seconds for the samples of one worker's step at numbers of workers, (draws, counts)."""
    seconds: Array = np.exp(drawn_log_times(curve, assumed, counts)) / np.asarray(counts, dtype=float)
    return seconds


def _ratios(
    points: Sequence[ForecastPoint], drawn_s: Callable[[Sequence[int]], Array], error: float, *, one_batch: bool = False
) -> tuple[WorkerRatio, ...]:
    """Return each number of workers over the one before it, of which the larger errs as the model did.

    Args:
        points: the forecasts.
        drawn_s: returns draws for the same samples at numbers of workers, (draws, counts).
        error: as ``forecast`` has it.
        one_batch: whether a step has the same samples with any number of workers.
    """
    steps = {point.workers: point.step_s.value for point in sorted(points, key=lambda point: point.workers)}
    counts = list(steps)
    if len(counts) < 2:  # noqa: PLR2004 - one has none to be compared with
        return ()
    seconds = drawn_s(counts)
    errs = np.exp(error * np.random.default_rng(_SEED).standard_normal(len(seconds)))
    return tuple(
        worker_ratio(
            (fewer, more),
            (seconds[:, place], seconds[:, place + 1] * errs),
            steps[more] / steps[fewer] * (1.0 if one_batch else fewer / more),
        )
        for place, (fewer, more) in enumerate(pairwise(counts))
    )


def _points(
    curve: ScalingCurve, workers: Sequence[int], steps: Sequence[Interval[float, float]]
) -> tuple[ForecastPoint, ...]:
    first, setup = curve.fit[0], curve.setup
    counts = [point.workers for point in curve.fit]
    points = []
    for count, step in zip(workers, steps, strict=True):
        own = None if setup.batch_per_worker is None else setup.batch_per_worker * count
        batch = setup.global_batch if setup.one_batch else own
        more = count / first.workers if setup.one_batch else 1.0
        points.append(
            ForecastPoint(
                workers=count,
                step_s=step,
                throughput=None if batch is None else batch / step.value,
                efficiency=first.step_time / (step.value * more),
                extrapolation=max(1.0, count / max(counts), min(counts) / count),
                work=transformer_work(setup, count, step),
            )
        )
    return tuple(points)


def _forecast_strong(curve: ScalingCurve, workers: Sequence[int], shares: Sequence[float], error: float) -> Forecast:
    """Return the forecast of workers that share one batch."""
    held_out = tuple(predict_holdout([curve], predict_strong))
    if not workers:
        return Forecast(curve, (), held_out)
    first, servers = curve.fit[0], curve.fit[-1].servers
    most = min(curve.setup.global_batch or MOST_WORKERS, max(MOST_WORKERS, *workers))
    searched = doublings(first.workers, most)
    assumed = strong_posterior(curve, [(count, servers) for count in (*workers, *searched)])
    drawn = np.exp(drawn_steps(assumed, _DRAWS, _SEED))
    seconds = drawn[:, len(workers) :].copy()
    seconds[:, 1:] *= np.exp(error * np.random.default_rng(_SEED).standard_normal((len(seconds), 1)))
    more = np.asarray(searched, dtype=float) / first.workers
    bends = knees(searched, first.step_time / (seconds * more), 1.0 / seconds, shares)
    points = _points(curve, workers, summarize(assumed)[: len(workers)])
    last = max(range(len(workers)), key=lambda index: workers[index])
    fitted = curve.fit[-1].workers
    places = {count: place for place, count in enumerate(searched, len(workers)) if fitted < count < workers[last]}
    pair = further_pair(assumed, places, last)
    ratios = _ratios(points, lambda counts: drawn[:, [workers.index(each) for each in counts]], error, one_batch=True)
    return Forecast(curve, points, held_out, further_pair=pair, knees=tuple(bends), ratios=ratios)


_DRAWS = 2000
_SEED = 11


def curve_knees(
    curve: ScalingCurve,
    assumed: Sequence[AssumedHosts],
    most: int = MOST_WORKERS,
    shares: Sequence[float] = SHARES,
    error: float = 0.0,
) -> list[Knee]:
    """Return the knees of a curve relative to the measured step of its fewest workers, from draws of its posterior."""
    counts = doublings(curve.fit[0].workers, most)
    seconds = np.exp(drawn_log_times(curve, assumed, counts))
    seconds[:, 1:] *= np.exp(error * np.random.default_rng(_SEED).standard_normal((len(seconds), 1)))
    workers = np.asarray(counts, dtype=float)
    return knees(counts, curve.fit[0].step_time / seconds, workers / seconds, shares)


def drawn_log_times(curve: ScalingCurve, assumed: Sequence[AssumedHosts], counts: Sequence[int]) -> Array:
    """Return draws of the logarithms of times at several numbers of workers together, (draws, counts).

    A draw is a time itself, without the noise of measuring it.
    """
    rng = np.random.default_rng(_SEED)
    shares = np.array([one.share for one in assumed])
    asked = [Point(count, curve.fit[-1].servers, 1.0) for count in counts]
    drawn = []
    for one, count in zip(assumed, rng.multinomial(_DRAWS, shares / shares.sum()), strict=True):
        if count == 0:
            continue
        setup = replace(curve.setup, assumed_host_size=one.host_size, assumed_spread=one.spread, assumed_once=one.once)
        explained = Explanation(
            replace(curve, setup=setup), curve.fit, asked, joint_prior(priors_for(curve.setup.source))
        )
        weights = one.samples.weights / one.samples.weights.sum()
        parameters = one.samples.parameters[rng.choice(len(weights), count, p=weights)]
        known = explained.weigh(parameters, np.zeros(count))
        noise = np.exp(2 * parameters[:, INDEX["noise"]])
        factor = _root(known.covariance - noise[:, None, None] * np.eye(len(counts)))
        drawn.append(known.mean + np.einsum("npq,nq->np", factor, rng.standard_normal((count, len(counts)))))
    return np.concatenate(drawn)


def _root(covariance: Array) -> Array:
    """Return matrices that times their transposes are covariances, of which rounding may leave some not positive."""
    values, vectors = np.linalg.eigh(covariance)
    root: Array = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    return root


def _candidates(measured: int, asked: int) -> list[int]:
    """Return numbers of workers to measure next: doublings of the most measured that are fewer than those asked for."""
    doublings = [measured * 2**power for power in range(1, _MOST_FURTHER_POINTS + 1)]
    return [count for count in doublings if count < asked]
