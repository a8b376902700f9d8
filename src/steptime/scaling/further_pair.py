"""Two points to measure next, which together would narrow a forecast most."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import scipy  # type: ignore[import-untyped]  # scipy ships no types; its modules are imported when used

from steptime.curves.curve import Array
from steptime.curves.posterior import AssumedHosts


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
