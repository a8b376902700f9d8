"""What in a user's own curve contradicts itself: times of one row, and steps that no training takes.

A step takes as long as its samples by the throughput. From one number of workers to the next, each with its batch, a
step hardly becomes shorter, and longer only by what travels; a thousandfold is a slip of units.
"""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from steptime.curves.curve import ScalingCurve
from steptime.units import format_seconds

_SAME = 1.05
"""Two times of a row, and a rate and its limit, may differ by this factor, and times by their rounding."""
_MORE, _FLAT = 2.0, 1.3
"""Where twice the workers or more together are not faster than this, the throughput may be that of one of them."""
_FALLS = 1.3
"""Where more workers have a step shorter by this factor, they may share one batch."""
_STEEPEST = 50.0
"""By how much a step may grow for each time as many workers: the steepest published growth is 3.2, over a slow network.

Faster devices wait longer for the same network, by an order of magnitude since.
"""
_LONGEST_JUMP = 300.0
_DEEPEST_FALL = 0.5
"""By how much a step may shrink, for each time as many workers."""
_MILLI = (300.0, 5000.0)
"""Factors that are as between milliseconds and seconds."""
_LONG_S = 10.0
"""No published curve of benchmarks/evidence has all of its steps longer; those of large models may."""
_OF_A_TABLE = "write all step times in seconds, or leave the wrong point out"


def disagreement(row: Mapping[str, str]) -> str:
    """Return how the step time of a row contradicts its batch and throughput; empty if it does not, or lacks one.

    Args:
        row: texts of numbers by column.
    """
    seconds, rate = float(row["step_time_s"]), float(row["throughput_samples_per_s"])
    workers, batch = int(row["workers"]), int(row["batch_per_worker"])
    computed = workers * batch / rate
    factor = max(computed / seconds, seconds / computed)
    if factor <= _SAME * (1 + _rounding(row["step_time_s"])) * (1 + _rounding(row["throughput_samples_per_s"])):
        return ""
    sentence = (
        f"step_time_s is {seconds:g}, but {workers} workers x batch_per_worker {batch} / throughput_samples_per_s "
        f"{rate:g} is {computed:.3g} s, {factor:.3g} times {'more' if computed > seconds else 'less'}"
    )
    if workers > 1 and workers / _SAME < computed / seconds < workers * _SAME:
        return f"{sentence}; is the throughput that of one worker, or the batch that of all? write the other one"
    return f"{sentence}{_milliseconds(factor)}; correct one of them, or leave it out"


def above_store(workers: int, batch: int, seconds: float, rate: float) -> str:
    """Return how a step of ``workers`` contradicts the samples per second that their store gives at most, or empty."""
    reading = workers * batch / seconds
    if reading <= _SAME * rate:
        return ""
    return (
        f"is {rate:g}, but {workers} workers read {reading:,.0f} samples/s; state what the store gives to all workers "
        "at most, or leave it empty"
    )


def disagreeing_rows(rows: Mapping[int, Mapping[str, str]]) -> str:
    """Return how step times and throughputs of a curve contradict each other without a batch; empty if they do not.

    Args:
        rows: by line, texts of numbers by column; all have the same batch per worker, which is not stated.
    """
    batches = {
        line: float(row["step_time_s"]) * float(row["throughput_samples_per_s"]) / int(row["workers"])
        for line, row in rows.items()
    }
    if not batches:
        return ""
    least, most = min(batches, key=batches.__getitem__), max(batches, key=batches.__getitem__)
    factor = batches[most] / batches[least]
    rounded = 1.0
    for line in (least, most):
        rounded *= (1 + _rounding(rows[line]["step_time_s"])) * (1 + _rounding(rows[line]["throughput_samples_per_s"]))
    if factor <= _SAME * rounded:
        return ""
    return (
        f"step_time_s x throughput_samples_per_s / workers is the batch per worker: {batches[least]:.4g} in line "
        f"{least} and {batches[most]:.4g} in line {most}, {factor:.3g} times more{_milliseconds(factor)}; correct one "
        "of them, or leave one of the two columns out"
    )


def _rounding(text: str) -> float:
    """Return by which share a number may be off since its digits end."""
    mantissa = text.lower().partition("e")[0]
    digits = mantissa.replace(".", "").lstrip("0-+")
    return 0.5 / int(digits) if digits.isdecimal() and int(digits) else 0.0


def jumps(curve: ScalingCurve, remedy: str = _OF_A_TABLE) -> list[str]:
    """Return the steps of a curve that no training takes, a sentence each, with the ``remedy`` at its end."""
    sentences = []
    for before, after in pairwise(sorted((*curve.fit, *curve.holdout), key=lambda point: point.workers)):
        more = after.workers / before.workers
        grown = after.step_time / before.step_time
        if grown > min(_STEEPEST * more, _LONGEST_JUMP):
            times = f"{grown:,.0f} times the {before.step_time:g} s"
        elif grown < _DEEPEST_FALL / more:
            times = f"{float(f'{1 / grown:.3g}'):,g} times less than the {before.step_time:g} s"
        else:
            continue
        hint = _milliseconds(max(grown, 1 / grown)) if remedy == _OF_A_TABLE else ""
        sentences.append(
            f"{after.step_time:g} s at {after.workers} workers is {times} at {before.workers}, which no training of "
            f"one batch per worker takes{hint}; {remedy}"
        )
    return sentences


def long_steps(rows: Mapping[int, Mapping[str, str]]) -> list[str]:
    """Return a question if the step times of a curve look like milliseconds, else nothing.

    Steps of minutes exist, so that this refuses nothing. A throughput beside a step time shows its unit.

    Args:
        rows: by line, texts of numbers by column.
    """
    seconds = {line: float(row["step_time_s"]) for line, row in rows.items() if row.get("step_time_s")}
    with_rate = [row for row in rows.values() if row.get("throughput_samples_per_s")]
    if with_rate or not seconds or min(seconds.values()) < _LONG_S:
        return []
    line, longest = max(seconds.items(), key=lambda own: own[1])
    value, length = rows[line]["step_time_s"], format_seconds(longest)
    sentence = (
        f"step_time_s is {value} in line {line}, read as a step of {length}, and at least {_LONG_S:g} in all others: "
        "if the column is in milliseconds, divide it by 1000; a column throughput_samples_per_s shows that it is in "
        "seconds"
    )
    return [sentence]


def _milliseconds(factor: float) -> str:
    return " (as between milliseconds and seconds)" if _MILLI[0] <= factor <= _MILLI[1] else ""


def one_throughput(curve: ScalingCurve) -> str:
    """Return that the throughput of all workers hardly grows with their number; empty if it does."""
    first, last = curve.fit[0], curve.fit[-1]
    slower = curve.slowdown(np.array([last.workers, first.workers], dtype=float))
    # Workers that share cores have no more throughput than these give.
    ideal = last.workers / slower[0] / (first.workers / slower[1])
    if ideal < _MORE or last.workers / last.step_time >= _FLAT * first.workers / first.step_time:
        return ""
    return (
        f"{last.workers} workers have at most {_FLAT} times the throughput of {first.workers}; if "
        "throughput_samples_per_s is that of one worker, multiply it by workers, and if it is that of all, give "
        "step_time_s instead"
    )


def one_batch(curve: ScalingCurve) -> str:
    """Return that steps become shorter with workers, as with one batch for all of them; empty if they do not."""
    first, last = curve.fit[0], curve.fit[-1]
    if curve.setup.one_batch or last.step_time * _FALLS >= first.step_time:
        return ""
    return (
        f"{last.workers} workers take {last.step_time:g} s and {first.workers} take {first.step_time:g} s; steps that "
        "become shorter are those of one batch for all workers (strong scaling): state the batch_per_worker of each "
        "row, or measure the same batch per worker"
    )
