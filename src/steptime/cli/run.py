"""``steptime run``: measure what a study asks for."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from steptime.interruption import Interrupted

EXIT_NOT_EQUIVALENT = 1
EXIT_FAILED = 3


def run(
    study: Annotated[str, typer.Argument(help="A study file, or the name of a shipped study (steptime list studies).")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY.PATH=VALUE]...", help="Changes to the study, such as workers=[1,2,4]."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output-dir", help="Results folder [default: steptime-results/STUDY]."),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="Stop launching after this time, for example 8m; overrides the study's.")
    ] = None,
    scale: Annotated[
        str | None, typer.Option(help="Which scale of the study, as its key scales names them [default: small].")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan, its estimated time and the exact commands; run nothing.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON when done (with --dry-run: the plan).")
    ] = False,
) -> None:
    """Measure what a study asks for; run it again on the same folder to resume."""
    from steptime.runner.plan import plan_study

    plan = plan_study(study, [*(overrides or []), *([f"scale={scale}"] if scale else [])], output, budget)
    if dry_run:
        from steptime.cli.plan import print_plan

        print_plan(plan, as_json=as_json)
        return
    from steptime.cli.console import stderr_console
    from steptime.cli.progress import LiveObserver
    from steptime.runner.study_run import StudyRun

    console = stderr_console()
    for sentence in (*plan.variables_in_words(), *(f"runs {program}" for program in plan.foreign_programs())):
        console.print(sentence, soft_wrap=True)
    try:
        with LiveObserver(console) as observer:
            counts = StudyRun(plan, observer).run()
    except Interrupted as stop:
        stop.add_note(f"everything measured is kept in {plan.folder}")
        stop.add_note(f"resume with: {plan.command}")
        raise
    report_code = _report(plan.folder, as_json=as_json)
    if counts.not_run:
        console.print(f"the budget left out {counts.not_run} trials; to go on: {plan.command}")
    if report_code:
        sys.exit(report_code)
    if counts.failed:
        sys.exit(EXIT_FAILED)
    if counts.not_equivalent:
        sys.exit(EXIT_NOT_EQUIVALENT)


def _report(folder: Path, *, as_json: bool) -> int:
    """Report in a process of its own, whose output goes where this one's does; return its exit code.

    What draws the charts takes more memory than the rest of steptime together, in the process that is said to be
    small. ``-P``: a folder named steptime in the current one must not be taken for the program.
    """
    command = [sys.executable, "-P", "-m", "steptime", "report", "--html", str(folder / "report.html")]
    sys.stdout.flush()
    return subprocess.run([*command, *(["--json"] if as_json else []), "--", str(folder)], check=False).returncode
