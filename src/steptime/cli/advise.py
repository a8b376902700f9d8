"""``steptime advise``: what to change, by predicted gain, and whether it helped."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steptime.cli.console import report_console
from steptime.cli.streams import print_json, warn
from steptime.errors import UsageError

if TYPE_CHECKING:
    from steptime.diagnosis.verification import AdviceOutcome


def advise(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A results folder with breakdowns, or an attached run.")
    ],
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND...]", help="With --verify of your own script: the command with the change."
        ),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Measure the best changes beside what they change, in the same blocks.")
    ] = False,
    most: Annotated[int, typer.Option("--most", min=1, help="How many changes to verify.")] = 3,
    launches: Annotated[int, typer.Option(min=3, max=100, help="Launches of each side of a verification.")] = 5,
    budget: Annotated[str | None, typer.Option(help="Stop verifying after this time, for example 8m.")] = None,
    rule: Annotated[
        str | None, typer.Option(help="Of your own script: the finding that the change is for (default: the first).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Rank changes by the gain that each rule predicts; rerun with --verify to continue a verification.

    Of your own script the change is yours: steptime advise DIR --verify -- COMMAND runs it in turns with the script as
    it was.
    """
    from steptime.cli.reported_results import read_report
    from steptime.cli.verified_advice import outcome_json, verified, verified_script
    from steptime.report.advice import advice_section, outcome_section, script_section
    from steptime.report.terminal import SectionText
    from steptime.report.trial_names import Names

    found = read_report(folder)
    names = Names(found.summary.trials)
    own = found.attached is not None
    if (command or rule) and not (own and verify):
        message = "a command and --rule are for --verify of an attached run: steptime advise DIR --verify -- COMMAND"
        raise UsageError(message)
    measured: list[AdviceOutcome] = []
    if verify and own:
        measured = [verified_script(folder, found, command or [], rule, launches)]
    elif verify:
        measured = verified(found.store, found.diagnosis, most, launches, budget)
    if as_json:
        rows = [outcome_json(each) for each in measured]
        print_json({"schema": 1, **found.diagnosis.to_json(), "verified": rows})
    else:
        outcome = [outcome_section(measured)] if measured else []
        advice = (
            script_section(found.attached, found.diagnosis)
            if found.attached
            else advice_section(found.summary, found.diagnosis, names)
        )
        report_console().print(SectionText([advice, *outcome]))
    if own:
        return
    if not any(trial.breakdown for trial in found.summary.trials):
        warn([f"no breakdown: most rules need one; steptime run STUDY breakdown=true -o {folder}"])
    found.store.require_launches()
