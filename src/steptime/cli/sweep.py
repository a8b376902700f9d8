"""``steptime sweep``: how far more workers help a user's own script."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steptime.cli.arguments import Mistakes
from steptime.cli.console import report_console, stderr_console
from steptime.cli.streams import print_json, say, warn, wrote
from steptime.errors import Unfinished, choices_message
from steptime.interruption import Interrupted, unmasked
from steptime.report.export_formats import ReportFormat, format_help, formats_of
from steptime.units import parse_duration
from steptime.user_output import PAGE, require_free

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steptime.results.store import Store
    from steptime.sweep.plan import SweepPlan
    from steptime.sweep.runs import SweepRuns


EXIT_FAILED = 1
EXIT_UNFINISHED = Unfinished.exit_code


def sweep(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- COMMAND...",
            help="Your command, with {workers} in place of their number: torchrun --nproc-per-node {workers} train.py.",
        ),
    ] = None,
    counts: Annotated[str, typer.Option(metavar="N,...", help="Numbers of workers to run it with.")] = "1,2,4",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=A,B", help="Put each value in place of {NAME} in the command too; each has a curve."
        ),
    ] = None,
    repeats: Annotated[
        int, typer.Option(help="How many times to run each setting, in rounds; with --budget, at least.")
    ] = 3,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Start no run that would end after this time, such as 20m; add rounds until speed-ups are narrow.",
        ),
    ] = None,
    most_steps: Annotated[
        int | None,
        typer.Option(
            "--stop-after",
            metavar="N",
            help="End each PyTorch run after N steps, or once its step is known within 1 %, by SIGTERM between two "
            "steps; never those that save.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output-dir", help="Folder for the results (default: sweep-SCRIPT in steptime-results)."),
    ] = None,
    weak: Annotated[
        bool | None,
        typer.Option(
            "--weak/--strong",
            help="Each worker keeps its batch, or all workers share one (default: what the steps show).",
        ),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            min=1, help="Samples that one worker takes in a step, of the fewest workers (default: what loaders show)."
        ),
    ] = None,
    samples: Annotated[int | None, typer.Option(min=1, help="Samples of an epoch, to print its device-hours.")] = None,
    price: Annotated[
        float | None, typer.Option(help="Price of a device for an hour, to print the money per epoch.")
    ] = None,
    knee: Annotated[
        str,
        typer.Option(
            metavar="PERCENT,...", help="Find the number of workers at which efficiency falls below each of these."
        ),
    ] = "80,50",
    html: Annotated[Path | None, typer.Option(help="Also write one offline HTML page to this file.")] = None,
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write every figure as SVG, PNG and PDF with a caption.")
    ] = None,
    form: Annotated[
        str,
        typer.Option("--format", help=format_help(ReportFormat), autocompletion=lambda: list(formats_of(ReportFormat))),
    ] = "text",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the runs in their order, and start none.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Run your own command with several numbers of workers, and forecast how far more of them help.

    Runs that ended are kept: rerun the same command to continue.
    """
    from steptime.scaling.knee import read_shares
    from steptime.sweep.early_end import LEAST_STEPS
    from steptime.sweep.plan import WORKERS, named_sweep, read_plan

    mistakes = Mistakes()
    budget_s = mistakes.read("--budget", budget, parse_duration)
    shares = mistakes.read("--knee", knee, read_shares)
    if form not in formats_of(ReportFormat):
        mistakes.add([choices_message("format", form, formats_of(ReportFormat))])
    mistakes.add(_unusable(samples, price))
    if most_steps is not None and most_steps < LEAST_STEPS:
        mistakes.add([f"--stop-after {most_steps} leaves hardly a steady step; write {LEAST_STEPS} or more"])
    axes = {WORKERS: _values(counts)}
    for text in settings or ():
        name, equals, values = text.partition("=")
        if not equals or name in axes:
            mistakes.add([f"--set {text!r} is not NAME=A,B with a name that is not there yet, such as batch=16,32"])
        axes[name] = _values(values)
    plan = mistakes.read("command", "", lambda _: read_plan(command or [], axes, repeats))
    mistakes.complain()
    assert plan is not None  # noqa: S101 - complained otherwise
    folder = named_sweep(plan.command, output)
    if dry_run:
        _print_runs(plan, folder)
        return
    if html is not None:
        require_free(html, PAGE)
    kind = None if weak is None else "weak" if weak else "strong"
    options = {"kind": kind, "batch": batch, "samples": samples, "price": price, "shares": shares}
    options["most_steps"] = most_steps
    plan, store, outcome = _run(plan, folder, budget_s, options)
    as_json = as_json or form == "json"
    _answer(store, form="json" if as_json else form, html=html, figures=figures)
    _say_what_is_left(plan, outcome)
    if outcome.failed:
        sys.exit(EXIT_FAILED)
    if outcome.left:
        sys.exit(EXIT_UNFINISHED)


def _values(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _unusable(samples: int | None, price: float | None) -> list[str]:
    """Return what is missing for what was asked."""
    mistakes = []
    if price is not None and samples is None:
        mistakes.append("--price is of epochs: add --samples N")
    if price is not None and not 0.0 < price < float("inf"):
        mistakes.append(f"--price {price:g} is not a price; write what a device costs for an hour, such as 2.5")
    return mistakes


def _print_runs(plan: "SweepPlan", folder: Path) -> None:
    from steptime.sweep.runs import ended_well

    runs = plan.runs(folder)
    say(f"{len(runs)} runs, one after the other, into {folder}:")
    for place, run in enumerate(runs, 1):
        kept = "  # kept" if ended_well(run.folder) else ""
        say(f"{place:4d}  {shlex.join(run.setting.words(plan.command))}{kept}")


def _run(
    plan: "SweepPlan", folder: Path, budget_s: float | None, options: dict[str, Any]
) -> "tuple[SweepPlan, Store, SweepRuns]":
    """Return the plan with the rounds that were added to it, its folder, and what became of its runs."""
    from steptime.cli.progress import LiveObserver
    from steptime.cli.required_program import require_program
    from steptime.sweep.rounds import run_rounds
    from steptime.sweep.runs import sweep_store

    require_program(plan.settings[0].words(plan.command)[0])
    store = sweep_store(plan, folder)
    with store.lock():
        try:
            with unmasked(), LiveObserver(stderr_console(), list) as observer:
                plan, outcome = run_rounds(plan, store, options, budget_s, observer)
                return plan, store, outcome
        except Interrupted as stop:
            stop.add_note(f"what ended is kept in {folder}: steptime report {shlex.quote(str(folder))}")
            stop.add_note("to continue, rerun the same command")
            raise


def _answer(store: "Store", *, form: str, html: Path | None, figures: Path | None) -> None:
    """Print what was found, as ``steptime report`` of the folder does."""
    from steptime.cli.reported_results import read_report, write_report_page
    from steptime.report.figure_files import write_figures
    from steptime.report.sweep import sweep_section
    from steptime.report.terminal import SectionText

    whole = read_report(store.path)
    answer = whole.sweep
    assert answer is not None  # noqa: S101 - the folder is of a sweep
    if form == "json":
        print_json(answer.model_dump())
    elif write := formats_of(ReportFormat)[form].text:
        say(write(whole.findings))
    else:
        report_console().print(SectionText([sweep_section(answer)]))
    if html is not None:
        write_report_page(whole, html)
        wrote("report", html)
    if figures is not None:
        written = write_figures(whole.summary, whole.sections, figures)
        warn([f"figures: {len(written)} files in {figures.resolve()}"])


def _say_what_is_left(plan: "SweepPlan", outcome: "SweepRuns") -> None:
    warn([f"failed: {name}: {problem}" for name, problem in outcome.failed.items()])
    warn([f"{name} ran to its end: {reason}" for name, reason in outcome.whole.items()])
    if outcome.left:
        names: Sequence[str] = list(dict.fromkeys(run.setting.name for run in outcome.left))
        runs = f"{len(outcome.left)} of {len(plan.settings) * plan.repeats} runs are left ({'; '.join(names)})"
        warn([f"{runs}, since the budget was spent; to continue, rerun the same command"])
