"""How much launches of one trial differ, estimated over all trials of a study that ran in the same blocks.

A moderated t (Smyth, Stat. Appl. Genet. Mol. Biol. 3 (2004) 3, the method of limma) for launches: two or three
launches of one trial hardly show how much launches differ, those of all trials together do.
docs/decisions/0011-pooled-spread.md has the coverage.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy  # type: ignore[import-untyped]  # scipy ships no types; its modules are imported when used
from numpy.typing import NDArray

from steptime.statistics.drift import BlockEffects, shrink_drifts
from steptime.statistics.launch_times import LaunchTimes, by_block
from steptime.statistics.simultaneous import critical_value
from steptime.statistics.two_way import Indices, Layout, sums

FEWEST_TRIALS = 3
"""The spread of fewer trials is not pooled: two say nothing of how spreads differ between trials."""
_PRIOR_HETEROGENEITY = 0.6
"""Variance of the log variances of trials whose spreads differ by up to nearly four times: (2 ln 3.8)² / 12."""
_LEAST_VARIANCE = 1e-4
"""Of the mean variance: a smaller one, of launches that agree to the tick of a clock, counts as this much."""
_EXCEPTION, _EXCEPTIONS = 0.02, 0.25
"""A trial keeps its own spread where trials like the others would exceed it with less than this probability, and
fewer than so many of all trials would be expected to."""
_FEW = 6
"""One of so many trials may spread as none of the others does, without a say in how these spread."""
ENOUGH = 5
"""Degrees of freedom with which a trial that spreads less than the mean is believed."""
_PRIOR_SLOPE = 0.5
"""Standard deviation of the change of a log variance with the log of the step."""
_ROUNDS = 3
"""Rounds of weighting; the weights hardly change after the second."""
_NEWTON_STEPS, _CONVERGED = 20, 1e-9

Array = NDArray[np.float64]
_Part = tuple[float, float]
"""A variance and its degrees of freedom."""


@dataclass(frozen=True)
class TrialSpread:
    """The variance of the logarithm of a launch's step time around its trial's and its block's, moderated."""

    variance: float
    freedom: float
    prior_freedom: float
    """The part of ``freedom`` that the other trials contribute."""
    common_freedom: float
    """``freedom`` where the variance is used for several trials at once, whose errors the common prior makes alike."""
    leverage: float
    """The weight of the trial in the estimated effect of each block."""
    blocks: BlockEffects

    def at_least(self, variance: float) -> "TrialSpread":
        """Return the same spread with at least ``variance``."""
        return replace(self, variance=max(self.variance, variance))


@dataclass(frozen=True)
class PooledError:
    """How far a sum of logarithms may be from its truth."""

    half_width: float
    error: float
    freedom: float


def pooled_error(
    shares: Sequence[tuple[TrialSpread, Mapping[Hashable, float]]],
    level: float,
    family: int | None = None,
    sessions: Mapping[Hashable, int] | None = None,
) -> PooledError:
    """Return the error of a sum over launches of share times log step time.

    The variance of the sum has two independent parts: the launches' own spread, less what the estimated effects of
    blocks hold of it already, and the variance of these effects, as far as the shares of a block do not cancel. They
    are added with Satterthwaite's degrees of freedom. Where blocks were shown to differ, the half-widths of both parts
    are added as squares instead: between two blocks a variance has one degree of freedom and may be small by luck,
    which Satterthwaite's rule takes for certainty. Blocks of several workloads may drift together or not, so that their
    standard errors are added.

    Args:
        shares: of each trial its spread and, by block, the weight of its launch in the sum.
        level: the share of such intervals that hold the truth.
        family: where the sum is the difference of two of so many trials which are compared with each other, their
            number: all such intervals are then simultaneous. The trial that seems best is likely to be one that spreads
            more than its variance, so the larger variance counts for both, and its freedom is that of the prior.
        sessions: of each block, where blocks ran at several times with a pause between them. Blocks of one session may
            be alike as those of two are not, so that their effects are not taken to average out within it.
    """
    own = [sum(share**2 for share in of_blocks.values()) for _, of_blocks in shares]
    totals, squares = _block_totals(shares)
    left = {effects: sum(total**2 for total in each.values()) for effects, each in totals.items()}
    largest = max(spread.variance for spread, _ in shares)
    parts = []
    for square, (spread, _) in zip(own, shares, strict=True):
        held = left[spread.blocks] / squares[spread.blocks] * spread.leverage
        parts.append((square * (largest if family else spread.variance) * max(0.0, 1.0 - held), spread.freedom))
    if sessions is not None:
        left = {effects: _squares(each, sessions) for effects, each in totals.items()}
    drifted = any(effects.drifted and each > 0.0 for effects, each in left.items())
    of_blocks_part = (
        sum((each * effects.variance) ** 0.5 for effects, each in left.items()) ** 2,
        min(effects.freedom for effects in left),
    )
    variance, freedom = satterthwaite(parts)
    if family:
        freedom = min(spread.common_freedom for spread, _ in shares)
    launches_part = (variance, min(freedom, shares[0][0].blocks.residual_freedom))
    total, freedom = satterthwaite([launches_part, of_blocks_part])
    error = float(np.sqrt(total))
    means = family or 2
    half_width = float(critical_value(freedom, level, means)) * error
    if drifted:
        both = [launches_part, of_blocks_part]
        half_width = float(np.hypot(*(critical_value(free, level, means) * np.sqrt(each) for each, free in both)))
    return PooledError(half_width, error, freedom)


def _block_totals(
    shares: Sequence[tuple[TrialSpread, Mapping[Hashable, float]]],
) -> tuple[dict[BlockEffects, dict[Hashable, float]], dict[BlockEffects, float]]:
    """Return, for each drift, the sum of the weights of each block, and that of all their squares."""
    totals: dict[BlockEffects, dict[Hashable, float]] = {}
    squares: dict[BlockEffects, float] = {}
    for spread, of_blocks in shares:
        of_drift = totals.setdefault(spread.blocks, {})
        for block, share in of_blocks.items():
            of_drift[block] = of_drift.get(block, 0.0) + share
            squares[spread.blocks] = squares.get(spread.blocks, 0.0) + share**2
    return totals, squares


def _squares(totals: Mapping[Hashable, float], sessions: Mapping[Hashable, int]) -> float:
    """Return the sum over sessions of the squared sum of their blocks' weights."""
    of_sessions: dict[int, float] = {}
    for block, total in totals.items():
        of_sessions[sessions[block]] = of_sessions.get(sessions[block], 0.0) + total
    return sum(total**2 for total in of_sessions.values())


def satterthwaite(parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the sum of independent variances and its degrees of freedom; each part is a variance with its own."""
    variance = sum(part for part, _ in parts)
    uncertainty = sum(part**2 / freedom for part, freedom in parts)
    return variance, (variance**2 / uncertainty if uncertainty > 0.0 else min(freedom for _, freedom in parts))


def pool_spread(
    launches: Mapping[str, Sequence[LaunchTimes]], workloads: Mapping[str, str] | None = None
) -> dict[str, TrialSpread]:
    """Return how launches of each trial spread, by its name; empty where there is nothing to pool.

    The logarithm of the step time of trial j's launch in block b is m = mu_j + beta_wb + e, where the spread of e is
    the trial's own and blocks drift by beta for all trials of a workload alike: what slows steps of 5 ms may leave
    those of 500 ms alone. Both are estimated by weighted least squares, in which a trial that spreads more than usual
    counts less. A trial's variance s² with d = n - 1 degrees of freedom,
    relative to what the length of its step leads to (``_scales``), is then shrunk: (d0 s0² + d s²) / (d0 + d)
    (``moderation``), and with few launches is at least the mean of all (``mean_variance``). A trial that spreads as
    none of the others would keeps its own variance, and none has less than its own irregular stalls leave open of a
    launch: trials without stalls know nothing of those.

    There is nothing to pool with fewer than ``FEWEST_TRIALS`` trials of two launches, where no launch differs, or
    where the effects of blocks leave nothing of how launches differ.

    Args:
        launches: of each trial.
        workloads: what each trial trains, by its name; without them, all are taken to drift alike.
    """
    drifts = _drifts(launches, workloads)
    numbers: dict[Hashable, int] = {}
    flat = [
        (row, numbers.setdefault(block, len(numbers)), launch.log_mean)
        for row, of_trial in enumerate(launches.values())
        for block, launch in by_block(of_trial).items()
    ]
    if not flat:
        return {}
    trials, blocks, values = (np.array(column) for column in zip(*flat, strict=True))
    found = dict(zip(launches, _spreads(np.array(drifts), trials, blocks, values), strict=False))
    return {name: each.at_least(_by_stalls(launches[name])) for name, each in found.items()}


def _drifts(launches: Mapping[str, Sequence[LaunchTimes]], workloads: Mapping[str, str] | None) -> list[int]:
    """Return the number of the drift that each trial follows.

    That is its workload's where ``FEWEST_TRIALS`` trials of it have two launches, which tell a drift from the spread
    of one. The trials of all others are taken to drift alike; where these are too few, as the most frequent workload.
    """
    if workloads is None:
        return [0] * len(launches)
    repeated = Counter(workloads[name] for name, own in launches.items() if len(own) > 1)
    known = {workload: count for workload, count in repeated.most_common() if count >= FEWEST_TRIALS}
    others = len(known) if sum(repeated.values()) - sum(known.values()) >= FEWEST_TRIALS else 0
    numbers = {workload: number for number, workload in enumerate(known)}
    return [numbers.get(workloads[name], others) for name in launches]


def _by_stalls(launches: Sequence[LaunchTimes]) -> float:
    """Return the variance of a launch's logarithm that its trial's irregular stalls alone explain."""
    return float(np.mean([launch.stall_error**2 for launch in launches]))


def spreads_of(logs: Array) -> list[TrialSpread]:
    """Return the spread of each row of ``logs``, trials x blocks, with NaN where a trial did not run."""
    trials, blocks = np.nonzero(~np.isnan(logs))
    return _spreads(np.zeros(len(logs), np.intp), trials, blocks, logs[trials, blocks])


def _spreads(drifts: Indices, trials: Indices, blocks: Indices, values: Array) -> list[TrialSpread]:
    """Return the spread of each trial; ``drifts`` has the number of the one that it follows.

    The other arrays hold the trial, block and logarithm of each launch.

    Time and memory grow with the number of launches, and with the cube of the smaller of the numbers of trials and
    blocks.
    """
    count = len(drifts)
    counts = np.bincount(trials, minlength=count)
    repeated = np.flatnonzero(counts > 1)
    if len(repeated) < FEWEST_TRIALS:
        return []
    used = counts[trials] > 1
    rows = np.searchsorted(repeated, trials[used])
    columns = np.unique(drifts[trials[used]] * (blocks.max() + 1) + blocks[used], return_inverse=True)[1]
    lengths = np.bincount(trials, values, minlength=count) / np.maximum(counts, 1)
    values = values[used]
    degrees = (counts[repeated] - 1).astype(np.float64)
    layout = Layout(rows, columns, len(repeated), int(columns.max()) + 1)
    of_column = np.zeros(layout.blocks, np.intp)
    of_column[columns] = drifts[repeated][rows]
    block_freedoms = layout.free_blocks(of_column)
    if degrees.sum() <= block_freedoms.sum() and layout.blocks < len(columns):
        return []  # blocks that trials share explain all: what is left is rounding
    centred = values - layout.trial_means(values)[rows]
    variances = sums(rows, centred**2) / degrees
    if not np.any(variances > 0.0):
        return []
    leverage = effects = np.zeros(0)
    for _ in range(_ROUNDS):
        scales = _scales(variances, degrees, lengths[repeated], lengths)
        scale = scales[repeated]
        prior_variance, prior_freedom = moderation(variances / scale, degrees)
        moderated = (prior_freedom * prior_variance * scale + degrees * variances) / (prior_freedom + degrees)
        weights = 1.0 / np.maximum(moderated, prior_variance * scale)
        effects, residuals = layout.two_way(values, weights)
        totals = sums(columns, weights[rows])
        leverage = sums(rows, weights[rows] / totals[columns]) / (degrees + 1.0)
        free = degrees * np.maximum(1.0 - leverage, 1e-9)
        variances = np.where(leverage < 1.0 - 1e-9, sums(rows, residuals**2) / free, variances)
    scales = _scales(variances, degrees, lengths[repeated], lengths)
    scale = scales[repeated]
    prior_variance, prior_freedom = moderation(variances / scale, degrees)
    moderated = (prior_freedom * prior_variance * scale + degrees * variances) / (prior_freedom + degrees)
    most = max(float(degrees.sum() - block_freedoms.sum()), 1.0)
    by_chance = 1.0 / sums(columns, 1.0 / moderated[rows])
    drift_of = [
        BlockEffects.estimated(effects[of_column == drift], by_chance[of_column == drift], freedom, most)
        for drift, freedom in enumerate(block_freedoms.tolist())
    ]
    drift_of = shrink_drifts(drift_of, len(np.unique(blocks[used])) - 1.0)
    common = _scale_freedom(degrees, min(prior_freedom, most))
    shrunk, single = _shrunk(variances / scale, degrees, (prior_variance, prior_freedom), most)
    # A trial with a single launch has nothing of its own to say.
    found = [
        TrialSpread(single[0] * scale, single[1], single[1], min(single[1], common), 0.0, drift_of[drift])
        for scale, drift in zip(scales.tolist(), drifts.tolist(), strict=True)
    ]
    for index, row in enumerate(repeated):
        own = float(degrees[index])
        variance, freedom = shrunk[index]
        found[row] = TrialSpread(
            variance * float(scale[index]),
            freedom,
            max(freedom - own, 0.0),
            min(freedom, own + common),
            float(leverage[index]),
            found[row].blocks,
        )
    return found


def _shrunk(variances: Array, degrees: Array, prior: _Part, most: float) -> tuple[list[_Part], _Part]:
    """Return the variance of each trial's launches as it is used, and that of a trial with a single launch.

    Each is shrunk towards the prior, unless none of the others would spread as much; with few launches it is at least
    the mean of all trials, of which one in ``_FEW`` may be left out that spreads so.

    Args:
        variances: of trials, each relative to what the length of its step leads to.
        degrees: of freedom of each.
        prior: their prior variance and its degrees of freedom.
        most: degrees of freedom of all trials together.
    """
    prior_variance, prior_freedom = prior
    own, common = degrees * variances, prior_variance * prior_freedom
    used = (own + common) / (degrees + prior_freedom)
    freedoms = (own + common) ** 2 / (own**2 / degrees + common**2 / prior_freedom)
    exceeded = scipy.special.fdtrc(degrees, prior_freedom, variances / prior_variance)
    exceptions = exceeded < min(_EXCEPTION, _EXCEPTIONS / len(degrees))
    used, freedoms = np.where(exceptions, variances, used), np.where(exceptions, degrees, freedoms)
    left_out = exceptions & (np.argsort(np.argsort(exceeded)) < len(degrees) // _FEW)
    mean, mean_freedom = mean_variance(variances[~left_out], degrees[~left_out])
    low = (used < mean) & (degrees < ENOUGH)
    used, freedoms = np.where(low, mean, used), np.where(low, mean_freedom, freedoms)
    single = max((prior_variance, prior_freedom), (mean, mean_freedom))
    parts = zip(used.tolist(), np.minimum(freedoms, most).tolist(), strict=True)
    return list(parts), (single[0], min(single[1], most))


def mean_variance(variances: Array, degrees: Array) -> _Part:
    """Return the mean variance of trials, and with how many degrees of freedom it is known.

    Unlike the prior's, it is right whatever the shape of the noise: of launches that end in one of two states, many
    trials see one state alone, and only the mean over all has the variance that each of them may yet see. It rests
    on few trials where few spread, and is known the less.
    """
    total = float(degrees @ variances)
    squares = float(degrees**2 / (degrees + 2.0) @ variances**2)
    return total / float(degrees.sum()), total**2 / squares if squares > 0.0 else float(degrees.sum())


def _scales(variances: Array, degrees: Array, lengths: Array, wanted: Array) -> Array:
    """Return how much more launches of trials vary with the ``wanted`` logarithms of steps than those of the mean one.

    Short steps spread more. The trend of the log variance over the log step (limma-trend) is shrunk by its standard
    error towards none.
    """
    distance = lengths - lengths.mean()
    total = float(distance @ distance)
    floor = _LEAST_VARIANCE * float(variances.mean())
    logs = np.log(np.maximum(variances, floor)) - scipy.special.digamma(degrees / 2) + np.log(degrees / 2)
    error = float(scipy.special.polygamma(1, degrees / 2).mean()) + _PRIOR_HETEROGENEITY
    slope = float(distance @ logs) / (total + error / _PRIOR_SLOPE**2)
    scales: Array = np.exp(slope * (wanted - lengths.mean()))
    return scales


def _scale_freedom(degrees: Array, prior_freedom: float) -> float:
    """Return with how many degrees of freedom the prior variance itself is known, from the logarithms of variances.

    A variance of f degrees of freedom has a logarithm of variance near 2 / f.
    """
    return (
        2.0
        * len(degrees)
        / float(np.mean(scipy.special.polygamma(1, degrees / 2) + scipy.special.polygamma(1, prior_freedom / 2)))
    )


def moderation(variances: Array, degrees: Array) -> tuple[float, float]:
    """Return the prior variance s0² and its degrees of freedom d0, from trials' variances.

    With s² ~ s0² F(d, d0), log s² has the variance trigamma(d / 2) + trigamma(d0 / 2): so the second term is what
    log variances spread more than their degrees of freedom explain (Smyth 2004, section 6.2). Of few trials or few
    launches that difference is little but noise. It is therefore weighed, by its standard error, against what
    trials have whose spreads differ by up to nearly four times; a usual study of two launches goes by that.
    """
    floor = _LEAST_VARIANCE * float(variances.mean())
    logs = np.log(np.maximum(variances, floor)) - scipy.special.digamma(degrees / 2) + np.log(degrees / 2)
    trigamma = scipy.special.polygamma(1, degrees / 2)
    error = float(np.mean(scipy.special.polygamma(3, degrees / 2) + 2.0 * trigamma**2)) / (len(logs) - 1)
    prior = _PRIOR_HETEROGENEITY
    observed = float(logs.var(ddof=1) - trigamma.mean())
    heterogeneity = max((observed / error + 1.0 / prior) / (1.0 / error + 1.0 / prior**2), 1e-3)
    freedom = 2.0 * _inverse_trigamma(heterogeneity)
    return float(np.exp(logs.mean() + scipy.special.digamma(freedom / 2) - np.log(freedom / 2))), freedom


def _inverse_trigamma(value: float) -> float:
    """Newton's method on 1 / trigamma, which is convex: it converges from this start (Smyth 2004, appendix)."""
    found = 0.5 + 1.0 / value
    for _ in range(_NEWTON_STEPS):
        trigamma = float(scipy.special.polygamma(1, found))
        step = trigamma * (1.0 - trigamma / value) / float(scipy.special.polygamma(2, found))
        found += step
        if abs(step) < _CONVERGED * found:
            break
    return found
