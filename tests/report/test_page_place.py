"""A page that cannot be written is named, and the report beside it does not claim that it is there."""

import pytest
from simulated import a_launch, a_store, a_trial
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
    assert "Page:" not in done.output
    assert "report.html" in done.output  # the command that writes one elsewhere


def test_a_page_that_was_written_is(results, tmp_path):
    done = CliRunner().invoke(app, ["report", str(results), "--html", str(tmp_path / "page.html")])
    assert f"Page: {tmp_path / 'page.html'}" in done.output
    assert (tmp_path / "page.html").is_file()
