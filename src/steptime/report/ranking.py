"""The ranking by step time, and what trials compute per second: tokens, FLOP/s of each device, MFU.

``RANKING_COLUMNS`` has the columns, one row each, of which the whole report and the short one are views. A new column
is a row there; one of a figure that trials do not have yet is also where ``analysis`` computes it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from typing import Literal

from steptime.analysis.summary_form import TrialSummary
from steptime.document.charts.chart import MOST, MOST_ROWS, Figure, Marks, Spec, parts, picture
from steptime.document.charts.rows import distribution_chart, ratio_chart, throughput_bars
from steptime.document.number_format import UNKNOWN, Shown, count, drawn_interval, percent, scaled, time_unit
from steptime.document.section import (
    EVERYWHERE,
    Cell,
    Column,
    Figures,
    Layout,
    Medium,
    Part,
    Section,
    SectionTable,
    Sentences,
    TableRow,
    cells,
    mark_notes,
    short_marks,
)
from steptime.report.groups import RankedGroup, RankedRow, verdict
from steptime.report.trial_names import Names
from steptime.results.json_form import Interval, IntervalOverLaunches
from steptime.units import format_bytes

Quantiles = Mapping[str, Sequence[tuple[float, float]]]
"""By trial, what ``step_time_quantiles`` returned."""


NO_RESULT = "No trial has a result yet."


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


def ranking_section(groups: Sequence[RankedGroup], quantiles: Quantiles, marks: Marks) -> Section:
    """Return who is fastest in each group; ``quantiles`` and ``marks`` are for its figures.

    A page shows the last group open, which has the most workers: the first screen speaks of it.
    """
    found: list[Part] = [
        replace(_group_section(group, quantiles, marks), folded=group is not groups[-1]) for group in groups
    ]
    return Section("Rankings", found or [Sentences([NO_RESULT], "bad")], id="rankings", alike=True)


def _group_section(group: RankedGroup, quantiles: Quantiles, marks: Marks) -> Section:
    compared = len(group.rows) > 1
    columns = columns_of(group)
    parts_: list[Part] = [
        SectionTable(
            [column.column(group) for column in columns],
            [_table_row(group, row, columns) for row in group.rows],
            layouts=("wide", "plain", "stacked"),
            label=f"Ranking: {group.title}",
        ),
        *mark_notes([(row.name, row.trial.flags) for row in group.rows]),
        Figures(partial(group_figures, group, quantiles, marks)),
    ]
    if not compared:
        parts_.insert(0, Sentences([verdict(group)], "bold"))
    return Section(group.title, parts_, verdict=verdict(group) if compared else "")


def _table_row(group: RankedGroup, row: RankedRow, columns: Sequence[RankingColumn]) -> TableRow:
    return TableRow(
        row.name,
        [column.cell(group, row) for column in columns],
        group.rank(row),
        [f"{row.trial.framework} {row.trial.framework_version or 'of unknown version'}"],
        best=row.place.rank == 1,
    )


def group_figures(group: RankedGroup, quantiles: Quantiles, marks: Marks) -> list[Figure]:
    """Return throughput and slowdown vs the best, where there are several trials, and how step times spread."""
    rows = group.rows[:MOST_ROWS]
    some = f", fastest {len(rows)} of {len(group.rows)}" if len(rows) < len(group.rows) else ""
    figures = []
    if len(rows) > 1:  # a bar alone compares nothing
        bars = [_row(group, row, row.rate.line, row.trial.throughput_samples_per_s, marks) for row in rows]
        figures.append(picture(f"Throughput{some}", throughput_bars(bars), group.title))
        ratios = [_row(group, row, row.ratio.line, row.place.ratio_to_best, marks) for row in rows]
        figures.append(picture(f"Slowdown vs best{some}", ratio_chart(ratios), group.title))
    drawn = [row for row in rows if len(quantiles.get(row.trial.id, ())) > 1]
    for part in parts(drawn):
        which = f", ranks {part[0].place.rank} to {part[-1].place.rank}" if len(drawn) > MOST else ""
        figures.append(
            picture(f"How step times spread{which}", _distribution(group, part, drawn, quantiles, marks), group.title)
        )
    return figures


def _row(
    group: RankedGroup, row: RankedRow, shown: str, value: IntervalOverLaunches[float | None], marks: Marks
) -> Spec:
    # The best's ratio is 1 by definition: its interval has no length.
    best = value is row.place.ratio_to_best and row.place.rank == 1
    low, high = drawn_interval(value)
    return {
        "name": f"{group.rank(row)} {row.name}",
        "shown": shown,
        "value": value.value,
        "low": None if best else low,
        "high": None if best else high,
        "colour": marks.colour(row.name),
    }


def _distribution(
    group: RankedGroup, part: Sequence[RankedRow], drawn: Sequence[RankedRow], quantiles: Quantiles, marks: Marks
) -> Spec:
    seconds = [time for row in drawn for _, time in quantiles[row.trial.id]]
    factor, unit = time_unit(min(seconds))
    rows = [
        {"name": f"{group.rank(row)} {row.name}", "series": row.name, "time": time * factor, "share": share}
        for row in part
        for share, time in quantiles[row.trial.id]
    ]
    # All parts of a group have the same axis.
    return distribution_chart(rows, unit, (min(seconds) * factor, max(seconds) * factor), marks)


_EXPLANATION = (
    "FLOPs are the model's: 6 for each multiply-accumulate of the forward pass, attention counted, what is computed "
    "again not. MFU is their rate over the products of matrices that a worker's device or cores make at this "
    "precision, measured by steptime peak or promised by the data sheet; without either there is none."
)


def work_section(measured: Sequence[TrialSummary], names: Names) -> Section | None:
    """Return tokens, FLOP/s and MFU of trials; None if neither tokens nor a peak is known."""
    known = [(trial, trial.work) for trial in measured if trial.work]
    if not any(work.peak_source or work.tokens_per_s.value for _, work in known):
        return None
    columns = [Column("tokens/s"), Column("FLOP/s per device"), Column("MFU"), Column("peak", "prose")]
    rows = []
    for trial, work in known:
        rate = work.flop_per_s_per_device
        tokens = tokens_rate(work.tokens_per_s)
        mfu = percent(*astuple(work.mfu))
        peak = flop_rate(work.peak_flop_per_s)
        source = f"{peak.text}, {work.peak_source}" if work.peak_source else UNKNOWN
        shown = (tokens, flop_rate(rate), mfu)
        sentence = f"{names.full(trial)}: {shown[1].line} per device"
        sentence += f", MFU {mfu.line} of {source}" if work.peak_source else ""
        rows.append(TableRow(names.full(trial), [*cells(*shown), *cells(source)], sentence=sentence))
    return Section("Work", [SectionTable(columns, rows, "trial", label="Work")], _EXPLANATION, id="work")


_NEEDED = (
    "Memory of a worker is the most that its process had; of a host, the sum over its workers; of a device, the most "
    "that was in use while steps were timed. Joules are those that the devices' counters gave."
)


def resource_section(measured: Sequence[TrialSummary], names: Names) -> Section | None:
    """Return the memory and the energy that trials needed; None if no launch kept any."""
    known = [(trial, each) for trial in measured if (each := trial.resources) and each.worker_memory_bytes]
    if not known:
        return None
    columns = [Column("of a worker"), Column("of a host"), Column("of a device"), Column("J/sample")]
    rows = []
    for trial, each in known:
        memory = (each.worker_memory_bytes, each.host_memory_bytes, each.device_memory_bytes)
        shown = [UNKNOWN if value is None else format_bytes(value) for value in memory]
        joules = scaled(each.joules_per_sample, "J")
        sentence = f"{names.full(trial)}: {shown[0]} of memory in a worker, {shown[1]} in a host"
        sentence += f", {shown[2]} of a device" if each.device_memory_bytes is not None else ""
        sentence += f", {joules.line} per sample" if each.joules_per_sample.value is not None else ""
        rows.append(TableRow(names.full(trial), cells(*shown, joules), sentence=sentence))
    reasons = dict.fromkeys(each.not_read for _, each in known if each.not_read)
    unknown = f" Not known: {'; '.join(reasons)}." if reasons else ""
    table = SectionTable(columns, rows, "memory at its most", label="Memory and energy")
    return Section("Memory and energy", [table], _NEEDED + unknown, id="resources")


def flop_rate(rate: Interval[float | None] | IntervalOverLaunches[float | None]) -> Shown:
    """``9.61 GFLOP/s (9.50 to 9.72)``."""
    return scaled(Interval(rate.value, rate.low, rate.high), "FLOP/s")


def tokens_rate(rate: IntervalOverLaunches[float | None]) -> Shown:
    """``10.4k (9.9 to 10.9)``."""
    return scaled(Interval(rate.value, rate.low, rate.high), "")
