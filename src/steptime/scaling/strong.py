"""Strong scaling: the curve model for workers that share one batch.

Each of w workers computes its part of the batch, ``s(w) = f + (1 - f) w0 / w`` of what each of the fewest w0 workers
computes, where f does not shrink with a batch: updates, launches of kernels, Python. All else is the curve model of
workers that keep their batch, of a worker that computes so much shorter, so that less of an exchange hides and each
exposed second weighs more. Shares f are assumed one after the other, as sizes of hosts are, and weigh by how well they
explain the points.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy  # type: ignore[import-untyped]  # scipy ships no types; its modules are imported when used

from steptime.curves.curve import Array, Point, PointsAsked, ScalingCurve
from steptime.curves.posterior import AssumedHosts, Explanation, assumed_setups, summarize
from steptime.curves.shape import joint_prior, priors_for, relative_times, standard_normals
from steptime.errors import UsageError
from steptime.results.json_form import Interval

_SHARES = 8
"""Of f beside none, each as likely."""
_MEDIAN, _SPREAD = -2.4, 1.3
"""Of the logit of f: 8 % of a step, and from 1 to 44 % in 90 % of cases."""
_LOG_SAMPLES = 11
_LEAST_S = 1e-12
"""Steps of workers that share a batch become as short as may be."""


@dataclass(frozen=True)
class SharedBatch(Explanation):
    """How well parameters explain steps of workers that share one batch."""

    fixed: float = 0.0
    """The share of a step's computing that does not shrink with a worker's batch."""

    def relative(self, count: Array, servers: Array, seconds: float, parameters: Array) -> Array:
        """Return times relative to the fewest workers, whose computing takes so many seconds, (samples, points)."""
        parts = self.seen[0].workers / count
        computing = self.fixed + (1.0 - self.fixed) * parts
        columns = [
            share * relative_times(self.curve, count[[place]], servers[[place]], seconds, parameters, batch, share)
            for place, (batch, share) in enumerate(zip(map(float, parts), map(float, computing), strict=True))
        ]
        return np.concatenate(columns, axis=1)


def strong_posterior(curve: ScalingCurve, asked: PointsAsked) -> list[AssumedHosts]:
    """Return what the fit points say of the points asked for; raises UsageError for workers without a sample."""
    most = curve.setup.global_batch
    if beyond := [count for count, _ in asked if most is not None and count > most]:
        message = f"{curve.name}: {beyond[0]} workers cannot share a batch of {most} samples; ask for at most {most}"
        raise UsageError(message)
    points = [Point(count, servers, 1.0) for count, servers in asked]
    prior = joint_prior(priors_for(curve.setup.source))
    shares = [0.0, *scipy.special.expit(_MEDIAN + _SPREAD * scipy.special.ndtri((np.arange(_SHARES) + 0.5) / _SHARES))]
    assumed = [
        (likely, setup, SharedBatch(replace(curve, setup=setup), curve.fit, points, prior, float(fixed)))
        for setup, likely in assumed_setups(curve)
        for fixed in shares
    ]
    drawn = [
        one.weigh(*one.draw(prior, standard_normals(_LOG_SAMPLES, place))) for place, (_, _, one) in enumerate(assumed)
    ]
    scores = [one.log_evidence + np.log(likely) for one, (likely, _, _) in zip(drawn, assumed, strict=True)]
    weights = np.exp(np.array(scores) - scipy.special.logsumexp(scores))
    return [
        AssumedHosts(setup.host_size, setup.assumed_spread, float(weight), samples, np.full(len(points), _LEAST_S))
        for weight, (_, setup, _), samples in zip(weights, assumed, drawn, strict=True)
    ]


def predict_strong(curve: ScalingCurve, asked: PointsAsked) -> Sequence[Interval[float, float]]:
    """Return predictions of steps from the fit points of a curve whose workers share one batch."""
    return summarize(strong_posterior(curve, asked)) if asked else []


def drawn_steps(assumed: Sequence[AssumedHosts], draws: int, seed: int) -> Array:
    """Return draws of the logarithms of the steps asked for, (draws, points)."""
    rng = np.random.default_rng(seed)
    weights = np.concatenate([one.share * one.samples.weights for one in assumed])
    mean, covariance = (
        np.concatenate([getattr(one.samples, name) for one in assumed]) for name in ("mean", "covariance")
    )
    chosen = rng.choice(len(weights), draws, p=weights / weights.sum())
    values, vectors = np.linalg.eigh(covariance[chosen])
    root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    drawn: Array = mean[chosen] + np.einsum("npq,nq->np", root, rng.standard_normal((draws, mean.shape[1])))
    return drawn
