"""A file that a user names for output stays as it is where it is something else, and is called what it is."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from steptime import user_output
from steptime.cli.app import app
from steptime.cli.demo import unpack
from steptime.cli.reported_results import read_report
from steptime.errors import StoreError
from steptime.report.figure_files import write_figures
from steptime.user_output import FIGURES, PAGE, PROFILE, RUN_RECORD, STUDY, FileKind, kind_of, require_free

KINDS = [each for each in vars(user_output).values() if isinstance(each, FileKind) and each not in (STUDY, RUN_RECORD)]
KINDS += FIGURES.values()
STUDY_TEXT = "# mine\nquestion: Is it faster?\nworkloads: lenet5\nframeworks: pytorch\nworkers: [1, 2]\n"
FOREIGN = {
    "study": STUDY_TEXT,
    "page": "<!doctype html>\n<html><head><title>My page</title></head></html>\n",
    "JSON": '{"schema": 1, "mine": true}\n',
    "CSV": "day,weight\n1,2\n",
    "binary": "\x7fELF\x02",
}


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Return the recorded results of the demo."""
    return unpack(tmp_path_factory.mktemp("demo"))


def ask(*words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})


WRITERS = {
    "profile": lambda results, path: ["fit", results, "-o", path],
    "page of a report": lambda results, path: ["report", results, "--html", path],
    "page of predictions": lambda results, path: [
        *("predict", results.with_name("four-frameworks.profile.json"), "--workers", "2", "--html", path)
    ],
    "JUnit": lambda results, path: ["compare", results, results, "--junit", path],
}


@pytest.mark.parametrize("foreign", FOREIGN)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_no_kind_takes_the_place_of_another(kind, foreign, tmp_path):
    path = tmp_path / f"named{kind.endings[0] if kind.endings else ''}"
    path.write_text(FOREIGN[foreign])
    with pytest.raises(StoreError, match=f"{path} is .*replaces no other file: name another"):
        require_free(path, kind)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_verb_keeps_a_file_of_another_kind_and_offers_a_name(writer, demo, tmp_path):
    path = tmp_path / "named.yaml"
    path.write_text(STUDY_TEXT)
    result = ask(*WRITERS[writer](demo, path))
    assert isinstance(result.exception, StoreError)
    assert path.read_text() == STUDY_TEXT
    assert f"{path} is a study, not a" in str(result.exception)
    offered = Path(str(result.exception).partition("such as ")[2].partition(",")[0])
    assert offered.parent == tmp_path
    assert not offered.exists()


@pytest.mark.parametrize("writer", WRITERS)
def test_an_older_output_of_the_same_kind_and_an_empty_file_are_replaced(writer, demo, tmp_path):
    path = tmp_path / "named"
    path.touch()
    for _ in range(2):
        result = ask(*WRITERS[writer](demo, path))
        assert result.exit_code == 0, result.output
        assert path.stat().st_size > 100


@pytest.mark.parametrize("form", ["csv", "parquet", "chrome", "talp", "otava", "extrap"])
def test_an_export_replaces_its_own_files_and_no_others(form, demo, tmp_path):
    words = ["export", demo, "--to", form, "-o", tmp_path]
    assert ask(*words).exit_code == 0
    again = ask(*words)
    assert again.exit_code == 0, again.output
    for path in {Path(each).suffix: Path(each) for each in again.stdout.split()}.values():
        whole = path.read_bytes()
        path.write_text("what I noted\n")
        refused = ask(*words)
        assert isinstance(refused.exception, StoreError), path
        assert path.read_text() == "what I noted\n"
        path.write_bytes(whole)


def test_figures_replace_their_own_files_and_no_others(demo, tmp_path):
    found = read_report(demo)
    # One section with figures: of all that a report draws, converting them takes a minute.
    section = next(each for each in found.sections if write_figures(found.summary, [each], tmp_path))
    first = {path: path.read_bytes() for path in write_figures(found.summary, [section], tmp_path)}
    files = {each.suffix: each for each in first}
    assert set(files) == {".svg", ".png", ".pdf", ".txt"}
    for path in files.values():
        path.write_text("what I noted\n")
        for other in set(first) - {path}:
            other.write_bytes(b"")
        with pytest.raises(StoreError, match=re.escape(str(path))):
            write_figures(found.summary, [section], tmp_path)
        assert path.read_text() == "what I noted\n"
        assert not any(other.stat().st_size for other in set(first) - {path}), "replaced before the other was refused"
        path.write_bytes(first[path])


@pytest.mark.parametrize("words", [["fit", "-o"], ["report", "--html"]], ids=" ".join)
def test_a_folder_in_place_of_a_file_gets_a_name_in_it(words, demo, tmp_path):
    result = ask(words[0], demo, words[1], tmp_path)
    assert f"name one, such as {tmp_path}/steptime" in str(result.exception)
    assert "emove" not in str(result.exception)


@pytest.mark.parametrize(
    "words", [["demo", "-o"], ["export", "{}", "-o"], ["report", "{}", "--figures"]], ids=lambda words: words[0]
)
def test_a_file_in_place_of_a_folder_is_named(words, demo, tmp_path):
    path = tmp_path / "taken"
    path.write_text("mine")
    result = ask(*(each.format(demo) for each in words), path)
    assert f"{path} is a file, and a folder is needed: name another" in str(result.exception)
    assert path.read_text() == "mine"


def test_files_are_known_by_what_they_hold(demo, tmp_path):
    page = tmp_path / "page.html"
    assert ask("report", demo, "--html", page).exit_code == 0
    assert kind_of(page) is PAGE
    assert kind_of(demo / "study.yaml") is STUDY
    assert kind_of(demo / "study.json") is RUN_RECORD
    assert kind_of(demo.with_name("four-frameworks.profile.json")) is PROFILE
    assert kind_of(demo / "machine.json") is None
    require_free(tmp_path / "not there", PAGE)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["predict", "{mine}"], "{mine} is a study, not a profile: run it (steptime run {mine}), then steptime fit"),
        (["predict", "{demo}/study.yaml"], "is a study, not a profile: steptime fit {demo} -o NAME.json"),
        (["predict", "{demo}/study.json"], "is the record of a run, not a profile: steptime fit {demo} -o NAME.json"),
        (["report", "{mine}"], "{mine} is a study, not a results folder: run it (steptime run {mine})"),
        (["report", "{demo}/study.yaml"], "is a study, not a results folder: name its folder, {demo}"),
        (["fit", "{demo}/study.json"], "is the record of a run, not a results folder: name its folder, {demo}"),
        (["fit", "{demo}.profile.json"], "is a profile, not a results folder: it predicts: steptime predict {demo}"),
        (["run", "{demo}/study.json", "--dry-run"], "the record of a run, not a study; its study is beside it: {demo}"),
        (["run", "{demo}.profile.json", "--dry-run"], "{demo}.profile.json is a profile, not a study"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_a_file_that_was_taken_for_another_is_called_what_it_is(words, said, demo, tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text(STUDY_TEXT)
    result = ask(*(each.format(demo=demo, mine=mine) for each in words))
    assert said.format(demo=demo, mine=mine) in str(result.exception)
    assert f"-o {mine}" not in str(result.exception)
    assert mine.read_text() == STUDY_TEXT


@pytest.mark.parametrize("verb", ["fit", "report", "export"])
def test_no_results_are_answered_with_those_that_are_here_or_what_makes_some(verb, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "make one: steptime run STUDY" in str(ask(verb, "zzz").exception)
    assert "make one: steptime run STUDY" in str(ask(verb, ".").exception)
    kept = tmp_path / "steptime-results" / "first"
    kept.mkdir(parents=True)
    (kept / "study.json").write_text("{}")
    assert "here is steptime-results/first" in str(ask(verb, "zzz").exception)
    assert "can be named: steptime-results/first" in str(ask(verb, ".").exception)
