"""From a results folder to its summary."""

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from steptime.analysis.ablation.breakdown import break_down
from steptime.analysis.ablation.form import PopEfficiencies, StepBreakdown, against_first
from steptime.analysis.accuracy import TrainingSummary, accuracy_places, training_summary
from steptime.analysis.efficiency import baseline_of, with_scaling
from steptime.analysis.emulated_cluster import ClusterForm, cluster_of
from steptime.analysis.flags import (
    Varied,
    set_aside_flags,
    stall_flag,
    trial_flags,
    varied_names,
    varied_options,
)
from steptime.analysis.loader_verdict import MeasuredLoading, loader_verdicts, step_cpu_s
from steptime.analysis.places import places
from steptime.analysis.published import TIERS, published_ratios, tiers_of, tuned_trials
from steptime.analysis.resources import Resources, resources_of
from steptime.analysis.sites import incomparable, site_forms, unknown_machine
from steptime.analysis.staleness import StalenessCounts, loss_rate, staleness, to_json
from steptime.analysis.summary_form import (
    KEYS_OF_TRIAL,
    Efficiency,
    PaperForm,
    RankedTrial,
    Staleness,
    StepTime,
    Summary,
    TrialStatus,
    TrialSummary,
    dataset_forms,
    equivalence_form,
)
from steptime.analysis.work import WorkRates, counted_flops, work_of
from steptime.catalog.options import Tuning
from steptime.flags import flag_text
from steptime.results.accuracy_records import TrainingRun
from steptime.results.consistency import SetAside, counted
from steptime.results.json_form import NOT_MEASURED, Interval, IntervalOverLaunches
from steptime.results.loader_records import LoaderLaunch
from steptime.results.noise import median_noise
from steptime.results.peaks import PEAKS, StoredPeaks
from steptime.results.record_kinds import ABLATION, LOADING, TIMING, TRAINING
from steptime.results.records import EquivalenceResult, Launch
from steptime.results.store import Store
from steptime.statistics.comparison import Measured, compare_trials
from steptime.statistics.estimate import Estimate, estimate
from steptime.statistics.launch_spread import TrialSpread, pool_spread
from steptime.statistics.launch_times import LaunchTimes, in_turns
from steptime.study.trial import Trial
from steptime.validity.accuracy_evidence import training_flags, training_mistake
from steptime.validity.missing_evidence import failed_replay, replay_flags
from steptime.validity.plausibility import implausible_trials
from steptime.validity.training_evidence import EarlyLosses, early_losses, mistake
from steptime.validity.verdicts import (
    TrialVerdict,
    current_checks,
    explanations,
    fewer_checked,
    unlike_others,
    verdicts_of,
)


@dataclass(frozen=True)
class _Result:
    """A trial with what its launches gave; the launches themselves are not kept, they may be large."""

    trial: Trial
    ok: int
    failed: int
    last: Launch | TrainingRun | None
    failure: str | None
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


@dataclass(frozen=True)
class _Judged:
    """The trials of a study, and why some of them have no rank."""

    results: list[_Result]
    ranked: dict[str, _Result]
    verdicts: dict[str, TrialVerdict]

    @property
    def trials(self) -> list[Trial]:
        """All of them."""
        return [each.trial for each in self.results]

    @property
    def points(self) -> dict[str, Measured]:
        """What the ranked trials gave, by their ids."""
        return {trial_id: _measured(each) for trial_id, each in self.ranked.items()}


def summarise(store: Store) -> Summary:
    """Return the summary of the study in ``store``; raises StoreError as the store does."""
    machine, study, verdicts = store.machine() or {}, store.study_json, verdicts_of(store)
    peaks = StoredPeaks.model_validate(store.get(PEAKS) or {})
    measured = _measure(store, machine)
    checks = current_checks(store.trials(), store.equivalence())
    judged = _judge(measured, verdicts, checks, machine, peaks)
    results, ranked, ranking = judged.results, judged.ranked, places(judged.points.values())
    return Summary(
        study=study.get("name", store.path.name),
        question=study.get("question", ""),
        paper=PaperForm(**study["paper"]) if study.get("paper") else None,
        machine=machine,
        trials=_trial_summaries(judged, checks, machine, peaks),
        ranking=ranking,
        tier_ranking=_tier_ranking(judged),
        tuned=tuned_trials(judged.trials, judged.points),
        gaps=against_first((place.group, place.trial, ranked[place.trial].breakdown) for place in ranking),
        loaders=loader_verdicts(map(_loading, ranked.values()), _cores(machine)),
        published=published_ratios(study.get("published", []), _claimable(judged)),
        accuracy=accuracy_places(
            [each.trial for each in results if each.trial.id not in judged.verdicts],
            {each.trial.id: each.training for each in results if each.training},
        ),
        sites=site_forms(
            [launch for each in results if each.estimate for launch in each.estimate.launches], store.get("sites") or {}
        ),
        equivalence=[equivalence_form(each) for each in checks],
        datasets=dataset_forms(store.get("datasets") or {}),
        skipped=(store.get("skipped") or {}).get("lines", []),
        problems=[*store.problems, *unknown_machine(machine, [each.last for each in results if each.last])],
        set_aside=store.set_aside,
    )


def _measure(store: Store, machine: Mapping[str, Any]) -> list[_Result]:
    """Return what the launches of every trial gave, with the spread of launches pooled over all of them."""
    kept, implementations = store.get("tiers") or {}, store.get("implementations") or {}
    alone = [
        _result(store, trial, _cores(machine), kept, implementations) for trial in sorted(store.trials(), key=_order)
    ]
    placed = in_turns({each.trial.id: each.estimate.launches for each in alone if each.estimate})
    spreads = pool_spread(placed)
    return [_with_spread(each, placed.get(each.trial.id, ()), spreads.get(each.trial.id)) for each in alone]


def _judge(
    measured: Sequence[_Result],
    verdicts: Mapping[str, TrialVerdict],
    checks: Sequence[EquivalenceResult],
    machine: Mapping[str, Any],
    peaks: StoredPeaks,
) -> _Judged:
    """Take from the rank what cannot be compared, shows no right training, is too fast or trained something else."""
    results = [replace(each, flags=[*each.flags, *fewer_checked(each.trial, checks)]) for each in measured]
    timed = [each for each in results if each.estimate and each.trial.id not in verdicts]
    shortest = [(each.trial, each.estimate.seen[0]) for each in timed if each.estimate]
    unranked = {
        **incomparable(map(_measured, timed)),
        **{each.trial.id: each.unrepeated for each in timed if each.unrepeated and not each.mistake},
        **implausible_trials(shortest, machine, peaks),
    }
    verdicts = {**verdicts, **_verdicts("unranked", unranked)}
    judged = [each for each in timed if each.trial.id not in verdicts]
    unequal = {
        **unlike_others([each.early_losses for each in judged], checks),
        **{each.trial.id: each.mistake for each in results if each.mistake and each.trial.id not in verdicts},
    }
    verdicts = {**verdicts, **_verdicts("not_equivalent", unequal)}
    return _Judged(results, {each.trial.id: each for each in timed if each.trial.id not in verdicts}, verdicts)


def _verdicts(status: Literal["unranked", "not_equivalent"], reasons: Mapping[str, str]) -> dict[str, TrialVerdict]:
    return {trial_id: {"status": status, "reason": reason} for trial_id, reason in reasons.items()}


def _tier_ranking(judged: _Judged) -> dict[Tuning, list[RankedTrial]]:
    raced = _raced_tiers(judged)
    return {
        tier: places(_measured(each) for each in judged.ranked.values() if tier in each.tiers)
        for tier in raced
        if len(raced) > 1
    }


def _raced_tiers(judged: _Judged) -> list[Tuning]:
    return [tier for tier in TIERS if any(tier in each.tiers for each in judged.results)]


def _trial_summaries(
    judged: _Judged, checks: Sequence[EquivalenceResult], machine: Mapping[str, Any], peaks: StoredPeaks
) -> list[TrialSummary]:
    points = list(judged.points.values())
    varied = varied_options(judged.trials)
    efficiencies = with_scaling([(_measured(each), each.breakdown) for each in judged.ranked.values()])
    return [
        _trial_summary(
            each,
            judged.verdicts.get(each.trial.id),
            points if each.trial.id in judged.ranked else [],
            varied,
            efficiencies.get(each.trial.id),
        ).model_copy(
            update={"work": _work(each, machine, peaks), "flags": [*each.flags, *explanations(each.trial, checks)]}
        )
        for each in judged.results
    ]


def _claimable(judged: _Judged) -> list[Measured]:
    """Return the trials that claims are about: frameworks by their own code, as their guides have them in a race."""
    raced = _raced_tiers(judged)
    return [_measured(each) for each in judged.ranked.values() if raced[0] in each.tiers and not each.implementation]


def _cores(machine: Mapping[str, Any]) -> float | None:
    """Cores that a launch could use: those of the process, or a container's quota where that is less."""
    return min((machine[name] for name in ("cores", "quota_cores") if machine.get(name) is not None), default=None)


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


def _implementation(trial: Trial, kept: Mapping[str, Any]) -> str | None:
    """Who implements the trial's strategy where the framework does not, as a run kept it."""
    of_framework = kept.get(trial.framework)
    name = of_framework.get(trial.strategy) if isinstance(of_framework, dict) else None
    return name if isinstance(name, str) and name else None


def _result(
    store: Store, trial: Trial, cores: float | None, tiers: Mapping[str, Any], implementations: Mapping[str, Any]
) -> _Result:
    ok: list[Launch] = []
    failures: list[Launch] = []
    trainings = store.records(TRAINING, trial.id) if trial.training else []
    failed = [run for run in trainings if run.status != "ok"]
    for launch in store.iter_records(TIMING, trial.id):
        (ok if launch.status == "ok" else failures).append(launch)
    ran = ok or failures
    found = estimate(ok, trial.strategy) if ok else None
    timed = [math.exp(each.log_mean) for each in found.launches] if found else []
    ablations = store.records(ABLATION, trial.id)
    alone = [each for each in store.records(LOADING, trial.id) if each.status == "ok"]
    set_aside = store.set_aside_of(trial.id)
    flags = [*trial_flags(trial, ok, len(failures), cores, ablations), *set_aside_flags(set_aside)] if ok else []
    flags += [stall_flag(found.stalls)] if found and found.stalls else []
    replays = store.replays(trial.id)
    if (store.study_json.get("equivalence") or {}).get("enabled", False):
        flags += [*replay_flags(trial, ok, replays), *training_flags(trial, trainings, replays)]
    return _Result(
        trial=trial,
        ok=len(ok) + len(trainings) - len(failed),
        failed=len(failures) + len(failed),
        last=ran[-1] if ran else (trainings[-1] if trainings else None),
        failure=failures[-1].reason if failures else (failed[-1].reason if failed else None),
        flags=flags,
        noise=median_noise([each.noise for each in ok]),
        resources=resources_of(trial, ok, _throughput(trial, found)) if found else None,
        estimate=found,
        loss_rate=loss_rate(ok),
        staleness=staleness(ok),
        breakdown=break_down(trial, ablations, timed),
        cluster=cluster_of(ok),
        tiers=tiers_of(trial, tiers),
        implementation=_implementation(trial, implementations),
        cpu_s=step_cpu_s(ok),
        training=training_summary(trial, trainings),
        alone=alone,
        set_aside=set_aside,
        early_losses=early_losses(trial, ok),
        mistake=mistake(trial, ok, replays) or training_mistake(trial, trainings, replays),
        unrepeated=failed_replay(trial, ok, replays),
    )


def _with_spread(result: _Result, launches: Sequence[LaunchTimes], spread: TrialSpread | None) -> _Result:
    """Return the result with its launches in turns, and the interval that the pooled spread of launches gives it."""
    found = result.estimate and replace(result.estimate, launches=list(launches))
    if spread is None or found is None:
        return replace(result, estimate=found)
    alone, pooled = flag_text("single_launch"), flag_text("single_launch_pooled")
    flags = [pooled if flag == alone else flag for flag in result.flags]
    return replace(result, estimate=found.with_spread(spread), flags=flags)


def _trial_summary(
    result: _Result,
    verdict: TrialVerdict | None,
    points: Sequence[Measured],
    varied: Varied,
    efficiencies: PopEfficiencies | None,
) -> TrialSummary:
    trial, found, taken_apart = result.trial, result.estimate, result.breakdown
    status: TrialStatus = "ok"
    reason = None
    if verdict:
        status, reason = verdict["status"], verdict["reason"]
    elif found is None and result.training is None:
        status, reason = "failed", result.failure or _why_nothing(result.set_aside)
    names = varied_names(trial, varied)
    written = {
        "input_shape": list(trial.input_shape),
        "options": dict(trial.options),
        "cores_per_worker": trial.cores_per_worker or trial.threads,
        "environment_variables": dict(trial.environment_variables),
        "container": shlex.join(trial.container) or None,
    }
    return TrialSummary(
        **{**{key: getattr(trial, key) for key in KEYS_OF_TRIAL}, **written},
        id=trial.id,
        group=trial.group,
        framework_version=_version(result.last),
        tiers=tuple(result.tiers),
        implementation=result.implementation,
        varied_options={name: value for name, value in trial.options.items() if name in names},
        varied_variables={name: value for name, value in trial.environment_variables.items() if name in names},
        launches=result.ok,
        failed_launches=result.failed,
        steps=found.steps if found else 0,
        step_time_s=_step_time(found),
        stalls=found.stalls if found else None,
        throughput_samples_per_s=_throughput(trial, found),
        efficiency=_efficiency(trial, found, points),
        loss_rate_per_s=result.loss_rate or NOT_MEASURED,
        staleness=Staleness(**stale) if (stale := to_json(result.staleness)) else None,
        phases=taken_apart.phases if taken_apart else None,
        closure_error=taken_apart.closure_error if taken_apart else None,
        overlap=taken_apart.overlap.ratio if taken_apart and taken_apart.overlap else None,
        imbalance=taken_apart.imbalance if taken_apart else None,
        native=(taken_apart.accounts or None) if taken_apart else None,
        breakdown=taken_apart,
        pop=efficiencies or (taken_apart.pop if taken_apart else None),
        training=result.training,
        cluster=result.cluster,
        status=status,
        reason=reason,
        flags=result.flags,
        commands=result.last.commands if result.last else [],
        environment=result.last.environment if result.last else {},
        noise=result.noise,
        resources=result.resources,
    )


def _why_nothing(set_aside: Sequence[SetAside]) -> str:
    if not set_aside:
        return "not run yet"
    return f"no launch is left: {counted(set_aside)}; run the study again to measure anew"


def _step_time(found: Estimate | None) -> StepTime:
    if found is None:
        return StepTime()
    least, most = found.seen
    return StepTime(
        mean=found.mean,
        low=found.low,
        high=found.high,
        level=found.level,
        median=found.median,
        p90=found.p90,
        p99=found.p99,
        least=least,
        most=most,
    )


def _throughput(trial: Trial, found: Estimate | None) -> IntervalOverLaunches[float | None]:
    if found is None:
        return IntervalOverLaunches(None)
    least, most = found.seen
    return IntervalOverLaunches(
        *(trial.global_batch / each for each in (found.mean, found.high, found.low, most, least))
    )


def _work(result: _Result, machine: Mapping[str, Any], peaks: StoredPeaks) -> WorkRates | None:
    if result.estimate is None:
        return None
    rate = _throughput(result.trial, result.estimate)
    return work_of(result.trial, rate, machine, peaks, counted_flops(result.last))


def _efficiency(trial: Trial, found: Estimate | None, points: Sequence[Measured]) -> Efficiency:
    baseline = baseline_of(trial, points) if found else None
    if found is None or baseline is None:
        return Efficiency()
    names: dict[str, Any] = {"baseline_workers": baseline.trial.workers, "baseline_strategy": baseline.trial.strategy}
    if baseline.trial.id == trial.id:
        return Efficiency(value=1.0, low=1.0, high=1.0, least=1.0, most=1.0, **names)
    # Both batches per worker are the same, so the ratio of the rates per worker is that of the times.
    ratio = compare_trials(baseline, Measured(trial, found.launches, found.spread)).interval
    return Efficiency(**asdict(ratio), **names)


def _version(launch: Launch | TrainingRun | None) -> str | None:
    """The version that most workers of the launch said they have."""
    if isinstance(launch, TrainingRun):
        return launch.facts.get("framework_version")
    versions = Counter(worker.facts.get("framework_version") for worker in launch.workers) if launch else Counter()
    return versions.most_common(1)[0][0] if versions else None


def _loading(result: _Result) -> MeasuredLoading:
    return MeasuredLoading(result.trial, result.estimate, result.cpu_s, result.alone)


def _measured(result: _Result) -> Measured:
    found = result.estimate
    assert found is not None  # noqa: S101 - only ranked results come here; for the type checker
    return Measured(result.trial, found.launches, found.spread)
