"""One measured study that many tests look at."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from program import steptime, write_study


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the small study was run into ``results``."""
    folder = tmp_path_factory.mktemp("measured")
    steptime("run", write_study(folder), "-o", "results", cwd=folder)
    return folder
