"""Throughput per worker relative to the fewest workers that were measured."""

from collections.abc import Sequence
from dataclasses import dataclass

from steptime.measurements.launch_times import LaunchTimes
from steptime.study.trial import Trial

# Trials that differ in nothing else are points of one scaling curve.
_SAME = (
    "framework",
    "workload",
    "input_shape",
    "classes",
    "dataset",
    "loader",
    "loader_processes",
    "precision",
    "device",
    "threads",
    "batch_per_worker",
    "optimizer",
)


@dataclass(frozen=True)
class Measured:
    """A trial with its launches."""

    trial: Trial
    launches: Sequence[LaunchTimes]


def baseline_of(trial: Trial, candidates: Sequence[Measured]) -> Measured | None:
    """Return the point that ``trial`` is compared with; None when only larger ones were measured.

    That is the trial with the fewest workers of the same strategy and options, or with the strategy ``single``,
    which is what one worker does without the strategy's wrapping. Of two with as few workers the one of the same
    strategy is taken.
    """
    comparable = [
        each
        for each in candidates
        if all(getattr(each.trial, name) == getattr(trial, name) for name in _SAME)
        and each.trial.workers <= trial.workers
        and (each.trial.strategy == "single" or _same_strategy(each.trial, trial))
    ]
    return min(comparable, key=lambda each: (each.trial.workers, not _same_strategy(each.trial, trial)), default=None)


def _same_strategy(one: Trial, other: Trial) -> bool:
    return one.strategy == other.strategy and one.options == other.options
