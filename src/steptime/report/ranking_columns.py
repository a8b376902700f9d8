"""The columns of a ranking, one row each, of which the whole report and the short one are views.

A new column is a row here; one of a figure that trials do not have yet is also where ``analysis`` computes it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from steptime.report.groups import RankedGroup, RankedRow
from steptime.report.number_format import Shown, count
from steptime.report.section import EVERYWHERE, Cell, Column, Layout, Medium, short_marks

SHORT_LAYOUTS = range(5)
"""Selections of columns that the short report tries, widest table first."""


def _always(_: RankedGroup) -> bool:
    return True


@dataclass(frozen=True)
class ShortColumn:
    """How the short report shows a column."""

    title: str
    layouts: Sequence[int] = SHORT_LAYOUTS
    """Those that have it."""
    applies: Callable[[RankedGroup], bool] = _always
    """To any group of a workload; the column is left out where it applies to none."""


@dataclass(frozen=True)
class RankingColumn:
    """One figure of the trials of a group."""

    title: str
    cell: Callable[[RankedGroup, RankedRow], Cell]
    short: ShortColumn | None = None
    """None of what the short report leaves out."""
    applies: Callable[[RankedGroup], bool] = _always
    """To a group; its table has the column then."""
    kind: Literal["number", "text", "prose"] = "number"
    shown: Sequence[Layout | Medium] = EVERYWHERE
    of_baseline: bool = False
    """Whether the heading names what the figures are relative to."""

    def column(self, group: RankedGroup) -> Column:
        """Return the column of a group's table."""
        baseline = group.baseline.replace(" (", "\n(") if self.of_baseline else ""
        return Column(f"{self.title}\n{baseline}".strip(), self.kind, shown=self.shown)

    def short_heading(self, baseline: str) -> str:
        """Return the heading in the short report, where ``baseline`` is that of a whole workload."""
        title = self.short.title if self.short else self.title
        return f"{title}\n{baseline}".strip() if self.of_baseline else title


def _number(shown: Shown) -> Cell:
    return Cell(*shown)


RANKING_COLUMNS = (
    RankingColumn("samples/s", lambda _, row: _number(row.rate), ShortColumn("samples/s", (0, 2))),
    RankingColumn("step time", lambda _, row: _number(row.time), ShortColumn("step time")),
    RankingColumn("median, p90, p99", lambda _, row: _number(row.quantiles), shown=("wide", "list", "page")),
    RankingColumn(
        "slowdown\nvs best",
        lambda _, row: _number(row.ratio),
        ShortColumn("slowdown vs best", (0, 1, 2, 3), lambda group: len(group.rows) > 1),
    ),
    RankingColumn(
        "scaling\nefficiency",
        lambda group, row: _number(group.efficiency(row)),
        ShortColumn("efficiency", (0, 1), lambda group: group.has_efficiency),
        applies=lambda group: group.has_efficiency,
        of_baseline=True,
    ),
    RankingColumn(
        "launches",
        lambda _, row: Cell(str(row.trial.launches), note=count(row.trial.steps, "step")),
        shown=("page",),
    ),
    RankingColumn(
        "marks",
        lambda _, row: Cell(marks=short_marks(row.trial.flags)),
        applies=lambda group: bool(group.flags),
        kind="text",
        shown=("page",),
    ),
)


def columns_of(group: RankedGroup) -> list[RankingColumn]:
    """Return the columns of a group's table."""
    return [column for column in RANKING_COLUMNS if column.applies(group)]


def short_columns(groups: Iterable[RankedGroup], layout: int) -> list[RankingColumn]:
    """Return the columns of the groups of a workload in a layout of the short report."""
    own = list(groups)
    return [
        column
        for column in RANKING_COLUMNS
        if column.short and layout in column.short.layouts and any(map(column.short.applies, own))
    ]
