"""What to measure or to state next: counts whose points, and empty columns that, stated, would narrow a forecast most.

It is read off the samples of the posterior, without measuring: how wide an interval is expected to be once a further
point is known, over what it may turn out to be (H. Raiffa, R. Schlaifer, *Applied Statistical Decision Theory*, 1961,
preposterior analysis); for a column the samples are cut into parts by what it may turn out to be.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import scipy  # type: ignore[import-untyped]  # scipy ships no types; its modules are imported when used

from steptime.predict.curve.curve import Array, ScalingCurve
from steptime.predict.curve.facts import UNSTATED, facts_of
from steptime.predict.curve.posterior import AssumedHosts, WeightedSamples, mixture, summarize
from steptime.predict.curve.shape import INDEX

_LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Quantiles of what a further point may turn out to be, each as likely."""


@dataclass(frozen=True)
class FurtherPoint:
    """A number of workers that could be measured next."""

    workers: int
    ratio: float
    """Upper over lower end of the target's interval, as is expected once this point is known."""


def further_points(found: Sequence[AssumedHosts], candidates: Mapping[int, int], target: int) -> list[FurtherPoint]:
    """Return what each further point would make of the target's interval, the most useful first.

    Args:
        found: the posterior of candidates and target.
        candidates: which of the points asked for each number of workers is.
        target: which one the interval is about.
    """
    points = []
    for count, candidate in candidates.items():
        widths = [
            np.log(one.high / one.low)
            for level in _LEVELS
            for one in summarize(_given(found, candidate, target, _quantile(found, candidate, level)))
        ]
        points.append(FurtherPoint(count, float(np.exp(np.mean(widths)))))
    return sorted(points, key=lambda each: each.ratio)


def _quantile(found: Sequence[AssumedHosts], point: int, level: float) -> float:
    """Return a quantile of the logarithm of a predicted time."""
    weights, means, deviations = mixture(found)
    mean, deviation = means[:, point], deviations[:, point]
    low, high = float(mean.min() - 5 * deviation.max()), float(mean.max() + 5 * deviation.max())
    for _ in range(40):
        middle = (low + high) / 2
        below = float(weights @ scipy.special.ndtr((middle - mean) / deviation))
        low, high = (middle, high) if below < level else (low, middle)
    return (low + high) / 2


def _given(found: Sequence[AssumedHosts], known: int, target: int, log_time: float) -> list[AssumedHosts]:
    """Return the posterior of the target were the known point measured to have that logarithm."""
    changed = [_condition(one.samples, known, target, log_time) for one in found]
    with np.errstate(divide="ignore"):  # an assumption that the points rule out has no share
        scores = np.log([one.share for one in found]) + [evidence for evidence, _ in changed]
    shares = np.exp(scores - scipy.special.logsumexp(scores))
    return [
        replace(one, share=float(share), samples=samples)
        for one, share, (_, samples) in zip(found, shares, changed, strict=True)
    ]


def _condition(samples: WeightedSamples, known: int, target: int, log_time: float) -> tuple[float, WeightedSamples]:
    apart = log_time - samples.mean[:, known]
    variance = samples.covariance[:, known, known]
    with np.errstate(divide="ignore"):
        score = np.log(samples.weights) - 0.5 * apart**2 / variance - 0.5 * np.log(variance)
    evidence = float(scipy.special.logsumexp(score))
    along = samples.covariance[:, known, target] / variance
    rest = samples.covariance[:, target, target] - along * samples.covariance[:, known, target]
    return evidence, replace(
        samples,
        weights=np.exp(score - evidence),
        mean=(samples.mean[:, target] + along * apart)[:, None],
        covariance=np.maximum(rest, 1e-12)[:, None, None],
    )


@dataclass(frozen=True)
class FurtherPair:
    """Two numbers of workers that could be measured next."""

    workers: tuple[int, int]
    ratio: float
    """Upper over lower end of the target's interval, as is expected once both are known."""


_MEMBERS = 1200
_WORLDS = 24
"""Pairs of times that two further points may turn out to be."""
_SEED = 7


def further_pair(assumed: Sequence[AssumedHosts], candidates: Mapping[int, int], target: int) -> FurtherPair | None:
    """Return the two further points that together would narrow the target's interval most; None of fewer than two.

    Members of the posterior are drawn by their weights. In turn one is taken for true: the times that it gives both
    points weigh the others.

    Args:
        assumed: the posterior of candidates and target.
        candidates: which of the points asked for each number of workers is.
        target: which one the interval is about.
    """
    rng = np.random.default_rng(_SEED)
    weights = np.concatenate([one.share * one.samples.weights for one in assumed])
    chosen = rng.choice(len(weights), _MEMBERS, p=weights / weights.sum())
    mean = np.concatenate([one.samples.mean for one in assumed])[chosen]
    covariance = np.concatenate([one.samples.covariance for one in assumed])[chosen]
    pairs = [
        FurtherPair((one, other), _ratio_with(mean, covariance, [candidates[one], candidates[other]], target))
        for one, other in combinations(sorted(candidates), 2)
    ]
    return min(pairs, key=lambda pair: pair.ratio, default=None)


_PARTS = (np.arange(8) + 0.5) / 8
_TAILS = (0.05, 0.5, 0.95)


def _mixed_quantiles(weights: Array, mean: Array, deviation: Array) -> Array:
    """Return the ends and the median of a mixture of normal numbers, of which eight quantiles stand for each."""
    values = (mean[:, None] + deviation[:, None] * scipy.special.ndtri(_PARTS)).ravel()
    shares = np.repeat(weights / len(_PARTS), len(_PARTS))
    order = np.argsort(values)
    reached = np.cumsum(shares[order]) - shares[order] / 2
    ends: Array = np.interp(_TAILS, reached / shares.sum(), values[order])
    return ends


def _ratio_with(mean: Array, covariance: Array, known: list[int], target: int) -> float:
    """Return the geometric mean of the ratio of the ends of the target's interval over what points may turn out to be.

    Args:
        mean: of the logarithms of times, of each member, (members, points).
        covariance: of each member, (members, points, points).
        known: the points that would be measured.
        target: the one that the interval is of.
    """
    rng = np.random.default_rng(_SEED)
    own = covariance[:, known][:, :, known]
    lower = np.linalg.cholesky(own)
    along = np.linalg.solve(own, covariance[:, known, target][..., None])[..., 0]
    rest = covariance[:, target, target] - np.sum(along * covariance[:, known, target], axis=1)
    deviation = np.sqrt(np.maximum(rest, 1e-12))
    volume = np.sum(np.log(np.diagonal(lower, axis1=1, axis2=2)), axis=1)
    widths = []
    for true in range(_WORLDS):
        times = mean[true, known] + lower[true] @ rng.standard_normal(len(known))
        apart = times - mean[:, known]
        standard = np.linalg.solve(lower, apart[..., None])[..., 0]
        score = -0.5 * np.sum(standard**2, axis=1) - volume
        low, _, high = _mixed_quantiles(
            np.exp(score - scipy.special.logsumexp(score)), mean[:, target] + np.sum(along * apart, axis=1), deviation
        )
        widths.append(high - low)
    return float(np.exp(np.mean(widths)))


LINKS: Mapping[str, str] = {
    "inter_host_gbps": "steptime net between two hosts",
    "intra_host_link": "steptime net on one host",
}
"""The micro-benchmark that measures what an empty column would state."""


QUESTIONS: Mapping[str, str] = {
    "inter_host_gbps": "which network joins the hosts (Gbit/s of one card; nics_per_host: how many)?",
    "workers_per_host": "how many workers share a host?",
    "intra_host_link": "which link joins the workers of a host (pcie, nvlink, nvswitch)?",
    "parameters": "how many trainable values has the model?",
    "transport": "do messages between hosts go by tcp or rdma?",
}
"""What a column that is empty would answer."""
_BINS = 8
"""Of what an empty column may turn out to say, each as likely."""


@dataclass(frozen=True)
class EmptyColumn:
    """A column that the table leaves empty."""

    column: str
    ratio: float
    """Upper over lower end of the target's interval, as is expected once the column is stated."""

    @property
    def question(self) -> str:
        """What the column would answer."""
        return QUESTIONS[self.column]

    @property
    def benchmark(self) -> str | None:
        """The command that measures it; None without one."""
        return LINKS.get(self.column)


def empty_columns(curve: ScalingCurve, found: Sequence[AssumedHosts], target: int) -> list[EmptyColumn]:
    """Return the columns that are empty, the one that matters most first.

    Args:
        curve: whose table it is.
        found: the posterior.
        target: which of the points asked for the interval is of.
    """
    alone = [_of_one_point(one, target) for one in found]
    columns = [
        EmptyColumn(column, _mean_ratio([(1.0, part) for part in _parts(alone, INDEX[name])]))
        for name, column in UNSTATED.items()
        if facts_of(curve.setup).spreads[name] > 0
    ]
    if len(found) > 1:
        parts = [(one.share, [replace(one, share=1.0)]) for one in alone]
        columns.append(EmptyColumn("workers_per_host", _mean_ratio(parts)))
    return sorted(columns, key=lambda each: each.ratio)


def _of_one_point(one: AssumedHosts, point: int) -> AssumedHosts:
    samples = one.samples
    kept = replace(samples, mean=samples.mean[:, [point]], covariance=samples.covariance[:, [point]][:, :, [point]])
    return replace(one, samples=kept)


def _mean_ratio(parts: Sequence[tuple[float, Sequence[AssumedHosts]]]) -> float:
    """Return the geometric mean of the ratios of interval ends, over parts with how likely each is."""
    widths = [share * np.log(point.high / point.low) for share, part in parts for point in summarize(part)]
    return float(np.exp(np.sum(widths) / sum(share for share, _ in parts)))


def _parts(found: Sequence[AssumedHosts], column: int) -> list[list[AssumedHosts]]:
    """Return the posterior cut into parts that are about as likely as each other, by the value of a parameter."""
    values = np.concatenate([one.samples.parameters[:, column] for one in found])
    weights = np.concatenate([one.share * one.samples.weights for one in found])
    order = np.argsort(values)
    part = np.empty(len(values), dtype=int)
    part[order] = np.minimum((np.cumsum(weights[order]) * _BINS).astype(int), _BINS - 1)
    ends = np.cumsum([len(one.samples.weights) for one in found])[:-1]
    # One heavy sample may be worth several parts, of which the others are then empty.
    members = [np.split(part == number, ends) for number in np.unique(part[weights > 0])]
    return [
        [
            replace(one, samples=replace(one.samples, weights=one.samples.weights * own))
            for one, own in zip(found, each, strict=True)
        ]
        for each in members
    ]
