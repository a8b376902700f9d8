"""Stalls: steps that take much longer than the usual ones, how much time they cost, and whether they come regularly.

They are where the mean of a launch's steps and their median part. Nothing here removes a step: the step time is the
mean of all steps, whatever this finds.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from steptime.results.json_form import JsonForm
from steptime.statistics.warmup import shortest_s

Array = NDArray[np.float64]

_QUICK, _USUAL = 0.05, 0.25
"""Shares of the steps that are quicker than the two between which the spread of usual steps is read: half of all steps
may be stalls."""
_NORMAL_QUICK, _NORMAL_USUAL = 1.645, 0.674
"""The same shares as standard deviations below the mean of a normal distribution."""
_DEVIATIONS = 3.0
"""A usual step of a normal distribution is further above the mean once in 740."""
_LEAST = float(np.log(1.1))
"""What a stall is longer than a usual step, at least; on the scale of logarithms, as are the next two."""
_NEGLIGIBLE = 0.25
"""Of the typical stall."""
_PARTED = float(np.log(1.1))
"""Mean and median that are so far apart are said to part."""
_SHARE = 0.05
"""Of the seconds, that regular stalls take at least to be spoken of."""
_FEWEST = 6
"""Fewer stalls in a row, over all launches, have no period: a few come at equal distances by chance."""
_REGULAR = 0.6
"""The correlation of stalls with those one period later, at least."""
_VISIBLE, _BY_CHANCE = 0.3, 5.0
"""The same of all steps, among which it must be seen: so much, and so many standard errors of independent steps."""
_MOST_OF = 0.5
"""Of all stalls, by their seconds: regular ones that are spoken of alone."""
_AS_HIGH = 0.9
"""Of the highest correlation: the first lag with as much is the period, and not its double."""
_JITTERED = (20, 100)
"""Lags from which on one and two lags to each side are added."""
_FEWEST_JITTERED = 12
_FEWEST_STEPS = 8
_SHORT_SERIES = 256
"""Of which products are summed sooner than transformed."""
_MIDDLE = 0.5
_ROUNDING = 1e-9
"""By how much a sum may differ in another order."""


class Stalls(JsonForm):
    """Where the mean step and the median one of a trial part."""

    mean_over_median: float | None
    share: float
    """Of the steps; 0 if steps spread widely and none is much longer."""
    extra_s: float
    """By how much a stall is longer than other steps, on average."""
    time_share: float
    """Of all seconds, what stalls add."""
    period: int | None
    """Steps from one stall to the next, where they are regular."""


def excess_s(launches: Sequence[Array]) -> list[Array]:
    """Return by how many seconds each step of each launch is longer than the usual ones; 0 elsewhere."""
    found = [np.zeros(len(each)) for each in launches]
    for indices, times in by_length(launches):
        if times.shape[1] < _FEWEST_STEPS:
            continue
        ordered = np.sort(times, axis=1)
        shortest = shortest_s(quantiles_of(ordered, 0.5))[:, None]
        ordered_logs = np.log(np.maximum(ordered, shortest))
        quick, usual = (quantiles_of(ordered_logs, share) for share in (_QUICK, _USUAL))
        deviation = (usual - quick) / (_NORMAL_QUICK - _NORMAL_USUAL)
        limit = usual + _NORMAL_USUAL * deviation + np.maximum(_LEAST, _DEVIATIONS * deviation)
        long = np.log(np.maximum(times, shortest)) > limit[:, None]
        for row in np.flatnonzero((ordered_logs[:, -1] > limit) & (ordered_logs[:, 0] <= limit)).tolist():
            excess = times[row] - times[row][~long[row]].mean()
            # Usual steps that are just beyond the limit do not count where there are much longer ones.
            counts = long[row] & (excess > _NEGLIGIBLE * np.median(excess[long[row]]))
            found[indices[row]] = np.where(counts, excess, 0.0)
    return found


def by_length(series: Sequence[Array]) -> Iterator[tuple[list[int], Array]]:
    """Yield the indices of series of one length, and these as the rows of one array."""
    groups: dict[int, list[int]] = {}
    for index, each in enumerate(series):
        groups.setdefault(len(each), []).append(index)
    for indices in groups.values():
        yield indices, np.concatenate([series[index] for index in indices]).reshape(len(indices), -1)


def periods_of(launches: Sequence[Array], excesses: Sequence[Array]) -> list[int | None]:
    """Return ``period_of`` of each launch by itself.

    Few launches have stalls that come regularly. A look at the ranks of thousands of short ones together leaves those
    out in which there cannot be a period.
    """
    found: list[int | None] = [None] * len(launches)
    for indices, times in by_length(launches):
        if times.shape[1] < _FEWEST_STEPS:
            continue
        visible = _may_be_visible(times) if times.shape[1] <= _SHORT_SERIES else np.ones(len(times), dtype=bool)
        for index, seen in zip(indices, visible.tolist(), strict=True):
            if seen or np.count_nonzero(excesses[index]) >= _FEWEST:
                found[index] = period_of([launches[index]], [excesses[index]])
    return found


def _may_be_visible(times: Array) -> NDArray[np.bool_]:
    """Return which rows of short series may have a period that their ranks show: none is missed."""
    size = times.shape[1]
    ranks = np.argsort(np.argsort(times, axis=1), axis=1) / size
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    lags = range(min(size // 3, size // _FEWEST - 1) + 1)
    products = np.stack([(centred[:, : size - lag] * centred[:, lag:]).sum(axis=1) for lag in lags], axis=1)
    correlation = products / (size - np.arange(len(lags))) / (products[:, :1] / size)
    found: NDArray[np.bool_] = (correlation[:, 2:] >= _visible(size) - _ROUNDING).any(axis=1)
    return found


def _visible(steps: int) -> float:
    """Return the correlation of all steps with those one period later that chance does not give."""
    return max(_VISIBLE, _BY_CHANCE / float(np.sqrt(steps)))


def quantiles_of(ordered: Array, share: float) -> Array:
    """Return a quantile of ascending values along the last axis, as ``numpy.quantile`` does, which takes long."""
    place = share * (ordered.shape[-1] - 1)
    below = max(min(int(place), ordered.shape[-1] - 2), 0)
    low, high = ordered[..., below], ordered[..., min(below + 1, ordered.shape[-1] - 1)]
    part = place - below
    found: Array = low + (high - low) * part if part < _MIDDLE else high - (high - low) * (1.0 - part)
    return found


def period_of(launches: Sequence[Array], excesses: Sequence[Array] | None = None) -> int | None:
    """Return the number of steps from one stall to the next over launches; None if stalls are rare or irregular.

    The autocorrelation of steps of which every P-th stalls is high at lags of P, 2 P and so on, and low between them.
    It is summed over launches, each of which begins anywhere in the period. Three series are looked at: what stalls
    take longer; the ranks of all steps, since stalls may be no longer than usual steps vary; and the first again
    with neighbouring lags added, since what comes every so many seconds does not come after the same number of steps.

    Args:
        launches: the steps of each launch.
        excesses: their ``excess_s``, where it is known.
    """
    if excesses is None:
        excesses = excess_s(launches)
    begun = sum(int(np.count_nonzero((each > 0.0) & (np.roll(each, 1) <= 0.0))) for each in excesses if each.any())
    found, steps, clipped = None, sum(map(len, launches)), np.zeros(0)
    if begun >= _FEWEST:
        # A single long pause must not decide: nothing counts for more than twice the typical stall.
        typical = float(np.median(np.concatenate([each[each > 0.0] for each in excesses])))
        clipped = _autocorrelation([np.minimum(each, 2.0 * typical) for each in excesses])
        found = _peak(clipped, _REGULAR)
    if found is None and steps >= _FEWEST_STEPS:
        # Of ranks, in which a few long stalls weigh no more than other steps.
        rows = [each for _, each in by_length(launches) if each.size]
        ranks = [rank for each in rows for rank in np.argsort(np.argsort(each)) / each.shape[1]]
        correlation = _autocorrelation(ranks, steps // _FEWEST)
        found = _peak(correlation, _visible(steps))
    if found is None and begun >= _FEWEST_JITTERED:
        found = _peak(clipped, _REGULAR, jitter=1)
    return found


def _peak(correlation: Array, least: float, jitter: int = 0) -> int | None:
    """Return the first lag of high correlation; None for none.

    Args:
        correlation: by lag, from 0.
        least: correlation that is high.
        jitter: how many times the neighbours of ``_JITTERED`` are added to each side.
    """
    lags = np.arange(2, len(correlation))
    widths = jitter * np.searchsorted(_JITTERED, lags, side="right")
    total = np.concatenate([[0.0], np.cumsum(correlation)])
    around = total[np.minimum(lags + widths, len(correlation) - 1) + 1] - total[lags - widths]
    if not len(around) or around.max() < least:
        return None
    first = int(np.argmax(around >= _AS_HIGH * around.max()))
    near = np.arange(lags[first] - widths[first], min(lags[first] + 2 * widths[first] + 1, len(correlation)))
    # A slow swing is as much like itself one step later; stalls are not.
    if correlation[1 : near[0]].max() >= _REGULAR * around[first]:
        return None
    return int(near[np.argmax(correlation[near])])


def _autocorrelation(series: Sequence[Array], lags: int | None = None) -> Array:
    """Return the autocorrelation over several series of one process, up to a third of the longest or so many lags."""
    last = max(map(len, series), default=0) // 3
    if not series or last == 0 or lags == 0:
        return np.zeros(0)
    last = min(last, (lags or last + 1) - 1)
    mean = np.concatenate(series).mean()
    sums, pairs = np.zeros(last + 1), np.zeros(last + 1)
    for _, rows in by_length(series):
        count, size = rows.shape
        centred, most = rows - mean, min(last + 1, size)
        if size <= _SHORT_SERIES:
            sums[:most] += [np.vdot(centred[:, : size - lag], centred[:, lag:]) for lag in range(most)]
        else:
            padded = 1 << (2 * size - 1).bit_length()
            for each in centred:
                spectrum = np.fft.rfft(each, n=padded)
                sums[:most] += np.fft.irfft(spectrum.real**2 + spectrum.imag**2, n=padded)[:most]
        pairs[:most] += count * (size - np.arange(most))
    if sums[0] <= 0.0:
        return np.zeros(0)
    found: Array = sums / np.maximum(pairs, 1.0) / (sums[0] / pairs[0])
    return found


def find_stalls(
    launches: Sequence[Array], mean_s: float, median_s: float, known: Sequence[Array | None] | None = None
) -> Stalls | None:
    """Return where the mean and the median of a trial's steps part; None if they agree.

    Args:
        launches: the steady steps of each launch.
        mean_s: the trial's mean step.
        median_s: its median.
        known: the ``excess_s`` of launches, None of those without a stall; it is computed where this is not given.
    """
    excesses = excess_s(launches) if known is None else [*map(_excess_or_zeros, launches, known)]
    period = period_of(launches, excesses)
    total, steps = sum(float(rows.sum()) for _, rows in by_length(launches)), sum(map(len, launches))
    found = [seconds for each in excesses if each.any() for seconds in each[each > 0.0].tolist()]
    regular = [] if period is None else [each for times in launches for each in _regular_excess_s(times, period)]
    # What comes every so many seconds changes its place in the period, which then shows little of it.
    if sum(regular) >= _MOST_OF * sum(found):
        found = regular
    time_share = sum(found) / total if total > 0.0 else 0.0
    parted = median_s <= 0.0 or abs(np.log(mean_s / median_s)) >= _PARTED
    if not parted and not (period is not None and time_share >= _SHARE):
        return None
    return Stalls(
        mean_over_median=mean_s / median_s if median_s > 0.0 else None,
        share=len(found) / steps,
        extra_s=sum(found) / len(found) if found else 0.0,
        time_share=time_share,
        period=period,
    )


def _excess_or_zeros(launch: Array, known: Array | None) -> Array:
    return np.zeros(len(launch)) if known is None else known


def _regular_excess_s(times: Array, period: int) -> list[float]:
    """Return what the stalls of one launch take longer, from the mean of each place in the period."""
    places = np.arange(len(times)) % period
    counts = np.bincount(places, minlength=period)
    if counts.min() == 0:
        return []
    means = np.bincount(places, weights=times) / counts
    above = means - np.quantile(means, _USUAL)
    long = above > max(float(np.expm1(_LEAST)) * float(np.quantile(means, _USUAL)), 0.5 * float(above.max()))
    if not np.any(long) or np.all(long):
        return []
    others = float(times[~long[places]].mean())
    return [float(each) for place in np.flatnonzero(long) for each in [means[place] - others] * int(counts[place])]
