"""``steptime run``: measure what a study asks for."""

import shlex
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steptime.cli.console import print_paragraph, stderr_console
from steptime.cli.section_output import FormOption, chosen_form
from steptime.errors import SteptimeError, Unfinished, UsageError
from steptime.interruption import Interrupted, unmasked
from steptime.report.export_formats import PAGE
from steptime.units import format_count

if TYPE_CHECKING:
    from steptime.runner.admission import TrialCounts
    from steptime.runner.allocation import Allocation
    from steptime.runner.plan import StudyPlan
    from steptime.runner.study_run import StudyRun

EXIT_NOT_EQUIVALENT = 1
EXIT_FAILED = 3
EXIT_UNFINISHED = Unfinished.exit_code
OWN_ENVIRONMENT = "steptime"
"""In place of an interpreter: the environment that steptime makes."""


def run(
    context: typer.Context,
    study: Annotated[str, typer.Argument(help="A study file, or the name of a shipped study (steptime list studies).")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY.PATH=VALUE]...", help="Changes to the study, such as workers=[1,2,4]."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output-dir", help="Results folder (default: steptime-results/STUDY)."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="End after this time, for example 8m; overrides the study's. Exit code 4 means that it left trials "
            "without a result or a rank, which a rerun goes on with; 0, that none was left."
        ),
    ] = None,
    scale: Annotated[
        str | None, typer.Option(help="Which scale of the study, as its key scales names them (default: small).")
    ] = None,
    paths_from: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where relative paths in the study start (default: its file's folder)."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan, its estimated time and the exact commands; run nothing.")
    ] = False,
    environments: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=PYTHON,...",
            help="Measure the framework in several environments, in the same blocks: interpreters, folders that hold "
            "bin/python, or the word steptime for the environment that steptime makes.",
        ),
    ] = None,
    recheck: Annotated[
        bool, typer.Option("--recheck", help="Repeat the equivalence checks that earlier runs passed here.")
    ] = False,
    requeue: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="In a batch job of Slurm that runs out of time: queue it again, at most N times."
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="With --dry-run: also write the plan as one offline HTML page to this file.")
    ] = None,
    form: FormOption = "text",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON when done (with --dry-run: the plan).")
    ] = False,
) -> None:
    """Measure what a study asks for; run it again on the same folder to resume."""
    # Imports count: on a busy machine they take several seconds of a budget.
    began = time.monotonic() if context.obj is None else context.obj
    form = chosen_form(form, as_json=as_json)
    _check_page(html, dry_run=dry_run)
    changes = [*(overrides or []), *([f"scale={scale}"] if scale else [])]
    changes += _named_environments(environments) if environments else []
    from steptime.runner.plan import plan_study

    plan = plan_study(study, changes, output, budget, paths_from)
    if dry_run:
        from steptime.cli.plan import print_plan

        print_plan(plan, form, html)
        return

    from steptime.cli.progress import LiveObserver
    from steptime.runner.allocation import Allocation, until_end
    from steptime.runner.study_run import StudyRun

    console = stderr_console()
    foreign = [f"runs {program}" for program in plan.foreign_programs()]
    for sentence in (*plan.devices_in_words(), *plan.passed_variables_in_words(), *foreign):
        print_paragraph(console, sentence)
    allocation = Allocation.found(requeue)
    study_run = None
    try:
        ranking = partial(_ranking_so_far, plan.folder)
        with unmasked(), until_end(allocation), LiveObserver(console, ranking) as observer:
            study_run = StudyRun(plan, observer, allocation, recheck=recheck, began=began)
            counts = study_run.run()
    except Interrupted as stop:
        stop.__notes__ = _ways_on(plan, study_run, allocation if stop.number == signal.SIGALRM else None)
        raise
    except Unfinished as stop:
        # A job whose whole time did not suffice for one launch would never get on.
        has_got_on = study_run is not None and study_run.kept > 0
        stop.__notes__ = _ways_on(plan, study_run, allocation if has_got_on or not stop.for_time else None)
        raise
    began = time.monotonic()
    report_code = _report(plan.folder, form)
    study_run.durations.note("report", None, time.monotonic() - began)
    study_run.durations.keep()
    for sentence in study_run.not_done:
        print_paragraph(console, sentence)
    if counts.not_run:
        left_out = format_count(counts.not_run, "trial")
        console.print(f"the budget left out {left_out}; to continue: {_again(plan, study_run)}", soft_wrap=True)
    if code := report_code or _exit_code(counts):
        sys.exit(code)


def _exit_code(counts: "TrialCounts") -> int:
    """Return the code of a run by how its trials ended; what failed comes before what the budget left out."""
    if counts.failed:
        return EXIT_FAILED
    if counts.not_equivalent:
        return EXIT_NOT_EQUIVALENT
    return EXIT_UNFINISHED if counts.not_run else 0


def _check_page(html: Path | None, *, dry_run: bool) -> None:
    if html is not None and not dry_run:
        message = f"--html {html} is of --dry-run; a run writes its page to {PAGE} in its results folder"
        raise UsageError(message)


def _named_environments(text: str) -> list[str]:
    """Return the overrides of ``NAME=PYTHON,...``; raises UsageError with all mistakes."""
    mistakes: list[str] = []
    found: dict[str, dict[str, str]] = {}
    for part in text.split(","):
        name, _, python = (word.strip() for word in part.partition("="))
        path = Path(python).expanduser()
        inside = path / "bin" / "python"
        if not (name and python):
            mistakes.append(f"--environments: {part!r} is not NAME=PYTHON, such as new=/opt/new/bin/python")
        elif name in found:
            mistakes.append(f"--environments: two environments are named {name!r}")
        elif python == OWN_ENVIRONMENT:
            found[name] = {"kind": "venv"}
        elif path.is_dir() and not inside.exists():
            mistakes.append(f"--environments: {name}: the folder {path} has no bin/python")
        else:
            found[name] = {"python": str((inside if path.is_dir() else path).absolute())}
    if mistakes:
        raise UsageError(mistakes)
    from steptime.results.jsonlines import json_text

    return [f"named_environments={json_text(found)}"]


def _ranking_so_far(folder: Path) -> list[str]:
    """Return a sentence for each workload of the results in ``folder``; none where it cannot be read meanwhile."""
    from steptime.analysis.summary import summarise
    from steptime.report.overview import sentences
    from steptime.results.store import Store

    try:
        return sentences(summarise(Store.open(folder)))
    except SteptimeError:
        return []


def _again(plan: "StudyPlan", study_run: "StudyRun | None") -> str:
    """Return the command that goes on with a run, with the budget that it proposed where its own was too short."""
    from steptime.runner.budget import proposed

    needed_s = study_run.budget.proposed_s if study_run is not None and study_run.budget is not None else 0.0
    return plan.resuming(proposed(needed_s).removeprefix("budget=") if needed_s else None)


def _ways_on(plan: "StudyPlan", study_run: "StudyRun | None", allocation: "Allocation | None") -> list[str]:
    """Queue the job of ``allocation`` again, if there is one to be; say what becomes of the study, a line each."""
    from steptime.results.store import Store
    from steptime.runner.slurm_job import script_of

    report = shlex.join(["steptime", "report", str(plan.folder)])
    lines = [
        f"everything measured is kept in {plan.folder}",
        *([f"results so far: {report}"] * Store.exists(plan.folder)),
    ]
    if allocation and Store.exists(plan.folder):
        again = allocation.requeue(Store.open(plan.folder))
        lines.append(again.sentence)
        if again.queued:
            return lines
    script = script_of(plan.folder)
    in_job = plan.site is not None and plan.site.reach == "slurm" and script.is_file()
    return [*lines, f"resume with: {shlex.join(['sbatch', str(script)]) if in_job else _again(plan, study_run)}"]


def _report(folder: Path, form: str) -> int:
    """Report in a process of its own, whose output goes where this one's does; return its exit code.

    What draws the charts takes more memory than the rest of steptime together, in the process that is said to be
    small. ``-P``: a folder named steptime in the current one must not be taken for the program.
    """
    command = [sys.executable, "-P", "-m", "steptime", "report", "--html", str(folder / PAGE)]
    sys.stdout.flush()
    return subprocess.run([*command, "--format", form, "--", str(folder)], check=False).returncode
