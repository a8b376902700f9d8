"""What ``steptime advise --verify`` measures: the best changes beside what they change."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.cli.console import stderr_console
from steptime.cli.progress import LiveObserver
from steptime.cli.reported_results import ReportedResults
from steptime.cli.streams import warn
from steptime.diagnosis.tried_advice import write_verified
from steptime.diagnosis.verification import (
    AdviceOutcome,
    AdvisedPair,
    outcomes,
    script_outcome,
    study_of,
)
from steptime.errors import SteptimeError, StudyError, UsageError, choices_message
from steptime.plain_file import temporary_folder
from steptime.results.jsonlines import json_text
from steptime.results.store import Store

if TYPE_CHECKING:
    from steptime.diagnosis.form import Diagnosis, TrialFinding
    from steptime.runner.plan import StudyPlan


VERIFIED = "advice"
"""In a results folder, the results of verifications."""


def verified_script(
    folder: Path, found: ReportedResults, command: list[str], rule: str | None, launches: int
) -> AdviceOutcome:
    """Run a script as it was and as ``command`` changes it in turns; runs that are there already are kept."""
    from steptime.runner.attached_run import run_in_turns  # noqa: PLC0415 - only --verify runs anything

    run = found.attached
    assert run is not None  # noqa: S101 - the caller looked
    if not command:
        message = f"the change of a script is yours to make: steptime advise {folder} --verify -- COMMAND"
        raise UsageError(message)
    finding = _finding_named(found.diagnosis, rule)
    target = folder / VERIFIED / finding.rule
    with LiveObserver(stderr_console(), list) as observer:
        sides = run_in_turns([run.command, command], target, launches, observer)
    outcome = script_outcome(finding, command, run, sides)
    if outcome.row:
        write_verified(target / "verified.csv", [outcome.row])
    return outcome


def _finding_named(diagnosis: "Diagnosis", rule: str | None) -> "TrialFinding":
    """Return the finding of a rule, the first by default; raises UsageError where there is none."""
    if not diagnosis.findings:
        message = "no finding predicts a gain of this script, so that there is nothing to verify"
        raise UsageError(message)
    chosen = next((each for each in diagnosis.findings if rule in (None, each.rule)), None)
    if chosen is None:
        raise UsageError(choices_message("rule with a finding", str(rule), [each.rule for each in diagnosis.findings]))
    return chosen


def verified(store: Store, diagnosis: "Diagnosis", most: int, launches: int, budget: str | None) -> list[AdviceOutcome]:
    """Run the best changes beside what they change; what was measured before is not repeated."""
    from steptime.runner.study_run import StudyRun  # noqa: PLC0415 - only --verify runs anything

    attempts: list[AdvisedPair] = []
    plan: StudyPlan | None = None
    for finding in diagnosis.findings:
        if len(attempts) == most or not finding.overrides or finding.gain.value is None:
            continue
        try:
            attempt, own = _attempt(store, finding, launches, budget)
        except SteptimeError as error:
            warn([f"{finding.rule} of {finding.trial} cannot be verified: {error}"])
            continue
        attempts.append(attempt)
        plan = own if plan is None else _joined(plan, own)
    if plan is None:
        message = "no finding has a change that can be verified"
        raise UsageError(message)
    with LiveObserver(stderr_console(), list) as observer:
        StudyRun(plan, observer).run()
    found = outcomes(attempts, Store.open(plan.folder))
    write_verified(plan.folder / "verified.csv", [each.row for each in found if each.row])
    return found


def _attempt(
    store: Store, finding: "TrialFinding", launches: int, budget: str | None
) -> "tuple[AdvisedPair, StudyPlan]":
    """Return a finding with its two trials, and the plan of both; raises StudyError where they cannot be run."""
    from steptime.runner.plan import plan_study  # noqa: PLC0415 - only --verify runs anything

    before = next(each for each in store.trials() if each.id == finding.trial)
    target = store.path / VERIFIED
    with temporary_folder("advice") as place:
        study = place / "study.yaml"
        study.write_text(json_text(study_of(store, before, launches)))
        plans = [plan_study(str(study), overrides, target, budget) for overrides in ([], finding.overrides)]
    trials = [each.expansion.trials for each in plans]
    if [each.id for each in trials[0]] != [before.id] or len(trials[1]) != 1:
        message = f"{before.id} is not what a study of its own expands into, as with hosts or an inclusion of its own"
        raise StudyError(message)
    return AdvisedPair(finding, before, trials[1][0]), _joined(plans[0], plans[1])


def _joined(one: "StudyPlan", other: "StudyPlan") -> "StudyPlan":
    """Return a plan with the trials of both, each once."""
    trials = {each.id: each for each in (*one.expansion.trials, *other.expansion.trials)}
    return replace(
        one,
        expansion=replace(one.expansion, trials=list(trials.values())),
        datasets={**one.datasets, **other.datasets},
    )


def outcome_json(outcome: AdviceOutcome) -> dict[str, object]:
    """Return the JSON of one verified change."""
    row = asdict(outcome.row) if outcome.row else None
    return {
        "trial": outcome.finding.trial,
        "changed": outcome.changed,
        "row": row,
        "reason": outcome.reason,
    }
