"""What asynchronous trials learned per second, as a section."""

from collections.abc import Iterator, Sequence
from functools import partial

from steptime.analysis.staleness import reached_shares
from steptime.document.charts.chart import Figure, Marks, Spec, parts, picture
from steptime.document.charts.rows import staleness_chart
from steptime.document.number_format import (
    UNKNOWN,
    rate,
    samples_per_s,
    staleness,
)
from steptime.document.section import (
    Column,
    Figures,
    Section,
    SectionTable,
    TableRow,
    cells,
)
from steptime.report.groups import RankedGroup, RankedRow

_OF_LEARNING = (
    "Asynchronous updates are made from weights that others have changed meanwhile, so samples per second alone say "
    "too much. The loss rate is by how much the loss sank per second, from one batch per worker at either end; "
    "staleness is how many updates of other workers came in between."
)


_COLUMNS_OF_LEARNING = (
    Column("loss rate (loss/s)"),
    Column("samples/s"),
    Column("mean staleness"),
    Column("its distribution", "text"),
)


def learning_section(groups: list[RankedGroup], marks: Marks) -> Section | None:
    """Return what trials learned per second in groups with stale updates, most first; None if there is no group."""
    found = []
    for group in groups:
        if any(row.trial.staleness for row in group.rows):
            rows = sorted(group.rows, key=_loss_rate, reverse=True)
            table = SectionTable(
                _COLUMNS_OF_LEARNING, [_learning_row(row) for row in rows], label=f"Loss rate: {group.title}"
            )
            figures = Figures(partial(staleness_figures, group.title, rows, marks))
            found.append(Section(group.title, [table, figures]))
    return Section("Stale updates", found, _OF_LEARNING, id="learning") if found else None


def _learning_row(row: RankedRow) -> TableRow:
    found = row.trial.staleness
    lost, late = rate(row.trial.loss_rate_per_s), staleness(found)
    spread = f"median {found.median}, 95 % at most {found.p95}, largest {found.max}" if found else UNKNOWN
    stale = f"staleness {late.line}, {spread}" if found else "never stale"
    sentence = f"{row.name}: {samples_per_s(row.trial.throughput_samples_per_s)}, loss rate {lost.line} loss/s, {stale}"
    return TableRow(row.name, cells(lost, row.rate, late, spread), sentence=sentence)


def _loss_rate(row: RankedRow) -> float:
    value = row.trial.loss_rate_per_s.value
    return float("-inf") if value is None else value


def staleness_figures(title: str, rows: Sequence[RankedRow], marks: Marks) -> list[Figure]:
    """Return how stale the updates of a group's asynchronous trials were."""
    stale = [row for row in rows if row.trial.staleness]
    return [
        picture("How stale updates were", staleness_chart(list(_staleness_rows(part)), marks), title)
        for part in parts(stale)
    ]


def _staleness_rows(rows: Sequence[RankedRow]) -> Iterator[Spec]:
    for row in rows:
        for late, share in reached_shares(row.trial.staleness.updates if row.trial.staleness else {}):
            yield {"name": row.name, "late": late, "share": share}
