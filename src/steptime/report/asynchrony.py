"""Groups in which updates could be stale: what the trials learned per second, and what they processed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from steptime.measurements.asynchrony import reached_shares
from steptime.report.charts.chart import Figure, Spec, picture
from steptime.report.charts.marks import Marks, parts
from steptime.report.charts.staleness import staleness_chart
from steptime.report.groups import RankedGroup, RankedRow
from steptime.report.number_format import UNKNOWN, Shown, loss_rate, staleness
from steptime.report.section import Column, Figures, Section, SectionTable, TableRow, cells

EXPLANATION = (
    "Asynchronous updates are made from weights that others have changed meanwhile, so samples per second alone say "
    "too much. The loss rate is by how much the loss sank per second, from one batch per worker at either end; "
    "staleness is how many updates of other workers came in between."
)


@dataclass(frozen=True)
class LearningRow:
    """One trial's throughput, loss rate and staleness."""

    row: RankedRow
    rate: Shown
    loss_rate: Shown
    staleness: Shown
    spread: str
    """Median, 95th percentile and largest staleness; a dash where nothing can be stale."""

    @property
    def line(self) -> str:
        """All of it in one sentence."""
        stale = f"staleness {self.staleness.line}, {self.spread}" if self.row.trial.staleness else "never stale"
        return f"{self.row.name}: {self.rate.line} samples/s, loss rate {self.loss_rate.line} loss/s, {stale}"


@dataclass(frozen=True)
class LearningGroup:
    """A group with at least one trial whose updates could be stale; ordered by loss rate, best first."""

    title: str
    rows: list[LearningRow]


def learning_section(groups: list[RankedGroup], marks: Marks) -> Section | None:
    """Return what trials of groups with stale updates learned per second; None if no update could be stale."""
    columns = [
        Column("loss rate (loss/s)"),
        Column("samples/s"),
        Column("mean staleness"),
        Column("its distribution", "text"),
    ]
    found = [
        Section(
            group.title,
            [
                SectionTable(columns, [_row(row) for row in group.rows], label=f"Loss rate: {group.title}"),
                Figures(partial(staleness_figures, group, marks)),
            ],
        )
        for group in learning_groups(groups)
    ]
    return Section("Stale updates", found, EXPLANATION, id="learning") if found else None


def _row(row: LearningRow) -> TableRow:
    return TableRow(row.row.name, cells(row.loss_rate, row.rate, row.staleness, row.spread), sentence=row.line)


def learning_groups(groups: list[RankedGroup]) -> list[LearningGroup]:
    """Return the groups that hold an asynchronous trial, in their order."""
    return [
        LearningGroup(group.title, sorted(map(_learning, group.rows), key=_loss_rate, reverse=True))
        for group in groups
        if any(row.trial.staleness for row in group.rows)
    ]


def _learning(row: RankedRow) -> LearningRow:
    found = row.trial.staleness
    spread = f"median {found.median}, 95 % at most {found.p95}, largest {found.max}" if found else UNKNOWN
    return LearningRow(row, row.rate, loss_rate(row.trial.loss_rate_per_s), staleness(found), spread)


def _loss_rate(row: LearningRow) -> float:
    value = row.row.trial.loss_rate_per_s.value
    return float("-inf") if value is None else value


def staleness_figures(group: LearningGroup, marks: Marks) -> list[Figure]:
    """Return how stale the updates of a group's asynchronous trials were."""
    stale = [row.row for row in group.rows if row.row.trial.staleness]
    return [
        picture("How stale updates were", staleness_chart(list(_staleness_rows(part)), marks), group.title)
        for part in parts(stale)
    ]


def _staleness_rows(rows: Sequence[RankedRow]) -> Iterator[Spec]:
    for row in rows:
        for late, share in reached_shares(row.trial.staleness.updates if row.trial.staleness else {}):
            yield {"name": row.name, "late": late, "share": share}
