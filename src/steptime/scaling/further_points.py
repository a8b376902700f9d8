"""What to measure next: counts of workers whose points would narrow a forecast most.

It is read off the samples of the posterior, without measuring: how wide an interval is expected to be once a further
point is known, over what it may turn out to be (H. Raiffa, R. Schlaifer, *Applied Statistical Decision Theory*, 1961,
preposterior analysis).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy  # type: ignore[import-untyped]  # scipy ships no types; its modules are imported when used

from steptime.curves.posterior import AssumedHosts, WeightedSamples, mixture, summarize

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
        replace(one, share=float(share), samples=samples, least_s=one.least_s[[target]])
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
