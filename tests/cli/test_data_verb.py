"""``steptime data make``: what it refuses, with all mistakes at once."""

import pytest
from typer.testing import CliRunner

from steptime.catalog.choices import LOADERS
from steptime.cli.app import app
from steptime.cli.data import FORMS
from steptime.datasets.stored_forms import STORED_FORMS
from steptime.errors import UsageError


def refusal(*arguments: str) -> str:
    """Return what is said about wrong arguments."""
    result = CliRunner().invoke(app, ["data", "make", *arguments])
    assert isinstance(result.exception, UsageError), result.output
    return str(result.exception)


@pytest.mark.parametrize("size", ["500", "500x", "x375", "500x375x3", "big"])
def test_a_size_is_a_width_and_a_height(size):
    assert f"{size!r} is not a size; write width and height in pixels" in refusal("photos", "mine", "--size", size)


def test_options_of_the_folder_need_one():
    assert "--images, --size and --to need a folder" in refusal("photos", "--images", "50")


def test_an_unknown_form_is_answered_with_the_forms():
    assert "choices: cached, folder, recordio, tfrecord, webdataset" in refusal("photos", "mine", "--to", "zip")


def test_a_folder_takes_one_dataset():
    assert "mine takes one dataset; 2 are named" in refusal("photos", "digits", "mine")


def test_all_mistakes_are_said_at_once():
    text = refusal("photo", "mine", "--size", "big", "--to", "zip")
    assert all(mistake in text for mistake in ("did you mean 'photos'", "is not a size", "zip"))


def test_the_forms_are_a_folder_and_those_of_the_loaders_that_read_a_stored_form():
    assert {"folder", *(name for name, loader in LOADERS.items() if loader.form in STORED_FORMS)} == set(FORMS)
