"""Parallel efficiency: throughput per worker relative to a baseline of fewer workers, and the line of ideal scaling."""

from collections.abc import Sequence

from steptime.catalog.cluster import Cluster
from steptime.catalog.strategies import strategy_named
from steptime.measurements.comparison import Measured
from steptime.measurements.summary_form import TrialSummary
from steptime.study.study import FURTHER_FIELDS
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
    "cores_per_worker",
    "environment_variables",
    "container",
    "batch_per_worker",
    "optimizer",
    *FURTHER_FIELDS,
)


def baseline_of(trial: Trial, candidates: Sequence[Measured]) -> Measured | None:
    """Return the point that ``trial`` is compared with; None when only larger ones were measured.

    That is the trial with the fewest workers of the same strategy and options, or with the strategy ``single``,
    which is what one worker does without the strategy's wrapping, on hosts that are among its own. Of two with as few
    workers the one of the same strategy is taken.
    """
    comparable = [
        each
        for each in candidates
        if all(getattr(each.trial, name) == getattr(trial, name) for name in _SAME)
        and each.trial.workers <= trial.workers
        and (strategy_named(each.trial.strategy).single_baseline or _same_strategy(each.trial, trial))
        and _same_tier(each.trial, trial)
        and _same_hosts(each.trial.cluster, trial.cluster)
    ]

    def preference(each: Measured) -> tuple[int, bool, bool]:
        return each.trial.workers, not _same_strategy(each.trial, trial), each.trial.tuning != trial.tuning

    return min(comparable, key=preference, default=None)


def _same_strategy(one: Trial, other: Trial) -> bool:
    return one.strategy == other.strategy and one.options == other.options


def _same_tier(one: Trial, other: Trial) -> bool:
    """Whether both are of one tier, or compute alike: with the same values of the options that both have."""
    shared = one.options.keys() & other.options.keys()
    return one.tuning == other.tuning or all(one.options[name] == other.options[name] for name in shared)


def _same_hosts(baseline: Cluster | None, other: Cluster | None) -> bool:
    """Whether the hosts of the baseline's workers are among the other's, behind the same links where they use any."""
    if baseline is None or other is None:
        return baseline is other
    count = baseline.worker_hosts
    mine, others = baseline.hosts[:count], other.hosts[:count]
    if count == 1:
        return baseline.kind == other.kind and mine[0].cpu_share == others[0].cpu_share
    settings = ("kind", "workers_per_host", "delay_s")
    return mine == others and all(getattr(baseline, name) == getattr(other, name) for name in settings)


def ideal_throughput(trials: Sequence[TrialSummary]) -> list[tuple[int, float]]:
    """Return the points ``(workers, samples per second)`` of the ideal line of one scaling curve.

    The baseline is what the trials' efficiencies are relative to, whether or not it is among them: efficiency is
    throughput per worker over the baseline's, so throughput over efficiency is what perfect scaling would have
    given. Where no trial is compared with fewer workers (strong scaling: their batches differ), the trial with the
    fewest workers is the baseline. Fewer than two numbers of workers have no line.
    """
    measured = {trial.workers: rate for trial in trials if (rate := trial.throughput_samples_per_s.value) is not None}
    per_worker = _baseline_per_worker(trials)
    counts = set(measured) | {workers for workers, _ in per_worker}
    if len(counts) < 2:  # noqa: PLR2004 - see the docstring
        return []
    first = min(measured)
    rate = per_worker[0][1] if per_worker else measured[first] / first
    return [(workers, rate * workers) for workers in sorted(counts)]


def _baseline_per_worker(trials: Sequence[TrialSummary]) -> list[tuple[int, float]]:
    """The baseline's workers and throughput per worker, from each trial that is compared with it."""
    found = []
    for trial in trials:
        rate, efficiency = trial.throughput_samples_per_s.value, trial.efficiency
        if rate and efficiency.value and efficiency.baseline_workers not in (None, trial.workers):
            found.append((efficiency.baseline_workers or 0, rate / trial.workers / efficiency.value))
    return found
