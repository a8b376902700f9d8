"""The form of a section: what a report shows of one subject, in a terminal and on a page alike.

A section is a title and parts; a part may be a section. ``terminal`` and ``html`` know every kind of part, and no
section: ``sections`` lists those of a report.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import ClassVar, Literal

from steptime.document.charts.chart import Figure
from steptime.document.number_format import UNKNOWN

ANSWER = "answer"
"""The id of a section that answers for all sections of a page."""
Medium = Literal["terminal", "page"]
Style = Literal["", "dim", "bold", "good", "bad", "warning"]
Layout = Literal["wide", "plain", "stacked", "packed", "split", "list"]
"""Of a table in a terminal: all of a row in one line, the most important of it, intervals below, further columns in
another table, a line for a cell."""
EVERYWHERE: tuple[Layout | Medium, ...] = ("wide", "plain", "stacked", "packed", "split", "list", "page")


@dataclass(frozen=True, kw_only=True)
class Part:
    """What all parts have."""

    form: ClassVar[str]
    """By which the page's template knows it."""
    only: Medium | None = None
    """Where it is shown alone; None if it is shown in both."""

    def is_within(self, medium: Medium) -> bool:
        """Whether a medium shows any of it."""
        return self.only in {None, medium}


@dataclass(frozen=True)
class Sentences(Part):
    """Paragraphs, or items of a list."""

    form = "sentences"
    texts: Sequence[str]
    style: Style = ""
    listed: bool = False

    def is_within(self, medium: Medium) -> bool:
        """Whether a medium shows any of them."""
        return bool(self.texts) and super().is_within(medium)


@dataclass(frozen=True)
class Pairs(Part):
    """Names and what each is or means."""

    form = "pairs"
    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Verbatim(Part):
    """Lines of a file or a shell, which no width breaks; by default on a page alone."""

    form = "verbatim"
    text: str
    only: Medium | None = field(default="page", kw_only=True)


@dataclass(frozen=True)
class Figures(Part):
    """Pictures, drawn when a page asks for them."""

    form = "figures"
    draw: Callable[[], Sequence[Figure]]
    title: str = ""
    note: str = ""
    """What they show; title and note are left out where nothing is drawn."""
    only: Medium | None = field(default="page", kw_only=True)


class Chooser(Figures):
    """Pictures of which a reader sees one at a time, the first until another is chosen."""

    form = "chooser"


@dataclass(frozen=True)
class Column:
    """A column behind that of the names."""

    title: str
    """With a line break where a narrow heading is broken."""
    kind: Literal["number", "text", "prose"] = "number"
    """Numbers are aligned on the right and never broken, prose is broken."""
    unit: str = ""
    """Of all its cells; a terminal shows it in the heading alone."""
    shown: Sequence[Layout | Medium] = EVERYWHERE


@dataclass(frozen=True)
class Cell:
    """A number or a text with what belongs to it."""

    text: str = ""
    interval: str = ""
    note: str = ""
    style: Style = ""
    marks: Sequence[str] = ()

    @property
    def line(self) -> str:
        """All but the marks in one line."""
        shown = f"{self.text} ({self.interval})" if self.interval else self.text
        return " ".join(filter(None, (shown, self.note)))


@dataclass(frozen=True)
class TableRow:
    """A named row."""

    name: str
    cells: Sequence[Cell]
    rank: str = ""
    under: Sequence[str] = ()
    """Below the name, on a page."""
    best: bool = False
    sentence: str = ""
    """All of it for a terminal, if there is a better wording than the titles of the columns with their cells."""


@dataclass(frozen=True)
class SectionTable(Part):
    """Named rows by columns."""

    form = "table"
    columns: Sequence[Column]
    rows: Sequence[TableRow]
    names: str = "framework, strategy"
    """Title of the column of names."""
    layouts: tuple[Layout, ...] = ()
    """Which a terminal tries, in this order and then a list; without any, each row is a sentence."""
    label: str = ""
    """For those who hear the page; the title of its section if empty."""

    @property
    def has_ranks(self) -> bool:
        """Whether its rows are in the order of a ranking."""
        return any(row.rank for row in self.rows)

    @property
    def spans(self) -> list[int]:
        """For each row, over how many rows its name stretches on a page; 0 where the row above has the same."""
        if self.has_ranks:
            return [1] * len(self.rows)
        runs = [len([*same]) for _, same in groupby(self.rows, lambda row: (row.name, *row.under))]
        return [span for run in runs for span in (run, *[0] * (run - 1))]

    def columns_of(self, place: Layout | Medium) -> list[tuple[int, Column]]:
        """Return the columns that are shown in a place, each with its index among the cells.

        A page leaves out those of which nothing is known of any row.
        """
        return [
            (index, column)
            for index, column in enumerate(self.columns)
            if place in column.shown and not (place == "page" and self._is_unknown(index))
        ]

    def _is_unknown(self, index: int) -> bool:
        return bool(self.rows) and all(row.cells[index] == Cell(UNKNOWN) for row in self.rows)

    def sentence(self, row: TableRow) -> str:
        """Return a row as a sentence, without what is not known."""
        cells = [(column.title.replace("\n", " "), row.cells[index].line) for index, column in self.columns_of("page")]
        return row.sentence or f"{row.name}: {'; '.join(f'{title} {cell}' for title, cell in cells if cell != UNKNOWN)}"


@dataclass(frozen=True)
class Section(Part):
    """A title with its parts."""

    form = "section"
    title: str
    parts: Sequence[Part]
    note: str = ""
    """What the numbers are, below the title."""
    verdict: str = ""
    """The sentence that sums it up; a page that begins with it does not repeat it."""
    style: Style = ""
    """Of the title."""
    id: str = ""
    """Of a whole section: its place on the page."""
    folded: bool = False
    """Of a part of a section: whether a page shows the title alone until it is chosen, as of all sections but one."""
    opened: bool = False
    alike: bool = False
    """Of a whole section: whether all its tables have the same layout in a terminal."""

    def within(self, medium: Medium) -> list[Part]:
        """Return the parts that a medium shows."""
        return [part for part in self.parts if part.is_within(medium)]

    def is_within(self, medium: Medium) -> bool:
        """Whether a medium shows more of it than a title."""
        return super().is_within(medium) and bool(self.note or self.verdict or self.within(medium))


def mark_notes(marked: Sequence[tuple[str, Sequence[str]]]) -> list[Part]:
    """Return a line for each mark with the names of those that have it; rows of a page show its first words."""
    notes = []
    for mark in dict.fromkeys(mark for _, marks in marked for mark in marks):
        names = dict.fromkeys(name for name, marks in marked if mark in marks)
        notes.append(f"{mark} ({'all' if len(names) == len(dict(marked)) else ', '.join(names)})")
    lines = Sentences([f"note: {note}" for note in notes], "dim", only="terminal")
    whole = Section("Marks in full", [Sentences(notes, listed=True)], folded=True, only="page")
    return [lines, *([whole] if notes else [])]


def short_marks(marks: Sequence[str]) -> list[str]:
    """Return the first words of marks, each once."""
    return list(dict.fromkeys(mark.partition(":")[0] for mark in marks))


def cells(*shown: tuple[str, str] | str) -> list[Cell]:
    """Return a cell for each text or number with its interval."""
    return [Cell(each) if isinstance(each, str) else Cell(*each) for each in shown]


def text_table(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    label: str = "",
    kind: Literal["number", "text", "prose"] = "number",
    layouts: tuple[Layout, ...] = (),
) -> SectionTable:
    """Return a table of texts, of which the first column has the names."""
    names, *others = titles
    found = [TableRow(name, cells(*texts)) for name, *texts in rows]
    return SectionTable([Column(title, kind) for title in others], found, names, layouts, label)
