"""Whether advice gained what was predicted: a study of one trial that a change can be made to, and what came of both.

The trials with and without the change are measured in the same randomised blocks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import join
from typing import Any

from steptime.analysis.compared.change import change_between
from steptime.analysis.compared.sides import ComparedSide
from steptime.attached.form import AttachedRun
from steptime.catalog.manifest import find_manifest
from steptime.diagnosis.form import OWN_SCRIPT, TrialFinding
from steptime.diagnosis.tried_advice import VerifiedAdvice
from steptime.results.record_kinds import TIMING
from steptime.results.records import Launch
from steptime.results.store import Store
from steptime.statistics.comparison import compare
from steptime.statistics.estimate import estimate
from steptime.study.study import values_alone
from steptime.study.trial import Trial
from steptime.validity.verdicts import verdicts_of

_LAUNCHES = 5
"""Of each side of a verification: with fewer, few gains are shown."""
_NOT_OF_ONE_TRIAL: dict[str, Any] = {
    "paper": None,
    "scales": {},
    "scale": "small",
    "include": [],
    "exclude": [],
    "breakdown": None,
    "loader_alone": None,
    "published": [],
    "published_efficiency": [],
    "performance_models": [],
    "predictions": None,
    "budget": None,
}


@dataclass(frozen=True)
class AdvisedPair:
    """A finding with the trial that it is about, and the trial with its change."""

    finding: TrialFinding
    before: Trial
    after: Trial


@dataclass(frozen=True)
class AdviceOutcome:
    """What came of an attempt: the row of the table, or why there is none."""

    finding: TrialFinding
    changed: str
    """The id of the trial with the change, or the changed command of a user's own script."""
    row: VerifiedAdvice | None
    reason: str | None
    """Why a row is missing."""


def outcomes(attempts: Sequence[AdvisedPair], store: Store) -> list[AdviceOutcome]:
    """Return what the launches in ``store`` say of each attempt."""
    verdicts = verdicts_of(store)
    return [
        _outcome(each, store, {trial: verdict["reason"] for trial, verdict in verdicts.items()}) for each in attempts
    ]


def _outcome(attempt: AdvisedPair, store: Store, refused: Mapping[str, str]) -> AdviceOutcome:
    sides, finding, changed = (attempt.before, attempt.after), attempt.finding, attempt.after.id
    reason = next((refused[each.id] for each in sides if each.id in refused), None)
    before, after = ([each for each in store.iter_records(TIMING, side.id) if each.status == "ok"] for side in sides)
    found = [
        estimate(launches, side.strategy) if launches else None
        for side, launches in zip(sides, (before, after), strict=True)
    ]
    if reason is not None or found[0] is None or found[1] is None:
        return AdviceOutcome(finding, changed, None, reason or "a launch failed, or none was run within the budget")
    ratio = compare(found[0].launches, found[1].launches)
    samples = attempt.after.global_batch / attempt.before.global_batch
    gain = finding.gain
    if gain.value is None or gain.low is None or gain.high is None:
        return AdviceOutcome(finding, changed, None, "no gain was predicted")
    row = VerifiedAdvice(
        rule=finding.rule,
        framework=attempt.before.framework,
        strategy=attempt.before.strategy,
        workload=attempt.before.workload,
        workers=attempt.before.workers,
        batch_per_worker=attempt.before.batch_per_worker,
        overrides=" ".join(finding.overrides),
        predicted=gain.value,
        predicted_low=gain.low,
        predicted_high=gain.high,
        rule_low=finding.rule_gain.low or gain.low,
        rule_high=finding.rule_gain.high or gain.high,
        measured=samples * ratio.ratio,
        measured_low=samples * ratio.low,
        measured_high=samples * ratio.high,
        launches=min(len(before), len(after)),
        load=_load(before),
    )
    return AdviceOutcome(finding, changed, row, None)


def _load(launches: Sequence[Launch]) -> float:
    known = [value for each in launches if (value := each.noise.get("foreign_cpu_cores")) is not None]
    return sum(known) / len(known) if known else 0.0


def study_of(store: Store, trial: Trial, launches: int = _LAUNCHES) -> dict[str, Any]:
    """Return a study of ``trial`` alone, as it was measured, for so many launches.

    Keys without a list, such as threads and hosts, are those of the folder's study. A trial that the study described
    by an inclusion with hosts or a training of its own is not what this study expands into.
    """
    study = store.study_json
    workloads = [_without_batch(each) for each in study["workloads"] if each["name"] == trial.workload]
    same_data = [each for each in workloads if each.get("dataset") in {None, trial.dataset}]
    return {
        **study,
        **_NOT_OF_ONE_TRIAL,
        "question": "",
        **values_alone(trial),
        "workloads": same_data[:1],
        "options": {trial.framework: _chosen_options(trial)},
        "launches": {"min": launches, "max": launches},
    }


def _without_batch(workload: Mapping[str, Any]) -> dict[str, Any]:
    return {**workload, "batch_per_worker": None, "global_batch": None}


def _chosen_options(trial: Trial) -> dict[str, Any]:
    """Return the options that are not those of the trial's tier anyway: others may mean nothing after a change."""
    manifest = find_manifest(trial.framework)
    usual = manifest.tier_options(trial.tuning, trial.strategy, trial.device) if manifest else {}
    return {name: [value] for name, value in trial.options.items() if usual.get(name) != value}


def script_outcome(
    finding: TrialFinding, command: Sequence[str], run: AttachedRun, sides: tuple[ComparedSide, ComparedSide]
) -> AdviceOutcome:
    """Return what a changed script gained beside what a finding predicted.

    Args:
        finding: of ``run``, with a gain.
        command: of the changed script.
        run: of the script as it was.
        sides: runs of the script as it was, and of the changed one, that took turns.
    """
    ratio = change_between(*sides).trials[0]
    gain, measured = finding.gain, ratio.ratio
    if None in (gain.value, gain.low, gain.high, measured.low, measured.high):
        return AdviceOutcome(finding, join(command), None, "single runs do not show how runs differ")
    row = VerifiedAdvice(
        rule=finding.rule,
        framework=OWN_SCRIPT,
        strategy=run.back_end or "single",
        workload=OWN_SCRIPT,
        workers=run.world,
        batch_per_worker=0,
        overrides=join(command),
        predicted=gain.value or 0.0,
        predicted_low=gain.low or 0.0,
        predicted_high=gain.high or 0.0,
        rule_low=finding.rule_gain.low or gain.low or 0.0,
        rule_high=finding.rule_gain.high or gain.high or 0.0,
        measured=1.0 / measured.value,
        measured_low=1.0 / (measured.high or 1.0),
        measured_high=1.0 / (measured.low or 1.0),
        launches=min(ratio.launches),
        load=run.noise.get("foreign_cpu_cores") or 0.0,
    )
    return AdviceOutcome(finding, join(command), row, None)
