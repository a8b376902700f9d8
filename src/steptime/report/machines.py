"""The report of results folders of several machines: one table a group, with the machine as a column.

Each machine is ranked by itself: ratios and ties are those of its own folder, since times of two machines do not
compare.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from steptime.analysis.machines import MachineFolder
from steptime.analysis.summary_form import Summary
from steptime.attached.form import AttachedRun
from steptime.document.number_format import UNKNOWN, count, seconds
from steptime.document.section import Cell, Column, Pairs, Section, SectionTable, Sentences, TableRow, cells
from steptime.report.attached import headline
from steptime.report.conditions import machine_in_a_line
from steptime.report.groups import clause, ranked_groups
from steptime.report.trial_names import Names
from steptime.report.unranked import unranked_in_words

_RANKED = "Ranks and slowdowns are within each machine: times of two machines do not compare."
_COLUMNS = (
    Column("machine", "text"),
    Column("samples/s"),
    Column("step time"),
    Column("slowdown vs best\nof the machine"),
)
_OF_RUNS = (Column("machine", "text"), Column("ranks"), Column("steps"), Column("step time"))


@dataclass(frozen=True)
class ReportedFolder:
    """A results folder of one of several machines."""

    folder: MachineFolder
    summary: Summary
    attached: AttachedRun | None


def machine_sections(folders: Sequence[ReportedFolder]) -> list[Section]:
    """Return the sections of a report of several machines, those of attached runs where the folders hold such."""
    parts = [_machines(folders)]
    if runs := [(reported, reported.attached) for reported in folders if reported.attached is not None]:
        parts.append(_run_section(runs))
    tables, verdicts = _tables(folders)
    if tables:
        parts.append(Section("Rankings", tables, _RANKED, id="rankings", alike=True))
        parts.append(Section("Fastest", [Sentences(verdicts, listed=True)]))
    if lacking := [f"{_name(reported)}: {line}" for reported in folders for line in _unranked(reported)]:
        parts.append(Section("Without a rank", [Sentences(lacking, "bad", listed=True)]))
    return parts


def machines_in_a_line(folders: Sequence[ReportedFolder]) -> str:
    """``2 machines, 3 results folders``."""
    machines = {reported.folder.machine for reported in folders}
    return f"{count(len(machines), 'machine')}, {count(len(folders), 'results folder')}"


def _name(reported: ReportedFolder) -> str:
    return f"{reported.folder.machine} ({reported.folder.store.path})"


def _machines(folders: Sequence[ReportedFolder]) -> Section:
    pairs = [
        (
            _name(reported),
            f"{machine_in_a_line(reported.folder.facts) or 'not recorded'}; steptime {reported.folder.version}",
        )
        for reported in folders
    ]
    return Section("Machines", [Pairs(pairs)])


def _unranked(reported: ReportedFolder) -> Iterator[str]:
    if reported.attached is None:
        yield from unranked_in_words(reported.summary, Names(reported.summary.trials))
        if not reported.summary.trials:
            yield "it has no trials"


def _tables(folders: Sequence[ReportedFolder]) -> tuple[list[SectionTable | Section], list[str]]:
    """Return a table of each group that any machine ranked, and who is fastest on each machine."""
    rows: dict[str, list[TableRow]] = {}
    verdicts = []
    alone = len({reported.folder.machine for reported in folders}) == len(folders)
    for reported in folders:
        place = reported.folder.machine if alone else _name(reported)
        for group in ranked_groups(reported.summary, Names(reported.summary.trials)):
            rows.setdefault(group.title, []).extend(
                TableRow(
                    row.name,
                    [Cell(place), *cells(row.rate, row.time, row.ratio)],
                    group.rank(row),
                    best=row.place.rank == 1,
                )
                for row in group.rows
            )
            verdicts.append(f"{place}, {group.title}: {clause(group)}.")
    tables: list[SectionTable | Section] = [
        Section(title, [SectionTable(_COLUMNS, own, layouts=("wide", "plain", "stacked"), label=f"Ranking: {title}")])
        for title, own in rows.items()
    ]
    return tables, verdicts


def _run_section(runs: Sequence[tuple[ReportedFolder, AttachedRun]]) -> Section:
    rows = []
    for reported, run in runs:
        step = seconds(run.step_s.value, run.step_s.low, run.step_s.high)
        shown = cells(reported.folder.machine, str(run.world or UNKNOWN), f"{run.steps:,}", step)
        rows.append(TableRow(str(reported.folder.store.path), shown))
    table = SectionTable(_OF_RUNS, rows, "folder", layouts=("wide", "stacked"), label="Attached runs")
    sentences = [f"{_name(reported)}: {run.not_attached or headline(run)}" for reported, run in runs]
    return Section("Own scripts", [table, Sentences(sentences, listed=True)])
