"""The posterior of a scaling curve: samples of the parameters, weighted by how well they explain the fit points.

The logarithm of a time is the model's plus what no model knows: noise of each point, a drift that grows with the
distance in doublings of workers, another with doublings of hosts, growth per doubling of hosts that itself drifts, so
that it may accelerate, an error common to all points beyond one host, and another of those whose workers share cores.
Given a sample these are a Gaussian process, so that a prediction follows the last points where the model is off. The
mixture over samples has heavy tails. Where a table does not say how many workers share a host, the usual sizes are
assumed one after the other, and each weighs by how well it explains the points; so is that workers were spread over all
hosts before any had two.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite

import numpy as np
import scipy  # type: ignore[import-untyped]  # scipy ships no types; its modules are imported when used

from steptime.curves.curve import Array, Point, PointsAsked, ScalingCurve, Setup, times, workers
from steptime.curves.facts import usual_hosts
from steptime.curves.input_ceiling import input_path
from steptime.curves.shape import (
    INDEX,
    NormalVector,
    Priors,
    joint_prior,
    priors_for,
    relative_times,
    standard_normals,
)
from steptime.results.json_form import Interval

LEAST_SAMPLES = 100.0
"""So many independent samples those that were weighed must be worth, else more are drawn."""
_MOST_LOG_SAMPLES = 16
MOST_SAMPLES = 2**_MOST_LOG_SAMPLES
"""So many are drawn at most."""
_SCALE_VARIANCE = 1.0
"""Of the logarithm of the time of one worker: nothing is believed of it."""
_HALVES = 8
"""Normal quantiles that stand for the remaining uncertainty of one sample."""
_NEGLIGIBLE = 1e-12
"""Of all weight: what samples that are left out of quantiles have together, at most; they are most of a curve's."""
_ROUNDS = 8
_SEARCH_LOG_SAMPLES = 11
"""Enough to see where explanations lie; only the last round, which predicts, needs more."""
_SEARCH_SHARE = 0.06
"""Of the samples of a round those worth as much as independent ones; points are believed less until so many are."""
_WIDER = 1.25
_AS_BELIEVED = 4
"""One sample of so many is drawn as believed, so that no tail is lost."""
_SPREAD_SHARE = 0.15
"""Of tables that do not state hosts, those whose workers were spread over all hosts before any had two."""
_ONCE = ((0.0, 0.4), (0.004, 0.15), (0.014, 0.15), (0.05, 0.25), (0.1, 0.05))
"""Shares of the first point's step that are work once an epoch, where times hold any, with how likely each is.

No published curve of the repository states what is in its times, so that none teaches them. They are those of twelve
public data sets, each as likely: where a backward pass takes as long as two forward ones, V samples of validation
behind T of training take ``V / (3 T + V)`` of an epoch. That is 0.1 % of WikiText-103, 0.4 of LibriSpeech, 0.7 of
Places365; 1.3 of ImageNet, 1.4 of COCO 2017, 1.6 of MNLI; 3.4 of WikiText-2, 3.9 of SQuAD 1.1, 5.3 of Cityscapes and
MNIST, 6.2 of CIFAR-10; 10 of Food-101. None grows with workers where these divide the validation, as they do the
epoch: how often they do is a guess.
"""
LEVEL = 0.9
_LEAST_ERRORS = 1.645
"""Standard errors of a measured time, by which the shortest step may be shorter."""
_SHORTER = 0.97
"""Of the shortest measured step: workers that keep their batch have no shorter one, but for noise and caches."""
_ABOVE = 0.05
"""The standard deviation of the logarithm of how far steps stay above the shortest possible one."""


@dataclass(frozen=True)
class Sampling:
    """How many samples are drawn at least, as a power of two, and which."""

    log_samples: int = 13
    seed: int = 0


_USUAL = Sampling()


@dataclass(frozen=True)
class WeightedSamples:
    """Samples of the parameters with weights that add up to one, and predictions of each."""

    parameters: Array
    weights: Array
    mean: Array
    """Of log times, (samples, points)."""
    covariance: Array
    """Of log times, (samples, points, points)."""
    log_evidence: float
    """Logarithm of how well the points are explained, up to a constant that all assumptions of a curve share."""

    @property
    def deviation(self) -> Array:
        """Of log times, (samples, points)."""
        found: Array = np.sqrt(np.diagonal(self.covariance, axis1=1, axis2=2))
        return found

    @property
    def effective_samples(self) -> float:
        """How many independent samples these are worth: ``1 / sum(w^2)`` (L. Kish, *Survey Sampling*, 1965)."""
        return float(1 / np.sum(self.weights**2))


@dataclass(frozen=True)
class AssumedHosts:
    """What samples say of a curve where hosts hold so many workers."""

    host_size: float
    spread: bool
    """Whether each host got a worker before any got a second."""
    share: float
    """How likely that is after the points; 1 where it is stated."""
    samples: WeightedSamples
    least_s: Array
    """Seconds that no step of a point asked for is believed to fall below, (points,)."""
    once: float = 0.0
    """The share of the first point's step that is work once an epoch."""


def predict_curve(curve: ScalingCurve, asked: PointsAsked, seed: int = 0) -> list[Interval[float, float]]:
    """Return predictions from a curve's fit points with the priors for its source."""
    return predict(curve, asked, priors_for(curve.setup.source), Sampling(seed=seed))


def predict(
    curve: ScalingCurve, asked: PointsAsked, priors: Priors, sampling: Sampling = _USUAL
) -> list[Interval[float, float]]:
    """Return predictions for (workers, servers) from the fit points of a curve."""
    return summarize(posterior(curve, asked, priors, sampling)) if asked else []


def posterior(
    curve: ScalingCurve, asked: PointsAsked, priors: Priors, sampling: Sampling = _USUAL
) -> list[AssumedHosts]:
    """Return what the fit points say of the points asked for, for each size that hosts may have."""
    points = [Point(count, servers, 1.0) for count, servers in asked]
    assumed = assumed_setups(curve)
    found = [weigh_samples(replace(curve, setup=setup), curve.fit, points, priors, sampling) for setup, _ in assumed]
    scores = np.array([one.log_evidence for one in found]) + np.log([share for _, share in assumed])
    shares = np.exp(scores - scipy.special.logsumexp(scores))
    least_s = _least_steps(curve, workers(points))
    return [
        AssumedHosts(setup.host_size, setup.assumed_spread, float(share), samples, least_s, setup.assumed_once)
        for (setup, _), share, samples in zip(assumed, shares, found, strict=True)
    ]


def _least_steps(curve: ScalingCurve, asked: Array) -> Array:
    """Return the seconds that steps of so many workers take at least, which keep their batch."""
    errors = np.array([point.error for point in curve.fit])
    alone = times(curve.fit) / curve.slowdown(workers(curve.fit))
    shortest = float((alone * np.exp(-_LEAST_ERRORS * errors)).min())
    input_s = input_path(curve).samples_s or 0.0
    least: Array = np.maximum(_SHORTER * shortest, asked * input_s)
    return least


def summarize(found: Sequence[AssumedHosts]) -> list[Interval[float, float]]:
    """Return the median and the interval of 90 % of each point asked for."""
    spread = scipy.special.ndtri((np.arange(_HALVES) + 0.5) / _HALVES)
    tails = ((1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2)
    weights, mean, deviation = mixture(found)
    least = np.log(found[0].least_s) + _ABOVE * np.abs(spread[:, None])
    logs = np.maximum(mean[:, None, :] + deviation[:, None, :] * spread[:, None], least)
    halves = np.repeat(weights / _HALVES, _HALVES)
    each = [np.exp(_quantiles(values, halves, tails)) for values in logs.reshape(-1, mean.shape[1]).T]
    return [Interval(float(middle), float(low), float(high)) for low, middle, high in each]


def mixture(found: Sequence[AssumedHosts]) -> tuple[Array, Array, Array]:
    """Return weights, means and deviations of all samples whose weight counts; the last two are (samples, points)."""
    weights = np.concatenate([one.share * one.samples.weights for one in found])
    counting = weights > _NEGLIGIBLE * weights.sum() / len(weights)
    mean = np.concatenate([one.samples.mean for one in found])[counting]
    deviation = np.concatenate([one.samples.deviation for one in found])[counting]
    return weights[counting], mean, deviation


def assumed_setups(curve: ScalingCurve) -> list[tuple[Setup, float]]:
    """Return set-ups that leave no question about hosts and epochs, with how likely each is before the points."""
    hosts = _assumed_hosts(curve.setup)
    if not curve.setup.has_work_once_an_epoch:
        return hosts
    return [(replace(setup, assumed_once=once), likely * share) for setup, likely in hosts for once, share in _ONCE]


def _assumed_hosts(setup: Setup) -> list[tuple[Setup, float]]:
    if setup.workers_per_host is not None or setup.assumed_host_size is not None:
        return [(setup, 1.0)]
    usual = usual_hosts(setup.accelerator).hosts
    if setup.inter_host_rate is not None:  # a network was stated, and so it joins something
        usual = {size: share for size, share in usual.items() if isfinite(size)}
    whole = sum(usual.values())
    filled = [
        (replace(setup, assumed_host_size=size), share / whole * (1 - _SPREAD_SHARE)) for size, share in usual.items()
    ]
    return [*filled, (replace(setup, assumed_host_size=1.0, assumed_spread=True), _SPREAD_SHARE)]


def weigh_samples(
    curve: ScalingCurve,
    seen: Sequence[Point],
    asked: Sequence[Point],
    priors: Priors,
    sampling: Sampling = _USUAL,
) -> WeightedSamples:
    """Weigh samples by the points ``seen`` and predict those ``asked``.

    Samples of what is believed beforehand rarely explain good points. So rounds of few samples move a proposal to where
    explanations lie, believing the points a little more each time (O. Cappé et al., *Population Monte Carlo*, 2004,
    with the tempering of P. Del Moral et al., 2006); the last draws as many as it takes for the weighed samples to be
    worth ``LEAST_SAMPLES``, or all that are allowed.
    """
    problem = Explanation(curve, seen, asked, joint_prior(priors))
    proposal = problem.prior
    log_samples, seed = sampling.log_samples, sampling.seed
    search = min(log_samples, _SEARCH_LOG_SAMPLES)
    for turn in range(_ROUNDS):
        parameters, score = problem.draw(proposal, standard_normals(search, seed + turn))
        heat = _heat(score)
        proposal = _fitted_normal(parameters, np.exp(heat * (score - score.max())), problem.prior)
        if heat == 1.0:
            break
    found = problem.weigh(*problem.draw(proposal, standard_normals(log_samples, seed)))
    while found.effective_samples < LEAST_SAMPLES and log_samples < _MOST_LOG_SAMPLES:
        log_samples += 1
        proposal = _fitted_normal(found.parameters, found.weights, problem.prior)
        found = problem.weigh(*problem.draw(proposal, standard_normals(log_samples, seed)))
    return found


@dataclass(frozen=True)
class Explanation:
    """How well parameters explain what was seen of a curve, and what they then say of the points asked for."""

    curve: ScalingCurve
    seen: Sequence[Point]
    asked: Sequence[Point]
    prior: NormalVector

    def draw(self, proposal: NormalVector, standard: Array) -> tuple[Array, Array]:
        """Return samples, and the logarithm of how much each explains for how often it is drawn."""
        apart = len(standard) // _AS_BELIEVED
        parameters = np.concatenate([self.prior.samples(standard[:apart]), proposal.samples(standard[apart:])])
        believed, near = self.prior.log_density(parameters), proposal.log_density(parameters)
        drawn = np.logaddexp(believed - np.log(_AS_BELIEVED), near + np.log1p(-1 / _AS_BELIEVED))
        return parameters, self._log_likelihood(parameters) + believed - drawn

    def weigh(self, parameters: Array, score: Array) -> WeightedSamples:
        """Return samples with their weights and predictions."""
        total = scipy.special.logsumexp(score)
        model, covariance, lower, left = self._residuals(parameters)
        known = len(self.seen)
        cross = np.linalg.solve(lower, covariance[:, :known, known:])
        mean = model[:, known:] + np.einsum("nkp,nk->np", cross, left)
        rest = covariance[:, known:, known:] - np.einsum("nkp,nkq->npq", cross, cross)
        rest = rest + 1e-12 * np.eye(len(self.asked))
        return WeightedSamples(parameters, np.exp(score - total), mean, rest, float(total - np.log(len(score))))

    def relative(self, count: Array, servers: Array, seconds: float, parameters: Array) -> Array:
        """Return times relative to one worker, whose step takes so many seconds, (samples, points)."""
        return relative_times(self.curve, count, servers, seconds, parameters)

    def _log_likelihood(self, parameters: Array) -> Array:
        _, _, lower, left = self._residuals(parameters)
        found: Array = -0.5 * np.sum(left**2, axis=-1) - np.sum(np.log(np.diagonal(lower, axis1=1, axis2=2)), axis=-1)
        return found

    def _residuals(self, parameters: Array) -> tuple[Array, Array, Array, Array]:
        """Return modelled logarithms and covariances of all points, and the seen ones' Cholesky factor and residual."""
        everything, known = [*self.seen, *self.asked], len(self.seen)
        count, logs = workers(everything), np.log(times(self.seen))
        servers = np.array([np.nan if point.servers is None else point.servers for point in everything])
        model: Array = np.log(self.relative(count, servers, float(np.exp(logs[0])), parameters)) + logs[0]
        errors = np.array([point.error for point in everything])
        covariance = _covariance(self.curve, count, errors, parameters)
        lower = np.asarray(np.linalg.cholesky(covariance[:, :known, :known]), dtype=np.float64)
        left = np.asarray(np.linalg.solve(lower, (logs - model[:, :known])[..., None])[..., 0], dtype=np.float64)
        return model, covariance, lower, left


def _heat(score: Array) -> float:
    """Return the power of the weights, at most one, by which enough samples count."""
    least = _SEARCH_SHARE * len(score)
    relative = score - score.max()

    def worth(power: float) -> float:
        weights = np.exp(power * relative)
        return float(np.sum(weights) ** 2 / np.sum(weights**2))

    if worth(1.0) >= least:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if worth(middle) >= least else (low, middle)
    return low


def _fitted_normal(parameters: Array, weights: Array, prior: NormalVector) -> NormalVector:
    """Return a proposal of the mean and the covariance of weighted samples, widened a little."""
    shares = weights / weights.sum()
    mean = shares @ parameters
    apart = parameters - mean
    covariance = (apart * shares[:, None]).T @ apart
    # As many samples as they are worth know the covariance; the prior's is worth a few more for each parameter.
    worth, own = 1 / np.sum(shares**2), 2.0 * len(mean)
    believed = prior.factor @ prior.factor.T
    diagonal = np.diag(np.diag(covariance))
    shrunk = (worth * covariance + own * diagonal) / (worth + own) + 1e-4 * believed
    return NormalVector(mean, _WIDER * np.linalg.cholesky(shrunk))


def _covariance(curve: ScalingCurve, count: Array, errors: Array, parameters: Array) -> Array:
    walk = np.exp(2 * parameters[:, INDEX["walk"]])
    crossing = np.exp(2 * parameters[:, INDEX["crossing"]])
    host_walk = np.exp(2 * parameters[:, INDEX["host_walk"]])
    bend = np.exp(2 * parameters[:, INDEX["bend"]])
    hosts = np.array([curve.hosts(int(workers)) for workers in count], dtype=float)
    outside = np.outer(hosts > 1, hosts > 1).astype(float)
    # A stated error counts where it is more than the model believes of any point.
    noise = np.maximum(np.exp(2 * parameters[:, INDEX["noise"], None]), errors**2)
    covariance: Array = (
        _SCALE_VARIANCE
        + walk[:, None, None] * _common(np.log2(count))
        + host_walk[:, None, None] * _common(np.log2(hosts))
        + bend[:, None, None] * _bent(np.log2(hosts))
        + crossing[:, None, None] * outside
        + noise[:, :, None] * np.eye(len(count))
    )
    if (shared := curve.setup.shared_cores) is not None:
        covariance = covariance + shared.covariance(np.minimum(count, curve.setup.host_size))
    return covariance


def _common(doublings: Array) -> Array:
    """Return how far two points walk together, for each pair."""
    shared: Array = np.minimum(doublings[:, None], doublings[None, :])
    return shared


def _bent(doublings: Array) -> Array:
    """Return how far two points drift together whose growth per doubling is itself a random walk.

    The covariance of an integrated Wiener process (G. Wahba, *Improper priors, spline smoothing*, J. R. Stat. Soc. B 40
    (1978) 364): growth that accelerates leads as far as the doublings to the power of 3/2.
    """
    beyond = np.maximum(doublings - 1.0, 0.0)  # the first doubling is that of the error common to all beyond one host
    less, more = np.minimum(beyond[:, None], beyond), np.maximum(beyond[:, None], beyond)
    found: Array = less**2 * (3.0 * more - less) / 6.0
    return found


def _quantiles(values: Array, weights: Array, levels: Sequence[float]) -> Array:
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) - weights[order] / 2
    return np.interp(levels, reached / weights.sum(), values[order])
