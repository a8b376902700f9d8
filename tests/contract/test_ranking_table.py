"""The table of a ranking's columns: one row makes a column of every view, and every figure of a trial is exported."""

import csv
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from steptime.analysis.summary import summarise
from steptime.cli.app import app
from steptime.document.section import Cell
from steptime.exports.export import trials_table
from steptime.report.groups import ranked_groups
from steptime.report.ranking import RANKING_COLUMNS, SHORT_LAYOUTS, RankingColumn, ShortColumn, columns_of
from steptime.report.trial_names import Names
from steptime.results.store import Store

sys.path.insert(0, str(Path(__file__).parents[1] / "results"))
from simulated import a_launch, a_store, a_trial

VIEWS = ([], ["--all"], ["--format", "markdown"], ["--format", "csv"], ["--format", "latex"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a results folder of two trials that are ranked against each other."""
    path = tmp_path_factory.mktemp("ranking") / "results"
    store = a_store(path)
    for framework, seconds in (("pytorch", 0.1), ("chainer", 0.13)):
        trial = a_trial(framework=framework)
        store.add_trial(trial)
        for number in range(3):
            store.append(a_launch(trial, number, [seconds, 1.1 * seconds] * 10))
    return path


def ask(*words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"}).output


@pytest.mark.parametrize("view", VIEWS, ids=" ".join)
@pytest.mark.parametrize("place", [0, len(RANKING_COLUMNS)], ids=["first", "last"])
def test_a_row_is_a_column_of_every_view(folder, view, place, monkeypatch):
    row = RankingColumn("letters", lambda _, row: Cell(f"{len(row.name)} letters"), ShortColumn("letters"))
    columns = (*RANKING_COLUMNS[:place], row, *RANKING_COLUMNS[place:])
    before = ask("report", folder, *view)
    monkeypatch.setattr("steptime.report.ranking.RANKING_COLUMNS", columns)
    after = ask("report", folder, *view)
    assert "14 letters" not in before
    assert all(f"{len(name)} letters" in after for name in ("pytorch single", "chainer single"))


def test_the_cells_of_a_row_are_below_their_titles_wherever_a_column_is_left_out(folder):
    summary = summarise(Store.open(folder))
    (group,) = ranked_groups(summary, Names(summary.trials))
    shown = csv.DictReader(ask("report", folder, "--format", "csv").splitlines())
    cells = {(line["row"], line["column"]): line["value"] for line in shown if line["section"] == "Rankings"}
    for column in columns_of(group):
        for row in group.rows:
            title = column.column(group).title.replace("\n", " ")
            assert cells.get((row.name, title), "") == column.cell(group, row).text


def test_the_narrowest_short_report_has_a_column():
    assert all(any(layout in row.short.layouts for row in RANKING_COLUMNS if row.short) for layout in SHORT_LAYOUTS)


def test_every_figure_with_an_interval_is_exported(folder):
    summary = summarise(Store.open(folder))
    figures = [
        name
        for name, value in summary.model_dump(mode="json")["trials"][0].items()
        if isinstance(value, dict) and {"low", "high"} <= value.keys()
    ]
    assert {"step_time_s", "loss_rate_per_s"} <= set(figures)
    assert {f"{name}_{bound}" for name in figures for bound in ("low", "high")} <= set(trials_table(summary).columns)
