"""The answer at the end of the run of a user's own script: at most a screen."""

import re
from collections.abc import Iterator, Sequence
from itertools import product

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from steptime.attached.first_findings import FIRST
from steptime.attached.form import AttachedRun
from steptime.attached.step_parts import title_of
from steptime.document.number_format import count, listed
from steptime.document.paragraph import wrap_text
from steptime.report.attached import delayed_sentence, headline, job_title, part_rows, run_notes
from steptime.report.terminal import wrapped
from steptime.units import format_seconds

MOST_LINES = 25
"""Of the answer that ends a run, at 80 columns."""
_SMALL_OF_JOB = 0.005
_ROWS_OF_GAPS = (4, 2, 1, 0)
_LARGE_GAP = 0.05
"""Of a step; no further finding takes the row of a gap that is as large."""
_FINDINGS = (6, 5, 4, 3)
"""Shown, from as many as a screen has room for down to as many as are shown in any case."""
_INDENT, _GAP = "  ", 2
_CLAUSE_END = re.compile("[,;] ")
_WIDTH = 80
"""Columns by which it is chosen what is shown, at every width."""


class AttachedAnswer:
    """The answer at the end of a run, which shows the same at every width.

    Where the terminal has 80 columns it has ``MOST_LINES`` lines, and more where the first findings take them.
    """

    def __init__(self, run: AttachedRun, last: Sequence[str] = ()) -> None:
        """Take what was found, and lines that follow it."""
        self._run = run
        self._last = last

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        large = sum(part.gap and (part.share or 0.0) >= _LARGE_GAP for part in self._run.parts)
        rows_of_gaps = [rows for rows in _ROWS_OF_GAPS if rows >= min(large, _ROWS_OF_GAPS[0])]
        usual = options.update(width=_WIDTH)
        for findings, gaps in product(_FINDINGS, rows_of_gaps):
            if len(console.render_lines(Group(*self._parts(usual, findings, gaps)), usual)) <= MOST_LINES:
                break
        yield from self._parts(options, findings, gaps)

    def _parts(self, options: ConsoleOptions, findings: int, gaps: int) -> Iterator[RenderableType]:
        run = self._run
        yield wrapped(headline(run), "bold", options)
        first = [each for each in run.findings if each.kind in FIRST]
        for each in first:
            yield wrapped(f"{each.sentence[:1].upper()}{each.sentence[1:]}.", "bold yellow", options)
        if run.not_attached:
            yield wrapped(run.not_attached, "yellow", options)
        if delayed := delayed_sentence(run):
            yield wrapped(delayed, "yellow", options)
        if run.parts:
            yield _table(run, gaps, options.max_width)
        for line in _unknown_lines(run):
            yield wrapped(line, "yellow", options)
        if run.job:
            yield wrapped(_job_line(run), "", options)
        others = [each for each in run.findings if each.kind not in FIRST]
        for each in others[:findings]:
            largest = each is others[0]
            begin, style = ("Largest avoidable", "bold") if largest else ("Also", "")
            yield wrapped(f"{begin}: {each.sentence}.", style, options)
        left = len(others) - findings
        if left > 0:
            yield wrapped(f"{count(left, 'further finding')} in the report.", "dim", options)
        for line in (*run_notes(run), *self._last):
            yield wrapped(line, "dim", options)


def _unknown_lines(run: AttachedRun) -> Iterator[str]:
    """Yield which parts are not known and why, and how records of other nodes are joined."""
    for reason in dict.fromkeys(part.reason for part in run.parts if part.reason):
        names = [title_of(part.name) for part in run.parts if part.reason == reason]
        yield f"Not known: {listed(names)}, because {reason}."
    if 0 < len(run.ranks) < run.world and not run.imported:
        yield "With what attach wrote for other ranks: steptime report DIR OTHER-DIR."


def _table(run: AttachedRun, gaps: int, width: int) -> RenderableType:
    """Return the parts with whole clauses of their notes, those that ``_WIDTH`` columns hold, beside or below them."""
    rows = list(part_rows(run, gaps))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    used = sum(widths) + len(_INDENT) + 3 * _GAP
    if width < used - _GAP:
        return _narrow(rows)
    lines = []
    for name, time, share, note in rows:
        gap = " " * _GAP
        line = f"{_INDENT}{name:<{widths[0]}}{gap}{time:>{widths[1]}}{gap}{share:>{widths[2]}}"
        shown = _clauses(note, _WIDTH - used)
        if len(shown) <= width - used:
            lines.append(f"{line}{gap}{shown}".rstrip())
        else:
            lines += [line.rstrip(), *wrap_text(shown, width, first_indent=2 * _INDENT, indent=2 * _INDENT)]
    return Text("\n".join(lines))


def _narrow(rows: Sequence[tuple[str, str, str, str]]) -> Table:
    """Return names and times alone, of which names may be broken."""
    table = Table.grid(padding=(0, _GAP, 0, 0))
    table.add_column(overflow="fold")
    table.add_column(no_wrap=True, justify="right")
    for name, time, _, _ in rows:
        table.add_row(Text(f"{_INDENT}{name}"), Text(time))
    return table


def _clauses(note: str, width: int) -> str:
    """Return as many clauses of a note as fit, one at least."""
    ends = [len(note), *(match.start() for match in reversed(list(_CLAUSE_END.finditer(note))))]
    return note[: next((end for end in ends if end <= width), ends[-1])]


def _job_line(run: AttachedRun) -> str:
    total = sum(part.time_s for part in run.job)
    parts = sorted((part for part in run.job if part.share >= _SMALL_OF_JOB), key=lambda part: -part.time_s)
    texts = [f"{job_title(run, part.name)} {format_seconds(part.time_s)} ({100 * part.share:.0f} %)" for part in parts]
    return f"The whole job took {format_seconds(total)}: {', '.join(texts)}."
