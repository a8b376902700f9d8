"""The posterior of a scaling curve: samples of the parameters, weighted by how well they explain the fit points.

The logarithm of a time is the model's plus what no model knows: noise of each point, a drift that grows with the
distance in doublings of workers, another with doublings of hosts, and an error common to all points beyond one host.
Given a sample these are a Gaussian process, so that a prediction follows the last points where the model is off. The
mixture over samples has heavy tails.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri  # type: ignore[import-untyped]  # scipy ships no types

from steptime.predict.curve.curve import Array, Point, PointsAsked, PredictedPoint, ScalingCurve, times, workers
from steptime.predict.curve.priors import INDEX, LOG_SAMPLES, Normals, Priors, normals, priors_for
from steptime.predict.curve.shape import relative_times

_SCALE_VARIANCE = 1.0
"""Of the logarithm of the time of one worker: nothing is believed of it."""
_HALVES = 8
"""Normal quantiles that stand for the remaining uncertainty of one sample."""
_ROUNDS = 2
_SEARCH_LOG_SAMPLES = 11
"""Enough to see where explanations lie; only the last round, which predicts, needs more."""
_WIDER = 1.5
_LEAST_SPREAD = 0.3
"""Of the spread believed: no parameter is known so well that its tails are not tried."""
LEVEL = 0.9


@dataclass(frozen=True)
class WeightedSamples:
    """Samples of the parameters with weights that add up to one, and predictions of each."""

    parameters: Array
    weights: Array
    mean: Array
    """Of log times, (samples, points)."""
    deviation: Array


def predict_curve(curve: ScalingCurve, asked: PointsAsked) -> list[PredictedPoint]:
    """Return predictions from a curve's fit points with the priors for its source."""
    return predict(curve, asked, priors_for(curve.setup.source))


def predict(
    curve: ScalingCurve, points: Sequence[tuple[int, int | None]], priors: Priors, log_samples: int = LOG_SAMPLES
) -> list[PredictedPoint]:
    """Return predictions for (workers, servers) from the fit points of a curve."""
    if not points:
        return []
    asked = [Point(count, servers, 1.0) for count, servers in points]
    weighted = weigh_samples(curve, curve.fit, asked, priors, log_samples)
    spread = ndtri((np.arange(_HALVES) + 0.5) / _HALVES)
    logs = weighted.mean[:, :, None] + weighted.deviation[:, :, None] * spread
    weights = np.repeat(weighted.weights / _HALVES, _HALVES)
    tails = ((1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2)
    found = [np.exp(_quantiles(logs[:, point].ravel(), weights, tails)) for point in range(len(asked))]
    return [PredictedPoint(float(middle), float(low), float(high)) for low, middle, high in found]


def weigh_samples(
    curve: ScalingCurve, seen: Sequence[Point], asked: Sequence[Point], priors: Priors, log_samples: int = LOG_SAMPLES
) -> WeightedSamples:
    """Weight samples by the points ``seen`` and predict those ``asked``.

    Samples of what is believed beforehand rarely explain good points; in further rounds half of them are drawn from
    where the ones before found explanations, widened, and all are weighted by what both say of them.
    """
    prior_normals = near = normals(priors)
    for _ in range(_ROUNDS):
        found = _weigh(curve, seen, asked, (prior_normals, near), min(log_samples, _SEARCH_LOG_SAMPLES))
        mean = found.weights @ found.parameters
        spread = np.sqrt(found.weights @ np.square(found.parameters - mean))
        near = Normals(mean, np.clip(_WIDER * spread, _LEAST_SPREAD * prior_normals.spread, prior_normals.spread))
    return _weigh(curve, seen, asked, (prior_normals, near), log_samples)


def _weigh(
    curve: ScalingCurve, seen: Sequence[Point], asked: Sequence[Point], drawn: tuple[Normals, Normals], log_samples: int
) -> WeightedSamples:
    """Weigh samples of which one half is drawn as believed, so that no tail is lost, the other near explanations."""
    parameters = np.concatenate([one.samples(log_samples - 1) for one in drawn])
    prior_normals, near = (one.log_density(parameters) for one in drawn)
    everything = [*seen, *asked]
    count, known = workers(everything), len(seen)
    logs = np.log(times(seen))
    servers = np.array([np.nan if point.servers is None else point.servers for point in everything])
    relative = relative_times(curve, count, servers, float(np.exp(logs[0])), parameters)
    model = np.log(relative) + logs[0]
    covariance = _covariance(curve, count, parameters)
    lower = np.linalg.cholesky(covariance[:, :known, :known])
    residual = (logs - model[:, :known])[..., None]
    solved = np.linalg.solve(lower, np.concatenate([residual, covariance[:, :known, known:]], axis=-1))
    left, cross = solved[..., 0], solved[..., 1:]
    score = -0.5 * np.sum(left**2, axis=-1) - np.sum(np.log(np.diagonal(lower, axis1=1, axis2=2)), axis=-1)
    score += prior_normals - np.logaddexp(prior_normals, near)
    weights = np.exp(score - score.max())
    mean = model[:, known:] + np.einsum("nkp,nk->np", cross, left)
    variance = np.diagonal(covariance, axis1=1, axis2=2)[:, known:] - np.sum(cross**2, axis=1)
    return WeightedSamples(parameters, weights / weights.sum(), mean, np.sqrt(np.maximum(variance, 1e-12)))


def _covariance(curve: ScalingCurve, count: Array, parameters: Array) -> Array:
    walk = np.exp(2 * parameters[:, INDEX["walk"]])
    crossing = np.exp(2 * parameters[:, INDEX["crossing"]])
    host_walk = np.exp(2 * parameters[:, INDEX["host_walk"]])
    hosts = np.array([curve.hosts(int(workers)) for workers in count], dtype=float)
    outside = np.outer(hosts > 1, hosts > 1).astype(float)
    noise = np.exp(2 * parameters[:, INDEX["noise"]])
    covariance: Array = (
        _SCALE_VARIANCE
        + walk[:, None, None] * _common(np.log2(count))
        + host_walk[:, None, None] * _common(np.log2(hosts))
        + crossing[:, None, None] * outside
        + noise[:, None, None] * np.eye(len(count))
    )
    return covariance


def _common(doublings: Array) -> Array:
    """Return how far two points walk together, for each pair."""
    shared: Array = np.minimum(doublings[:, None], doublings[None, :])
    return shared


def _quantiles(values: Array, weights: Array, levels: Sequence[float]) -> Array:
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) - weights[order] / 2
    return np.interp(levels, reached / weights.sum(), values[order])
