"""The table of exports: one row makes a format, in every verb that writes it, its help and its mistakes."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from steptime.cli.app import app
from steptime.report import export_formats
from steptime.report.export_formats import (
    EXPORTS,
    ComparisonFormat,
    FileFormat,
    ReportFormat,
    SectionFormat,
    TrackerFormat,
    format_help,
    formats_of,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "results"))
from simulated import a_launch, a_store, a_trial

VERBS = {
    ReportFormat: ("report", "--format"),
    SectionFormat: ("predict", "--format"),
    ComparisonFormat: ("compare", "--format"),
    FileFormat: ("export", "--to"),
    TrackerFormat: ("report", "--to"),
}
KINDS = list(VERBS)
ROWS = [pytest.param(row, id=f"{type(row).__name__} {row.name}") for row in EXPORTS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a results folder of two trials."""
    path = tmp_path_factory.mktemp("exports") / "results"
    store = a_store(path)
    for batch in (8, 16):
        trial = a_trial(batch_per_worker=batch)
        store.add_trial(trial)
        for number in range(3):
            store.append(a_launch(trial, number, [0.1, 0.11, 0.1, 0.12] * 5))
    return path


def ask(*words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "300"})


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_help_of_a_verb_lists_the_rows_of_its_kind(kind):
    verb, _ = VERBS[kind]
    text = " ".join(ask(verb, "--help").output.replace("│", " ").split())
    assert format_help(kind) in text


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_unknown_format_is_answered_with_all_of_its_kind(kind, folder):
    verb, option = VERBS[kind]
    result = ask(verb, folder, *([folder] if verb == "compare" else []), option, "papyrus")
    said = str(result.exception)
    assert all(name in said for name in formats_of(kind))


@pytest.mark.parametrize("row", ROWS)
def test_every_row_is_found_by_its_kind_and_name(row):
    assert formats_of(type(row))[row.name] is row


@pytest.mark.parametrize("row", [row for row in EXPORTS if isinstance(row, FileFormat)], ids=lambda row: row.name)
def test_a_row_of_files_writes_below_the_folder_that_is_named(row, folder, tmp_path):
    result = ask("export", folder, "--to", row.name, "-o", tmp_path)
    if result.exit_code == 0:
        paths = [Path(line) for line in result.stdout.split()]
        assert paths
        assert all(path.is_file() and path.is_relative_to(tmp_path / row.below) for path in paths)
    else:
        assert "has no" in str(result.exception) or "no " in str(result.exception)


@pytest.mark.parametrize("row", [row for row in EXPORTS if isinstance(row, FileFormat)], ids=lambda row: row.name)
def test_what_a_row_does_not_take_is_refused_with_the_rows_that_do(row, folder, tmp_path):
    several = ask("export", folder, folder, "--to", row.name, "-o", tmp_path)
    able = " or ".join(f"--to {name}" for name, each in formats_of(FileFormat).items() if each.several)
    assert row.several or f"2 results folders need {able}" in str(several.exception)
    chosen = ask("export", folder, "--to", row.name, "--trial", "one", "-o", tmp_path)
    assert row.of_trial or "--trial one needs --to chrome" in str(chosen.exception)


def test_a_further_row_is_a_format_of_its_verb(folder, tmp_path, monkeypatch):
    def write(stores, target, _):
        target.mkdir()
        (target / "count").write_text(str(len(list(stores[0].trials()))))
        return [target / "count"]

    rows = (*EXPORTS, FileFormat("count", "how many trials", write=write, below="counted"))
    monkeypatch.setattr(export_formats, "EXPORTS", (*rows, ReportFormat("name", "", lambda each: each.summary.study)))
    assert ask("export", folder, "--to", "count", "-o", tmp_path).exit_code == 0
    assert (tmp_path / "counted" / "count").read_text() == "2"
    assert ask("report", folder, "--format", "name").stdout.strip() == "tried"
    assert "count: how many trials" in format_help(FileFormat)
