"""``steptime attach``: where the time of a user's own script goes."""

import os
import resource
import shlex
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steptime.cli.attached_environment import FORMS, print_environment
from steptime.cli.required_program import require_program
from steptime.cli.streams import warn
from steptime.cli.trackers import ToTrackers, chosen_trackers, missing_libraries, write_to_trackers
from steptime.document.plain_text import plain_text
from steptime.errors import SteptimeError, StoreError, UsageError, error_line
from steptime.interruption import Interrupted, end_is_decided, unmasked
from steptime.launchers.own_command import CommandEnd, become_command
from steptime.report.export_formats import PAGE

if TYPE_CHECKING:
    from steptime.cli.trackers import ChosenTracker
    from steptime.runner.attached_run import PreparedCommand

_LIVE_S = 10.0
_TERMINAL = "/dev/tty"
_WIDTH = 80
"""Of the answer where no terminal sets one."""


def attach(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND...", help="Your training command, such as torchrun train.py."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output-dir", help="Results folder (default: steptime-results/attach-SCRIPT)."),
    ] = None,
    lines: Annotated[
        bool | None,
        typer.Option("--lines/--no-lines", help="Sample lines of the script (default: where gaps or input are large)."),
    ] = None,
    flops: Annotated[bool, typer.Option("--flops", help="Count the arithmetic of one step.")] = False,
    ablate: Annotated[
        bool,
        typer.Option(
            "--ablate",
            help="A throw-away run in a folder of its own: blocks of steps lack the loader, DDP's exchange or the "
            "update, nothing is saved by torch.save, and it ends by itself (PyTorch). Trackers and databases that the "
            "script writes to are still written.",
        ),
    ] = False,
    live: Annotated[bool, typer.Option("--live", help="Print progress to the terminal every ten seconds.")] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Show the page of the run in a browser of this machine while it runs.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="End with the answer as one line of JSON (docs/report-keys.md).")
    ] = False,
    environment: Annotated[
        bool,
        typer.Option(
            "--environment",
            help="Start nothing; print the variables that attach what a pod, Ray, sbatch or a container starts.",
        ),
    ] = False,
    form: Annotated[
        str | None,
        typer.Option(
            "--format", help="With --environment: sh, yaml, json, docker or trainjob.", autocompletion=lambda: FORMS
        ),
    ] = None,
    to: ToTrackers = None,
) -> None:
    """Run your own training command as it is, and end with where its time went.

    Output, exit code and signals are those of the command; the answer goes to standard error.
    """
    if environment:
        print_environment(command or [], output, form or "sh")
        return
    if not command or form is not None:
        what = "give a command: steptime attach -- torchrun train.py" if not command else "--format is of --environment"
        raise UsageError(what)
    trackers = chosen_trackers(to)
    require_program(command[0])
    try:
        warn(f"steptime attach: {reason}" for reason in missing_libraries(trackers))
        prepared = _prepared(command, output, lines=lines, flops=flops, ablate=ablate)
        beat = _live_line(prepared.folder) if live else _silent
    except Exception as error:
        if ablate:  # which is not the command as it is
            raise
        _warn_unmeasured(error)
        become_command(command)
        raise  # not reached
    try:
        with _shown_while_it_runs(prepared.folder) if serve else nullcontext():
            prepared.run(beat)
        _say_what_was_found(prepared, trackers, as_json=as_json)
    except Interrupted as stop:
        if prepared.ended is None:
            prepared.discard()
            raise
        end_is_decided()
        again = shlex.join(["steptime", "report", str(prepared.folder)])
        warn([f"steptime attach: interrupted by {stop} after the command had ended; what was measured: {again}"])
    assert prepared.ended is not None  # noqa: S101 - raised otherwise
    end_is_decided()
    _end_alike(prepared.ended)


def _say_what_was_found(prepared: "PreparedCommand", trackers: "list[ChosenTracker]", *, as_json: bool) -> None:
    try:
        warn(f"steptime attach: {problem}" for problem in prepared.problems)
        with unmasked():
            _answer(prepared.folder, as_json=as_json)
    except Exception as error:  # noqa: BLE001 - whatever the answer lacks, the end is that of the command
        _warn_of(error)
    if trackers:
        _show_in_trackers(prepared.folder, trackers)


def _prepared(
    command: list[str], output: Path | None, *, lines: bool | None, flops: bool, ablate: bool
) -> "PreparedCommand":
    """Make the results folder of a command, or join that of its job, and say where it is if not where asked for."""
    from steptime.runner.attached_folder import clear_failed, free_folder, joined_folder, named_folder
    from steptime.runner.attached_run import AttachedCommand
    from steptime.runner.job_member import job_member

    wanted, member = named_folder(command, output), job_member(command)
    if output is None and member is None:
        clear_failed(wanted)

    def make() -> "PreparedCommand":
        joined = joined_folder(wanted, member) if member else None
        attached = AttachedCommand(command, joined or free_folder(wanted), lines, flops, ablate)
        return attached.join(member) if joined and member else attached.prepare()

    try:
        prepared = make()
    except StoreError:
        if member is None:
            raise
        prepared = make()  # another member may have begun at the same moment
    if output is not None and prepared.folder != wanted:
        warn([f"steptime attach: results go to {prepared.folder}, since {wanted} holds others"])
    return prepared


def _show_in_trackers(folder: Path, trackers: "list[ChosenTracker]") -> None:
    """Write the page and the run to trackers; whatever fails is one line."""
    try:
        from steptime.cli.reported_results import read_report, write_report_page

        with unmasked():
            report = read_report(folder)
            assert report.attached is not None  # noqa: S101 - the folder is of this run
            write_report_page(report, folder / PAGE)
            written, failed = write_to_trackers(trackers, report.attached, folder, folder / PAGE)
        warn(written)
        warn(f"steptime attach: not written to {line}" for line in failed)
    except Exception as error:  # noqa: BLE001 - likewise
        names = ", ".join(tracker.place.name for tracker in trackers)
        warn([f"steptime attach: not written to {names}: {error_line(error)}"])


def _warn_unmeasured(error: Exception) -> None:
    warn([f"steptime attach: not measured, and started as without it: {error_line(error)}"])


def _warn_of(error: Exception) -> None:
    """Say why an answer is missing; a defect of steptime with its place, as any other verb does."""
    warn([f"error: {error}"] if isinstance(error, SteptimeError) else traceback.format_exception(error))


@contextmanager
def _shown_while_it_runs(folder: Path) -> Iterator[None]:
    """Serve the page; the command runs where it cannot be served too."""
    from steptime.cli.page_server import page_served

    with ExitStack() as stack:
        try:
            address = stack.enter_context(page_served(folder))
            warn([f"steptime attach: page of this run, on this machine only: {address}"])
        except Exception as error:  # noqa: BLE001 - likewise
            warn([f"steptime attach: its page is not served: {error_line(error)}"])
        yield


def _silent(_process: int) -> None:
    return


def _live_line(folder: Path) -> Callable[[int], None]:
    """Return what writes a line to the terminal now and then, if there is one."""
    from steptime.attached.latest_steps import latest_attempt, latest_steps

    next_at = time.monotonic() + _LIVE_S

    def beat(_process: int) -> None:
        nonlocal next_at
        if time.monotonic() < next_at:
            return
        next_at = time.monotonic() + _LIVE_S
        said = latest_steps(latest_attempt(folder))
        if said is None:
            return
        try:
            terminal = os.open(_TERMINAL, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:  # there is none
            return
        try:
            os.write(terminal, plain_text(f"steptime: {said}\n").replace("\n", "\r\n").encode(errors="replace"))
        finally:
            os.close(terminal)

    return beat


def _answer(folder: Path, *, as_json: bool) -> None:
    from steptime.attached.summary import attached_run
    from steptime.cli.console import PlainConsole
    from steptime.diagnosis.rules import script_findings
    from steptime.report.attached_answer import AttachedAnswer
    from steptime.results.store import Store

    recorded = Store.open(folder).attached()
    assert recorded is not None  # noqa: S101 - the folder is of this run
    found = attached_run(*recorded)
    if as_json:
        from steptime.results.jsonlines import json_text

        warn([json_text(found.to_json())])
        return
    last = [f"All of it: {shlex.join(['steptime', 'report', '--all', str(folder)])}"]
    if script_findings(found):
        last.append(f"What to change: {shlex.join(['steptime', 'advise', str(folder)])}")
    sized = sys.stderr.isatty() or "COLUMNS" in os.environ
    console = PlainConsole(file=sys.stderr, width=None if sized else _WIDTH)
    console.print(AttachedAnswer(found, last))


def _end_alike(ended: CommandEnd) -> None:
    """End as the command ended: with its exit code, or by the signal that ended it."""
    if ended.code >= 0:
        raise typer.Exit(ended.code)
    sys.stdout.flush()
    sys.stderr.flush()

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # its core is worth keeping, not ours
    number = -ended.code
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
