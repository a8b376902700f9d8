"""A study with `loader_alone`, from the command to the verdict."""

import json
from pathlib import Path

import pytest
from program import DIGITS_STUDY, steptime, write_study


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small study of the reference on digits, with its loader alone."""
    folder = tmp_path_factory.mktemp("loaders")
    alone = "launches: {min: 1, max: 1}\nseconds_per_launch: 0.2s\nloader_alone: {launches: 2, seconds: 0.2s}\n"
    study = write_study(folder, f"{DIGITS_STUDY}loaders: [synthetic, native]\nbatch_per_worker: 8\n{alone}")
    steptime("run", study, "-o", "results", cwd=folder)
    return folder / "results"


def test_every_trial_that_reads_data_has_its_launches_of_the_loader_alone(results: Path) -> None:
    counts = {path.parent.name: len(path.read_text().splitlines()) for path in results.glob("trials/*/loader.jsonl")}

    assert list(counts.values()) == [2]


def test_the_report_has_a_verdict(results: Path) -> None:
    report = json.loads(steptime("report", "--json", str(results), cwd=results).stdout)

    (verdict,) = report["loaders"]
    (row,) = verdict["rows"]
    assert row["loader"] == "native"
    assert row["limit"] in {"training", "undecided"}  # so few short launches may not tell on a busy machine


@pytest.mark.costly
def test_the_verdict_is_on_the_page_and_in_the_terminal(results: Path) -> None:
    page = (results / "report.html").read_text()
    shown = steptime("report", "--all", str(results), cwd=results).stdout

    assert "Loader or training: who limits" in page
    assert "Loader or training: who limits" in shown
