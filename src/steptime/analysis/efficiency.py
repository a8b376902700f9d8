"""Efficiencies relative to fewer workers: parallel efficiency, POP's factors of it, and the line of ideal scaling."""

from collections.abc import Sequence
from math import hypot, log
from operator import attrgetter
from typing import Literal

from steptime.analysis.ablation.form import PopEfficiencies, StepBreakdown
from steptime.analysis.summary_form import TrialSummary
from steptime.catalog.choices import strategy_named
from steptime.catalog.cluster import Cluster
from steptime.results.json_form import Interval
from steptime.statistics.comparison import Measured
from steptime.statistics.interval import from_log
from steptime.study.study import FURTHER_FIELDS
from steptime.study.trial import Trial

EXACT: Interval = Interval(1.0, 1.0, 1.0)
"""Of a trial relative to itself."""
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
_SAME_IN_ALL = (*(name for name in _SAME if name != "batch_per_worker"), "global_batch")
"""Likewise, of curves of strong scaling."""


def baseline_of(trial: Trial, candidates: Sequence[Measured], same: Sequence[str] = _SAME) -> Measured | None:
    """Return the point that ``trial`` is compared with; None when only larger ones were measured.

    That is the trial with the fewest workers of the same strategy and options, or with the strategy ``single``,
    which is what one worker does without the strategy's wrapping, on hosts that are among its own. Of two with as few
    workers the one of the same strategy is taken.

    Args:
        trial: of any number of workers.
        candidates: what was measured.
        same: the fields in which the point has to agree; with the batch per worker its curve is one of weak scaling.
    """
    settings = attrgetter(*same)
    wanted = settings(trial)
    comparable = [
        each
        for each in candidates
        if each.trial.workers <= trial.workers
        and settings(each.trial) == wanted
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


def with_scaling(trials: Sequence[tuple[Measured, StepBreakdown | None]]) -> dict[str, PopEfficiencies]:
    """Return the efficiencies of trials by their ids, with computation and global efficiency where a reference is.

    The reference is the trial that parallel efficiency is relative to (the same batch per worker: weak scaling), or,
    without one of fewer workers, that with the same global batch and the fewest workers (strong scaling).
    """
    known = [(each, found.pop, found.step_s) for each, found in trials if found and found.pop]
    points = [each for each, _, _ in known]
    by_id = {each.trial.id: pop for each, pop, _ in known}
    scaled = {}
    for each, pop, step in known:
        reference, scaling = _reference(each.trial, points)
        if reference.id == each.trial.id and each.trial.workers > 1:
            scaled[each.trial.id] = pop
            continue
        other = by_id[reference.id]
        samples = each.trial.batch_per_worker / reference.batch_per_worker
        alone = reference.id == each.trial.id
        computation = EXACT if alone else _ratio(other.useful_s, pop.useful_s, samples)
        whole = Interval(step.value_s, step.low_s, step.high_s)
        scaled[each.trial.id] = pop.model_copy(
            update={
                "computation": computation,
                "global_efficiency": pop.parallel if alone else _ratio(other.useful_s, whole, samples),
                "reference": reference.id,
                "reference_workers": reference.workers,
                "reference_strategy": reference.strategy,
                "scaling": scaling,
            }
        )
    return scaled


def _reference(trial: Trial, points: Sequence[Measured]) -> tuple[Trial, Literal["weak", "strong"]]:
    weak = baseline_of(trial, points)
    if weak is not None and (weak.trial.workers < trial.workers or trial.workers == 1):
        return weak.trial, "weak"
    strong = baseline_of(trial, points, _SAME_IN_ALL)
    if strong is not None and strong.trial.workers < trial.workers:
        return strong.trial, "strong"
    return trial, "weak"


def _ratio(upper: Interval, lower: Interval, factor: float) -> Interval:
    """Return the ratio of two independent positive durations, whose logarithms have the intervals' half-widths."""
    value = factor * upper.value / lower.value
    bounds = (upper.low, upper.high, lower.low, lower.high)
    if any(each is None or each <= 0.0 for each in bounds):
        return Interval(value, None, None)
    up_low, up_high, down_low, down_high = (float(each or 0.0) for each in bounds)
    below = hypot(log(upper.value / up_low), log(down_high / lower.value))
    above = hypot(log(up_high / upper.value), log(lower.value / down_low))
    return Interval(value, from_log(log(value) - below), from_log(log(value) + above))


def fewer_workers(trial: Trial, points: Sequence[Measured]) -> Measured | None:
    """Return the point of fewer workers that shows what the trial's further ones bring; None without any.

    It has the same batch per worker (weak scaling), or, where no such point is, the same global batch (strong scaling).
    """
    baselines = (baseline_of(trial, points, same) for same in (_SAME, _SAME_IN_ALL))
    return next((each for each in baselines if each and each.trial.workers < trial.workers), None)


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
