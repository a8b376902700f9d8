"""A trial with what its launches gave, as a results folder has them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from steptime.analysis.ablation.breakdown import break_down
from steptime.analysis.ablation.form import StepBreakdown
from steptime.analysis.accuracy import TrainingSummary, training_summary
from steptime.analysis.emulated_cluster import ClusterForm, cluster_of
from steptime.analysis.flags import set_aside_flags, stall_flag, trial_flags
from steptime.analysis.loader_verdict import step_cpu_s
from steptime.analysis.published import tiers_of
from steptime.analysis.resources import Resources, resources_of
from steptime.analysis.staleness import StalenessCounts, loss_rate, staleness
from steptime.catalog.options import Tuning
from steptime.flags import flag_text
from steptime.results.ablation_records import AblationLaunch
from steptime.results.accuracy_records import TrainingRun
from steptime.results.consistency import SetAside
from steptime.results.json_form import Interval, IntervalOverLaunches
from steptime.results.loader_records import LoaderLaunch
from steptime.results.machine import usable_cores
from steptime.results.noise import median_noise
from steptime.results.record_kinds import ABLATION, LOADING, TRAINING
from steptime.results.records import Launch, Replay
from steptime.results.store import Store
from steptime.statistics.estimate import Estimate, estimate, least_half_widths
from steptime.statistics.interval import LEVEL
from steptime.statistics.launch_spread import TrialSpread, pool_spread
from steptime.statistics.launch_times import LaunchTimes, in_turns
from steptime.statistics.shared_imports import one_of_each_import
from steptime.study.trial import Trial
from steptime.validity.accuracy_evidence import training_flags, training_mistake
from steptime.validity.missing_evidence import failed_replay, replay_flags
from steptime.validity.training_evidence import EarlyLosses, early_losses, mistake


@dataclass(frozen=True)
class TrialResult:
    """A trial with what its launches gave; the launches themselves are not kept, they may be large."""

    trial: Trial
    ok: int
    """Launches and trainings that ended well."""
    failed: int
    last: Launch | TrainingRun | None
    failure: str | None
    """Why the last launch or training failed, if one did."""
    flags: list[str]
    noise: dict[str, float | None]
    resources: Resources | None
    estimate: Estimate | None
    loss_rate: Interval | None
    staleness: StalenessCounts | None
    breakdown: StepBreakdown | None
    cluster: ClusterForm | None
    tiers: list[Tuning]
    implementation: str | None
    cpu_s: list[float]
    """Processor seconds of a step, of each launch that counted them."""
    alone: list[LoaderLaunch]
    """Good launches of the loader alone."""
    training: TrainingSummary | None
    set_aside: list[SetAside]
    early_losses: EarlyLosses
    mistake: str | None
    """What the timed launches show against the trial."""
    unrepeated: str | None


LaunchWatcher = Callable[[Trial, Sequence[Launch], Sequence[LaunchTimes]], object]
"""Is called with the timed launches of each trial, in the order of their records, and what those that timed a step were
reduced to."""


def trial_results(store: Store, machine: Mapping[str, Any], watch: LaunchWatcher | None = None) -> list[TrialResult]:
    """Return what the launches of every trial gave, with the spread of launches pooled over all of them.

    Args:
        store: the results.
        machine: the fingerprint of the machine that ran them.
        watch: is called with the launches of each trial, which are read once.
    """
    kept = {name: store.get(name) or {} for name in ("tiers", "implementations")}
    alone = [
        _result(store, _runs_of(store, trial), usable_cores(machine), kept, watch)
        for trial in sorted(store.trials(), key=_order)
    ]
    placed = in_turns({each.trial.id: one_of_each_import(each.estimate.launches) for each in alone if each.estimate})
    spreads = pool_spread(placed, {each.trial.id: each.trial.workload for each in alone})
    least = {} if spreads else least_half_widths(placed, LEVEL)
    return [
        _with_spread(each, placed.get(each.trial.id, ()), spreads.get(each.trial.id), least.get(each.trial.id))
        for each in alone
    ]


def _order(trial: Trial) -> tuple[Any, ...]:
    """Groups that differ only in the number of workers follow each other, fewest first."""
    return (
        trial.workload,
        trial.input_shape,
        trial.dataset or "",
        trial.loader,
        trial.loader_processes,
        trial.precision,
        trial.device,
        trial.batch_per_worker,
        trial.workers,
        trial.id,
    )


@dataclass(frozen=True)
class _Runs:
    """The launches and trainings of a trial."""

    trial: Trial
    launches: list[Launch]
    trainings: list[TrainingRun]
    ablations: list[AblationLaunch]
    replays: list[Replay]

    @cached_property
    def good(self) -> list[Launch]:
        """Timed launches that ended well."""
        return [launch for launch in self.launches if launch.status == "ok"]

    @cached_property
    def failed(self) -> list[Launch]:
        """Those that did not."""
        return [launch for launch in self.launches if launch.status != "ok"]

    @property
    def failed_trainings(self) -> list[TrainingRun]:
        """Trainings that ended with an error."""
        return [run for run in self.trainings if run.status != "ok"]

    @property
    def last(self) -> Launch | TrainingRun | None:
        """The last good launch; if there is none, the last that failed, or the last training."""
        runs = self.good or self.failed or self.trainings
        return runs[-1] if runs else None

    @property
    def failure(self) -> str | None:
        """Why the last launch failed, or the last training."""
        runs = self.failed or self.failed_trainings
        return runs[-1].reason if runs else None


def _runs_of(store: Store, trial: Trial) -> _Runs:
    trainings = store.records(TRAINING, trial.id) if trial.training else []
    ablations, replays = store.records(ABLATION, trial.id), store.replays(trial.id)
    return _Runs(trial, store.launches(trial.id), trainings, ablations, replays)


def _result(
    store: Store,
    runs: _Runs,
    cores: float | None,
    kept: Mapping[str, Any],
    watch: LaunchWatcher | None,
) -> TrialResult:
    trial, good = runs.trial, runs.good
    timed = estimate(good, trial.strategy) if good else None
    if watch:
        watch(trial, runs.launches, timed.launches if timed else ())
    timed_s = [math.exp(launch.log_mean) for launch in timed.launches] if timed else []
    return TrialResult(
        trial=trial,
        ok=len(good) + len(runs.trainings) - len(runs.failed_trainings),
        failed=len(runs.failed) + len(runs.failed_trainings),
        last=runs.last,
        failure=runs.failure,
        flags=_flags(store, trial, runs, timed, cores),
        noise=median_noise([launch.noise for launch in good]),
        resources=resources_of(trial, good, throughput(trial, timed)) if timed else None,
        estimate=timed,
        loss_rate=loss_rate(good),
        staleness=staleness(good),
        breakdown=break_down(trial, runs.ablations, timed_s),
        cluster=cluster_of(good),
        tiers=tiers_of(trial, kept["tiers"]),
        implementation=_implementation(trial, kept["implementations"]),
        cpu_s=step_cpu_s(good),
        training=training_summary(trial, runs.trainings),
        alone=[launch for launch in store.records(LOADING, trial.id) if launch.status == "ok"],
        set_aside=store.set_aside_of(trial.id),
        early_losses=early_losses(trial, good),
        mistake=mistake(trial, good, runs.replays) or training_mistake(trial, runs.trainings, runs.replays),
        unrepeated=failed_replay(trial, good, runs.replays),
    )


def _flags(store: Store, trial: Trial, runs: _Runs, timed: Estimate | None, cores: float | None) -> list[str]:
    flags = []
    if runs.good:
        flags += trial_flags(trial, runs.good, len(runs.failed), cores, runs.ablations)
        flags += set_aside_flags(store.set_aside_of(trial.id))
    if timed and timed.stalls:
        flags.append(stall_flag(timed.stalls))
    if (store.study_json.get("equivalence") or {}).get("enabled", False):
        flags += replay_flags(trial, runs.good, runs.replays)
        flags += training_flags(trial, runs.trainings, runs.replays)
    return flags


def _implementation(trial: Trial, kept: Mapping[str, Any]) -> str | None:
    """Who implements the trial's strategy where the framework does not, as a run kept it."""
    of_framework = kept.get(trial.framework)
    name = of_framework.get(trial.strategy) if isinstance(of_framework, dict) else None
    return name if isinstance(name, str) and name else None


def _with_spread(
    result: TrialResult, launches: Sequence[LaunchTimes], spread: TrialSpread | None, least: float | None
) -> TrialResult:
    """Return the result with its independent launches in turns, and the interval that the spread of all gives it."""
    found = result.estimate and replace(result.estimate, launches=list(launches))
    if least and found and math.log(found.high / found.low) < 2.0 * least:
        found = found.with_half_width(least)
    if spread is None or found is None:
        return replace(result, estimate=found)
    alone, pooled = flag_text("single_launch"), flag_text("single_launch_pooled")
    flags = [pooled if flag == alone else flag for flag in result.flags]
    return replace(result, estimate=found.with_spread(spread), flags=flags)


def throughput(trial: Trial, timed: Estimate | None) -> IntervalOverLaunches[float | None]:
    """Return the samples per second of all workers; without a number if nothing was timed."""
    if timed is None:
        return IntervalOverLaunches(None)
    least, most = timed.seen
    return IntervalOverLaunches(
        *(trial.global_batch / each for each in (timed.mean, timed.high, timed.low, most, least))
    )
