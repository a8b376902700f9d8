"""No bad input of the corpus ends a verb in a traceback, in an undocumented exit code, or without its name told."""

from pathlib import Path

import pytest
from bad_input import Case, cases, prepare, unpack

from steptime.cli.app import run_program

CASES = list(cases())
ALL_REFUSED = 3
"""Of ``predict``, which prints each refusal as a result."""
STORED = Path(__file__).parents[1] / "data" / "stored" / "two-hosts.tar.xz"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole results folder."""
    folder = tmp_path_factory.mktemp("stored")
    unpack(STORED, folder)
    return next(folder.rglob("study.json")).parent


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty current folder, an empty cache and a wide terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEPTIME_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "1000")


@pytest.fixture(scope="module")
def profile(results: Path) -> Path:
    """The profile of that folder."""
    path = results.parent / "whole.profile.json"
    assert run_program(["fit", str(results), "-o", str(path)]) == 0
    return path


@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_bad_input_is_answered_in_words(case: Case, results, profile, capsys):
    prepare(case, Path.cwd(), results, profile)

    code = run_program(case.arguments)

    said = capsys.readouterr()
    assert code in case.codes, said.err or said.out
    if code:
        answer = said.out if code == ALL_REFUSED and case.arguments[0] == "predict" else said.err
        assert answer.strip()
        assert [word for word in case.words if word not in answer] == []


def test_the_corpus_has_at_least_500_cases_over_every_verb():
    verbs = {case.arguments[0] for case in CASES if case.arguments}
    assert len(CASES) >= 500
    assert verbs >= {"run", "status", "report", "export", "net", "fit", "predict", "evidence", "check", "list", "env"}
    assert verbs >= {"data", "frameworks", "doctor"}
