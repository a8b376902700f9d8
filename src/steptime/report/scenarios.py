"""Steps with one thing changed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from steptime.analysis.summary_form import Summary
from steptime.diagnosis.form import Scenario
from steptime.document.number_format import UNKNOWN, seconds, times
from steptime.document.section import Cell, Column, Part, Section, SectionTable, TableRow
from steptime.report.trial_names import Names

_ABOUT_WHAT_IF = (
    "Simulated from the records of the breakdown: how many times as fast its mean step would be, with the interval of "
    "all phases, and how long it would take. Nothing but the change is otherwise; what it costs elsewhere is not in it."
)


def what_if_section(summary: Summary, scenarios: Sequence[Scenario], names: Names) -> Section | None:
    """Return what steps would take; None without a breakdown."""
    if not scenarios:
        return None
    trials = {trial.id: trial for trial in summary.trials}
    called = {each.trial: names.full(trials[each.trial]) for each in scenarios}
    parts: list[Part] = [
        Section(called[trial], [_scenario_table(list(own))], only="terminal")
        for trial, own in groupby(scenarios, key=lambda each: each.trial)
    ]
    return Section("What if", [*parts, _table_of_all(scenarios, called)], _ABOUT_WHAT_IF, id="what-if")


def _scenario_table(scenarios: Sequence[Scenario]) -> SectionTable:
    """Return the table of one trial: its own step, and that with each change."""
    rows = [TableRow("as it is", [Cell(UNKNOWN), Cell(_step_before(scenarios[0]))])]
    rows += [TableRow(each.change, [_speedup(each), Cell(_step(each))]) for each in scenarios]
    return SectionTable([Column("times as fast"), Column("step")], rows, "the step", ("wide",))


def _table_of_all(scenarios: Sequence[Scenario], called: Mapping[str, str]) -> SectionTable:
    """Return the page's table: a row for each trial, a column for each change."""
    changes = list(dict.fromkeys(each.change for each in scenarios))
    filled = {(each.trial, each.change): replace(_speedup(each), note=_step(each)) for each in scenarios}
    rows = [
        TableRow(called[trial], [Cell(step), *(filled.get((trial, change), Cell(UNKNOWN)) for change in changes)])
        for trial, step in {each.trial: _step_before(each) for each in scenarios}.items()
    ]
    return SectionTable(
        [Column("step"), *(Column(change) for change in changes)], rows, "trial", label="What if", only="page"
    )


def _speedup(each: Scenario) -> Cell:
    return Cell(*times(each.speedup.value, each.speedup.low, each.speedup.high))


def _step_before(each: Scenario) -> str:
    return seconds(each.step_s * each.speedup.value, None, None).text


def _step(each: Scenario) -> str:
    return seconds(each.step_s, None, None).text
