"""``steptime attach``: where the time of a user's own script goes.

The answer at the end of the run of a user's own script: at most a screen.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from steptime.cli.streams import warn
from steptime.measurements.attached.form import AttachedRun
from steptime.measurements.attached.step_parts import title_of
from steptime.report.attached import JOB_TITLES, headline, part_rows, run_notes
from steptime.report.number_format import count, listed
from steptime.report.terminal import wrapped
from steptime.units import format_seconds

if TYPE_CHECKING:
    from steptime.launchers.own_command import CommandEnd

_LIVE_S = 10.0
_TERMINAL = "/dev/tty"
_WIDTH = 80
"""Of the answer where no terminal sets one."""


def attach(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="As you start it: torchrun train.py.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output-dir", help="Results folder [default: steptime-results/attach-SCRIPT]."),
    ] = None,
    lines: Annotated[
        bool | None,
        typer.Option("--lines/--no-lines", help="Sample the lines of the script [default: where gaps are large]."),
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
    live: Annotated[bool, typer.Option("--live", help="Say on the terminal how far it is, every ten seconds.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="End with the answer as one line of JSON (docs/report-keys.md).")
    ] = False,
) -> None:
    """Run your own training command as it is, and end with where its time went.

    Output, exit code and signals are those of the command; the answer goes to standard error.
    """
    from steptime.runner.attached_run import AttachedCommand, free_folder

    folder = output or free_folder(command)
    beat = _live_line(folder) if live else _silent
    ended = AttachedCommand(command, folder, lines, flops, ablate).run(beat)
    try:
        _answer(folder, as_json=as_json)
    except Exception as error:  # noqa: BLE001 - whatever the answer lacks, the end is that of the command
        _warn_of(error)
    _end_alike(ended)


def _warn_of(error: Exception) -> None:
    """Say why an answer is missing; a defect of steptime with its place, as any other verb does."""
    import traceback

    from steptime.errors import SteptimeError

    warn([f"error: {error}"] if isinstance(error, SteptimeError) else traceback.format_exception(error))


def _silent() -> None:
    return


def _live_line(folder: Path) -> Callable[[], None]:
    """Return what writes a line to the terminal now and then, if there is one."""
    import time

    from steptime.measurements.attached.summary import latest_steps
    from steptime.report.number_format import plain_text

    next_at = time.monotonic() + _LIVE_S

    def beat() -> None:
        nonlocal next_at
        if time.monotonic() < next_at:
            return
        next_at = time.monotonic() + _LIVE_S
        said = latest_steps(folder)
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
    import shlex

    from steptime.cli.console import PlainConsole
    from steptime.diagnosis.own_script import script_findings
    from steptime.measurements.attached.summary import attached_run
    from steptime.measurements.store import Store

    recorded = Store.open(folder).attached()
    assert recorded is not None  # noqa: S101 - the folder is of this run
    found = attached_run(*recorded)
    if as_json:
        from steptime.measurements.jsonlines import json_text

        warn([json_text(found.to_json())])
        return
    last = [f"All of it: {shlex.join(['steptime', 'report', '--all', str(folder)])}"]
    if script_findings(found):
        last.append(f"What to change: {shlex.join(['steptime', 'advise', str(folder)])}")
    sized = sys.stderr.isatty() or "COLUMNS" in os.environ
    console = PlainConsole(file=sys.stderr, width=None if sized else _WIDTH)
    console.print(AttachedAnswer(found, last))


def _end_alike(ended: "CommandEnd") -> None:
    """End as the command ended: with its exit code, or by the signal that ended it."""
    if ended.code >= 0:
        raise typer.Exit(ended.code)
    sys.stdout.flush()
    sys.stderr.flush()
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # its core is worth keeping, not ours
    number = -ended.code
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


MOST_LINES = 25
"""Of the answer that ends a run, at 80 columns."""
_SMALL_OF_JOB = 0.005
_ROWS_OF_GAPS = (4, 2, 1, 0)
_FINDINGS = (6, 4, 3, 2, 1)
_INDENT, _GAP = "  ", 2
_SHORTEST_NOTE = 12
"""Columns that a note has at least, or is left out."""


class AttachedAnswer:
    """The answer at the end of a run, of at most ``MOST_LINES`` lines where the terminal has 80 columns."""

    def __init__(self, run: AttachedRun, last: Sequence[str] = ()) -> None:
        """Take what was found, and lines that follow it."""
        self._run = run
        self._last = last

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        whole: list[RenderableType] = []
        for findings, gaps in product(_FINDINGS, _ROWS_OF_GAPS):
            whole = list(self._parts(options, findings, gaps))
            if len(console.render_lines(Group(*whole), options)) <= MOST_LINES:
                break
        yield from whole

    def _parts(self, options: ConsoleOptions, findings: int, gaps: int) -> Iterator[RenderableType]:
        run = self._run
        yield wrapped(headline(run), "bold", options)
        if run.not_attached:
            yield wrapped(run.not_attached, "yellow", options)
        if run.parts:
            yield _table(run, gaps, options.max_width)
        for reason in dict.fromkeys(part.reason for part in run.parts if part.reason):
            names = [title_of(part.name) for part in run.parts if part.reason == reason]
            yield wrapped(f"Not known: {listed(names)}, because {reason}.", "yellow", options)
        if run.job:
            yield wrapped(_job_line(run), "", options)
        for each in run.findings[:findings]:
            first = each is run.findings[0]
            yield wrapped(f"{'Largest' if first else 'Also'}: {each.sentence}.", "bold" if first else "", options)
        left = len(run.findings) - findings
        if left > 0:
            yield wrapped(f"{count(left, 'further finding')} in the report.", "dim", options)
        for line in (*run_notes(run), *self._last):
            yield wrapped(line, "dim", options)


def _table(run: AttachedRun, gaps: int, width: int) -> Table:
    """Return the parts with as much beside them as fits; notes are cut where that is narrow, numbers never."""
    rows = list(part_rows(run, gaps))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    left = width - sum(widths) - len(_INDENT) - 3 * _GAP
    columns = 4 if left >= _SHORTEST_NOTE else 3 if left >= -_GAP else 2
    table = Table.grid(padding=(0, _GAP, 0, 0))
    for column in range(columns):
        table.add_column(no_wrap=column > 0, justify="right" if column in {1, 2} else "left", overflow="fold")
    for name, time, share, note in rows:
        shown = note if len(note) <= left else f"{note[: max(0, left - 1)]}…"
        table.add_row(*(Text(text) for text in (f"{_INDENT}{name}", time, share, shown)[:columns]))
    return table


def _job_line(run: AttachedRun) -> str:
    total = sum(part.time_s for part in run.job)
    parts = sorted((part for part in run.job if part.share >= _SMALL_OF_JOB), key=lambda part: -part.time_s)
    texts = [f"{JOB_TITLES[part.name]} {format_seconds(part.time_s)} ({100 * part.share:.0f} %)" for part in parts]
    return f"The whole job took {format_seconds(total)}: {', '.join(texts)}."
