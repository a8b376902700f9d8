"""How much launches of one trial differ, estimated over all trials of a study that ran in the same blocks.

A moderated t (Smyth, Stat. Appl. Genet. Mol. Biol. 3 (2004) 3, the method of limma) for launches: two or three
launches of one trial hardly show how much launches differ, those of all trials together do.
docs/decisions/0011-pooled-spread.md has the coverage.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, fdtrc, polygamma  # type: ignore[import-untyped]  # scipy ships no types

from steptime.measurements.interval import t_quantile
from steptime.measurements.launch_times import LaunchTimes

FEWEST_TRIALS = 3
"""The spread of fewer trials is not pooled: two say nothing of how spreads differ between trials."""
_PRIOR_HETEROGENEITY = 0.4
"""Variance of the log variances of trials whose spreads differ by up to three times: (2 ln 3)² / 12."""
_DRIFT_LEVEL = 0.2
"""Blocks are taken to differ when chance alone makes them differ as much with less than this probability."""
_LEAST_VARIANCE = 1e-4
"""Of the mean variance: a smaller one, of launches that agree to the tick of a clock, counts as this much."""
_EXCEPTION, _EXCEPTIONS = 0.02, 0.25
"""A trial keeps its own spread where trials like the others would exceed it with less than this probability, and
fewer than so many of all trials would be expected to."""
_ROUNDS = 3
"""Rounds of weighting; the weights hardly change after the second."""
_NEWTON_STEPS, _CONVERGED = 20, 1e-9

Array = NDArray[np.float64]


@dataclass(frozen=True)
class BlockEffects:
    """What blocks have of their own for all trials alike, such as a machine that slows down."""

    variance: float
    """Of the estimated effects, which includes the error of their estimation."""
    freedom: float
    drifted: bool
    """Whether blocks were shown to differ."""
    residual_freedom: float
    """Of all trials' spreads together; no sum over trials is known with more."""


@dataclass(frozen=True)
class TrialSpread:
    """The variance of the logarithm of a launch's median around its trial's and its block's, moderated."""

    variance: float
    freedom: float
    prior_freedom: float
    """The part of ``freedom`` that the other trials contribute."""
    leverage: float
    """The weight of the trial in the estimated effect of each block."""
    blocks: BlockEffects


@dataclass(frozen=True)
class PooledError:
    """How far a sum of logarithms may be from its truth."""

    half_width: float
    error: float
    freedom: float


def pooled_error(shares: Sequence[tuple[TrialSpread, Mapping[int, float]]], level: float) -> PooledError:
    """Return the error of a sum over launches of share times log median.

    The variance of the sum has two independent parts: the launches' own spread, less what the estimated effects of
    blocks hold of it already, and the variance of these effects, as far as the shares of a block do not cancel. They
    are added with Satterthwaite's degrees of freedom. Where blocks were shown to differ, the half-widths of both parts
    are added as squares instead: between two blocks a variance has one degree of freedom and may be small by luck,
    which Satterthwaite's rule takes for certainty.

    Args:
        shares: of each trial its spread and, by block, the weight of its launch in the sum.
        level: the share of such intervals that hold the truth.
    """
    own = [sum(share**2 for share in of_blocks.values()) for _, of_blocks in shares]
    totals: dict[int, float] = {}
    for _, of_blocks in shares:
        for block, share in of_blocks.items():
            totals[block] = totals.get(block, 0.0) + share
    left = sum(total**2 for total in totals.values())
    shared = left / sum(own)
    parts = [
        (square * spread.variance * (1.0 - shared * spread.leverage), spread.freedom)
        for square, (spread, _) in zip(own, shares, strict=True)
    ]
    blocks = shares[0][0].blocks
    of_blocks_part = (left * blocks.variance, blocks.freedom)
    variance, freedom = satterthwaite(parts)
    launches_part = (variance, min(freedom, blocks.residual_freedom))
    total, freedom = satterthwaite([launches_part, of_blocks_part])
    error = float(np.sqrt(total))
    half_width = float(t_quantile(freedom, level)) * error
    if blocks.drifted and left > 0.0:
        both = [launches_part, of_blocks_part]
        half_width = float(np.hypot(*(t_quantile(free, level) * np.sqrt(each) for each, free in both)))
    return PooledError(half_width, error, freedom)


def satterthwaite(parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the sum of independent variances and its degrees of freedom; each part is a variance with its own."""
    variance = sum(part for part, _ in parts)
    uncertainty = sum(part**2 / freedom for part, freedom in parts)
    return variance, (variance**2 / uncertainty if uncertainty > 0.0 else min(freedom for _, freedom in parts))


def pool_spread(launches: Mapping[str, Sequence[LaunchTimes]]) -> dict[str, TrialSpread]:
    """Return how launches of each trial spread, by its name; empty where there is nothing to pool.

    The logarithm of the median of trial j's launch in block b is m = mu_j + beta_b + e, where the spread of e is
    the trial's own and blocks drift by beta for all trials alike. Both are estimated by weighted least squares, in
    which a trial that spreads more than usual counts less. A trial's variance s² with d = n - 1 degrees of freedom
    is then shrunk: (d0 s0² + d s²) / (d0 + d), with d0 + d degrees of freedom, but no more than all trials have
    together (``moderation``). A trial that spreads as none of the others would keeps its own variance.

    There is nothing to pool with fewer than ``FEWEST_TRIALS`` trials of two launches, or where no launch differs.
    """
    blocks = sorted({launch.block for each in launches.values() for launch in each})
    matrix = np.full((len(launches), len(blocks)), np.nan)
    for row, each in enumerate(launches.values()):
        for launch in each:
            matrix[row, blocks.index(launch.block)] = launch.log_median
    return dict(zip(launches, spreads_of(matrix), strict=False))


def spreads_of(logs: Array) -> list[TrialSpread]:
    """Return the spread of each row of ``logs``, trials x blocks, with NaN where a trial did not run."""
    known = ~np.isnan(logs)
    counts = known.sum(axis=1)
    repeated = counts > 1
    if repeated.sum() < FEWEST_TRIALS:
        return []
    rows, present, degrees = logs[repeated], known[repeated], counts[repeated] - 1.0
    used = present.any(axis=0)
    rows, present = rows[:, used], present[:, used]
    variances = np.nanvar(rows, axis=1, ddof=1)
    if not np.any(variances > 0.0):
        return []
    leverage = effects = np.zeros(0)
    prior_variance, prior_freedom = 0.0, 1.0
    for _ in range(_ROUNDS):
        prior_variance, prior_freedom = moderation(variances, degrees)
        moderated = (prior_freedom * prior_variance + degrees * variances) / (prior_freedom + degrees)
        weights = 1.0 / np.maximum(moderated, prior_variance)
        effects, residuals = _two_way(rows, present, weights)
        totals = (present * weights[:, None]).sum(axis=0)
        leverage = (np.where(present, weights[:, None] / totals, 0.0)).sum(axis=1) / (degrees + 1.0)
        free = degrees * np.maximum(1.0 - leverage, 1e-9)
        variances = np.where(leverage < 1.0 - 1e-9, (residuals**2).sum(axis=1) / free, variances)
    prior_variance, prior_freedom = moderation(variances, degrees)
    moderated = (prior_freedom * prior_variance + degrees * variances) / (prior_freedom + degrees)
    block_freedom = len(effects) - 1.0
    most = max(float(degrees.sum()) - block_freedom, 1.0)
    block_variance = float(effects.var(ddof=1))
    by_chance = float(np.mean(1.0 / (present / moderated[:, None]).sum(axis=0)))
    drifted = float(fdtrc(block_freedom, most, block_variance / by_chance)) < _DRIFT_LEVEL
    blocks = BlockEffects(block_variance, block_freedom, drifted, most)
    prior = min(prior_freedom, most)
    # A trial with a single launch has nothing of its own to say.
    found = [TrialSpread(prior_variance, prior, prior, 0.0, blocks)] * len(logs)
    for index, row in enumerate(np.flatnonzero(repeated)):
        own = degrees[index]
        exceeded = float(fdtrc(own, prior_freedom, variances[index] / prior_variance))
        if exceeded < min(_EXCEPTION, _EXCEPTIONS / len(degrees)):
            variance, freedom = variances[index], own
        else:
            variance, freedom = moderated[index], min(prior_freedom + own, most)
        prior = max(freedom - own, 0.0)
        found[row] = TrialSpread(float(variance), float(freedom), float(prior), float(leverage[index]), blocks)
    return found


def moderation(variances: Array, degrees: Array) -> tuple[float, float]:
    """Return the prior variance s0² and its degrees of freedom d0, from trials' variances.

    With s² ~ s0² F(d, d0), log s² has the variance trigamma(d / 2) + trigamma(d0 / 2): so the second term is what
    log variances spread more than their degrees of freedom explain (Smyth 2004, section 6.2). Of few trials or few
    launches that difference is little but noise. It is therefore weighed, by its standard error, against what
    trials have whose spreads differ by up to three times; a usual study of two launches goes by that.
    """
    floor = _LEAST_VARIANCE * float(variances.mean())
    logs = np.log(np.maximum(variances, floor)) - digamma(degrees / 2) + np.log(degrees / 2)
    trigamma = polygamma(1, degrees / 2)
    error = float(np.mean(polygamma(3, degrees / 2) + 2.0 * trigamma**2)) / (len(logs) - 1)
    prior = _PRIOR_HETEROGENEITY
    observed = float(logs.var(ddof=1) - trigamma.mean())
    heterogeneity = max((observed / error + 1.0 / prior) / (1.0 / error + 1.0 / prior**2), 1e-3)
    freedom = 2.0 * _inverse_trigamma(heterogeneity)
    return float(np.exp(logs.mean() + digamma(freedom / 2) - np.log(freedom / 2))), freedom


def _inverse_trigamma(value: float) -> float:
    """Newton's method on 1 / trigamma, which is convex: it converges from this start (Smyth 2004, appendix)."""
    found = 0.5 + 1.0 / value
    for _ in range(_NEWTON_STEPS):
        trigamma = float(polygamma(1, found))
        step = trigamma * (1.0 - trigamma / value) / float(polygamma(2, found))
        found += step
        if abs(step) < _CONVERGED * found:
            break
    return found


def _two_way(rows: Array, present: NDArray[np.bool_], weights: Array) -> tuple[Array, Array]:
    """Return the effects of blocks and what trials and blocks leave, by weighted least squares."""
    values = np.where(present, rows, 0.0)
    counts = present.sum(axis=1)
    centred = np.where(present, values - (values.sum(axis=1) / counts)[:, None], 0.0)
    # Trials' own means are eliminated: what is left is one equation per block.
    weighted = present * weights[:, None]
    normal = np.diag(weighted.sum(axis=0)) - weighted.T @ (present / counts[:, None])
    effects = np.linalg.lstsq(normal, (weighted * centred).sum(axis=0), rcond=1e-9)[0]
    effects -= effects.mean()
    shifted = np.where(present, values - effects, 0.0)
    residuals = np.where(present, shifted - (shifted.sum(axis=1) / counts)[:, None], 0.0)
    return effects, residuals
