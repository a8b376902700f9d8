"""From a results folder to its summary."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from steptime.analysis.ablation.form import PopEfficiencies, StepBreakdown, against_first
from steptime.analysis.accuracy import accuracy_places
from steptime.analysis.efficiency import baseline_of, fewer_workers, with_scaling
from steptime.analysis.flags import (
    Varied,
    varied_names,
    varied_options,
)
from steptime.analysis.loader_verdict import MeasuredLoading, loader_verdicts
from steptime.analysis.places import places
from steptime.analysis.published import TIERS, published_ratios, tuned_trials
from steptime.analysis.sites import incomparable, site_forms, unknown_machine
from steptime.analysis.staleness import to_json
from steptime.analysis.summary_form import (
    KEYS_OF_TRIAL,
    Efficiency,
    PaperForm,
    RankedTrial,
    Scaling,
    Staleness,
    StepTime,
    Summary,
    TrialStatus,
    TrialSummary,
    dataset_forms,
    equivalence_form,
)
from steptime.analysis.trial_result import LaunchWatcher, TrialResult, throughput, trial_results
from steptime.analysis.work import WorkRates, counted_flops, work_of
from steptime.catalog.options import Tuning
from steptime.results.accuracy_records import TrainingRun
from steptime.results.consistency import SetAside, counted
from steptime.results.equivalence_records import EquivalenceResult
from steptime.results.json_form import NOT_MEASURED, IntervalOverLaunches
from steptime.results.machine import usable_cores
from steptime.results.peaks import PEAKS, StoredPeaks
from steptime.results.records import Launch
from steptime.results.store import Store
from steptime.statistics.comparison import Measured, compare_trials
from steptime.statistics.estimate import Estimate
from steptime.study.trial import Trial
from steptime.validity.plausibility import implausible_trials
from steptime.validity.verdicts import (
    TrialVerdict,
    current_checks,
    explanations,
    fewer_checked,
    unlike_others,
    verdicts_of,
)


@dataclass(frozen=True)
class _Judged:
    """The trials of a study, and why some of them have no rank."""

    results: list[TrialResult]
    ranked: dict[str, TrialResult]
    verdicts: dict[str, TrialVerdict]

    @property
    def trials(self) -> list[Trial]:
        """All of them."""
        return [each.trial for each in self.results]

    @property
    def points(self) -> dict[str, Measured]:
        """What the ranked trials gave, by their ids."""
        return {trial_id: _measured(each) for trial_id, each in self.ranked.items()}


def summarise(store: Store, watch: LaunchWatcher | None = None) -> Summary:
    """Return the summary of the study in ``store``; raises StoreError as the store does.

    Args:
        store: the results.
        watch: is called with the timed launches of each trial, so that who needs both reads records once.
    """
    machine, study, verdicts = store.machine() or {}, store.study_json, verdicts_of(store)
    peaks = StoredPeaks.model_validate(store.get(PEAKS) or {})
    measured = trial_results(store, machine, watch)
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
        loaders=loader_verdicts(map(_loading, ranked.values()), usable_cores(machine)),
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


def _judge(
    measured: Sequence[TrialResult],
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


def _trial_summary(
    result: TrialResult,
    verdict: TrialVerdict | None,
    points: Sequence[Measured],
    varied: Varied,
    efficiencies: PopEfficiencies | None,
) -> TrialSummary:
    trial, timed = result.trial, result.estimate
    status, reason = _status(result, verdict)
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
        steps=timed.steps if timed else 0,
        step_time_s=_step_time(timed),
        stalls=timed.stalls if timed else None,
        throughput_samples_per_s=throughput(trial, timed),
        efficiency=_efficiency(trial, timed, points),
        scaling=_scaling(trial, timed, points),
        loss_rate_per_s=result.loss_rate or NOT_MEASURED,
        staleness=Staleness(**stale) if (stale := to_json(result.staleness)) else None,
        **_breakdown_keys(result.breakdown),
        pop=efficiencies or (result.breakdown.pop if result.breakdown else None),
        training=result.training,
        cluster=result.cluster,
        status=status,
        reason=reason,
        flags=result.flags,
        commands=result.last.commands if result.last else [],
        forked=isinstance(result.last, Launch) and result.last.shared_import is not None,
        environment=result.last.environment if result.last else {},
        noise=result.noise,
        resources=result.resources,
    )


def _status(result: TrialResult, verdict: TrialVerdict | None) -> tuple[TrialStatus, str | None]:
    """Return how a trial ended, and why it has no rank."""
    if verdict:
        return verdict["status"], verdict["reason"]
    if result.estimate is None and result.training is None:
        return "failed", result.failure or _why_nothing(result.set_aside)
    return "ok", None


def _breakdown_keys(breakdown: StepBreakdown | None) -> dict[str, Any]:
    """Return what a trial's summary has of its breakdown."""
    if breakdown is None:
        return dict.fromkeys(("phases", "closure_error", "overlap", "imbalance", "native", "breakdown"))
    return {
        "phases": breakdown.phases,
        "closure_error": breakdown.closure_error,
        "overlap": breakdown.overlap.ratio if breakdown.overlap else None,
        "imbalance": breakdown.imbalance,
        "native": breakdown.accounts or None,
        "breakdown": breakdown,
    }


def _why_nothing(set_aside: Sequence[SetAside]) -> str:
    if not set_aside:
        return "not run yet"
    return f"no launch is left: {counted(set_aside)}; rerun the study to measure again"


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


def _work(result: TrialResult, machine: Mapping[str, Any], peaks: StoredPeaks) -> WorkRates | None:
    if result.estimate is None:
        return None
    rate = throughput(result.trial, result.estimate)
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


def _scaling(trial: Trial, timed: Estimate | None, points: Sequence[Measured]) -> Scaling | None:
    fewer = fewer_workers(trial, points) if timed else None
    if timed is None or fewer is None:
        return None
    ratio = compare_trials(fewer, Measured(trial, timed.launches, timed.spread)).interval
    factor = trial.global_batch / fewer.trial.global_batch
    bounds = (each and factor * each for each in (ratio.low, ratio.high, ratio.least, ratio.most))
    speedup = IntervalOverLaunches(factor * ratio.value, *bounds)
    return Scaling(workers=fewer.trial.workers, strategy=fewer.trial.strategy, speedup=speedup)


def _version(launch: Launch | TrainingRun | None) -> str | None:
    """The version that most workers of the launch said they have."""
    if isinstance(launch, TrainingRun):
        return launch.facts.get("framework_version")
    versions = Counter(worker.facts.get("framework_version") for worker in launch.workers) if launch else Counter()
    return versions.most_common(1)[0][0] if versions else None


def _loading(result: TrialResult) -> MeasuredLoading:
    return MeasuredLoading(result.trial, result.estimate, result.cpu_s, result.alone)


def _measured(result: TrialResult) -> Measured:
    found = result.estimate
    assert found is not None  # noqa: S101 - only ranked results come here; for the type checker
    return Measured(result.trial, found.launches, found.spread)
