"""Real datasets, made once per session, and folders of images like a user's."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from image_folders import write_folder

from steptime.datasets.builtins import PYTHONS, REQUIREMENTS, VERIFY
from steptime.datasets.creation import make
from steptime.datasets.dataset import Dataset
from steptime.environments.kinds import EnvironmentSpec, create
from steptime.errors import EnvironmentFailure


@pytest.fixture(scope="session")
def interpreter() -> Path:
    """The Python that makes datasets, in the user's cache; takes a download the first time."""
    spec = EnvironmentSpec("data", REQUIREMENTS, PYTHONS, VERIFY)
    try:
        return create(spec).interpreter
    except EnvironmentFailure as failure:
        pytest.skip(f"the packages that the datasets are made from cannot be installed here: {failure}")


@pytest.fixture(scope="session")
def digits(interpreter: Path, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The digits, made."""
    return make("digits", tmp_path_factory.mktemp("made") / "digits", interpreter)


@pytest.fixture(scope="session")
def text(interpreter: Path, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The text, made."""
    return make("text", tmp_path_factory.mktemp("made") / "text", interpreter)


@pytest.fixture(scope="session")
def photos(interpreter: Path, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A few of the photographs, made."""
    return make("photos", tmp_path_factory.mktemp("made") / "photos", interpreter, count=40)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache folder that does not exist yet."""
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder of two classes of three images."""
    return write_folder(tmp_path / "mine")
