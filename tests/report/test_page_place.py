"""A page that cannot be written is named, and the report beside it does not claim that it is there."""

import shutil

import pytest
from simulated import a_launch, a_store, a_trial
from stored_processes import a_run
from typer.testing import CliRunner

from steptime.cli.app import app
from steptime.errors import StoreError


@pytest.fixture
def results(tmp_path):
    store = a_store(tmp_path / "r")
    store.add_trial(a_trial())
    for number in range(2):
        store.append(a_launch(a_trial(), number, times=[0.1, 0.11, 0.1]))
    return store.path


@pytest.mark.parametrize("place", ["a file/page.html", "/proc/page.html", "a folder"])
def test_a_page_that_cannot_be_written_is_not_announced(results, tmp_path, place):
    (tmp_path / "a file").touch()
    (tmp_path / "a folder").mkdir()
    done = CliRunner().invoke(app, ["report", str(results), "--html", str(tmp_path / place)])
    assert isinstance(done.exception, StoreError)
    assert str(tmp_path / place).removesuffix("file/page.html") in str(done.exception)
    assert "samples/s" in done.output
    assert not [line for line in done.output.splitlines() if line.startswith(("Page:", "report:"))]
    assert "report.html" in done.output  # the command that writes one elsewhere


@pytest.mark.parametrize("form", [[], ["--all"], ["--json"], ["--format", "markdown"], ["--what-if"]])
@pytest.mark.parametrize("folders", [["r"], ["r", "other"], ["attached"]], ids="-".join)
def test_a_page_that_was_written_is_named_once_and_on_standard_error(results, tmp_path, folders, form):
    shutil.copytree(results, tmp_path / "other")
    a_run(tmp_path / "attached", 0, 0.0)
    page = tmp_path / "new folder" / "page.html"
    if len(folders) > 1 and form == ["--what-if"]:
        pytest.skip("of one folder")
    done = CliRunner().invoke(app, ["report", *(str(tmp_path / each) for each in folders), "--html", str(page), *form])
    assert page.is_file()
    assert done.stderr.count(f"report: {page}\n") == 1
    assert f"Page: {page}" not in done.stdout
