"""``steptime advise``: what to change, by predicted gain, and whether it helped."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steptime.cli.streams import warn

if TYPE_CHECKING:
    from steptime.diagnosis.form import Diagnosis, TrialFinding
    from steptime.diagnosis.verification import AdviceOutcome, AdvisedPair
    from steptime.measurements.store import Store
    from steptime.runner.plan import StudyPlan

VERIFIED = "advice"
"""In a results folder, the results of verifications."""


def advise(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A results folder with breakdowns.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Measure the best changes beside what they change, in the same blocks.")
    ] = False,
    most: Annotated[int, typer.Option("--most", min=1, help="How many changes are verified.")] = 3,
    launches: Annotated[int, typer.Option(min=3, max=100, help="Of each side of a verification.")] = 5,
    budget: Annotated[str | None, typer.Option(help="Stop verifying after this time, for example 8m.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Rank changes by the gain that each rule predicts; run again with --verify to go on with a verification."""
    from steptime.cli.report import read_report, report_console
    from steptime.cli.tables import print_json
    from steptime.report.advice import advice_section, outcome_section
    from steptime.report.terminal import SectionText
    from steptime.report.trial_names import Names

    found = read_report(folder)
    names = Names(found.summary.trials)
    measured = _verified(found.store, found.diagnosis, most, launches, budget) if verify else []
    if as_json:
        rows = [_outcome_json(each) for each in measured]
        print_json({"schema": 1, **found.diagnosis.to_json(), "verified": rows})
    else:
        outcome = [outcome_section(measured)] if measured else []
        report_console().print(SectionText([advice_section(found.summary, found.diagnosis, names), *outcome]))
    if not any(trial.breakdown for trial in found.summary.trials):
        warn([f"no breakdown: most rules need one; steptime run STUDY breakdown=true -o {folder}"])
    found.store.require_launches()


def _verified(
    store: "Store", diagnosis: "Diagnosis", most: int, launches: int, budget: str | None
) -> "list[AdviceOutcome]":
    """Run the best changes beside what they change; what was measured before is not repeated."""
    from steptime.cli.console import stderr_console
    from steptime.cli.progress import LiveObserver
    from steptime.diagnosis.verification import outcomes
    from steptime.diagnosis.verified import write_verified
    from steptime.errors import SteptimeError, UsageError
    from steptime.measurements.store import Store
    from steptime.runner.study_run import StudyRun

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
    store: "Store", finding: "TrialFinding", launches: int, budget: str | None
) -> "tuple[AdvisedPair, StudyPlan]":
    """Return a finding with its two trials, and the plan of both; raises StudyError where they cannot be run."""
    from steptime.diagnosis.verification import AdvisedPair, study_of
    from steptime.errors import StudyError
    from steptime.measurements.jsonlines import json_text
    from steptime.runner.plan import plan_study

    before = next(each for each in store.trials() if each.id == finding.trial)
    target = store.path / VERIFIED
    with tempfile.TemporaryDirectory() as place:
        study = Path(place) / "study.yaml"
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


def _outcome_json(outcome: "AdviceOutcome") -> dict[str, object]:
    from dataclasses import asdict

    row = asdict(outcome.row) if outcome.row else None
    return {
        "trial": outcome.attempt.before.id,
        "changed": outcome.attempt.after.id,
        "row": row,
        "reason": outcome.reason,
    }
