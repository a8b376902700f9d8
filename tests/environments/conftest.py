"""Environments of tiny packages, made without any download."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from bare_tool import HERE, BareTool, SpecMaker

from steptime.environments.kinds import CachedEnvironment
from steptime.environments.spec import EnvironmentSpec


@pytest.fixture
def spec_of(tmp_path: Path) -> SpecMaker:
    """Return a function that writes requirements on wheels of the test, and returns their spec."""

    def make(*lines: str, name: str = "tiny", **fields: object) -> EnvironmentSpec:
        folder = tmp_path / "frameworks" / name
        folder.mkdir(parents=True, exist_ok=True)
        requirements = folder / "requirements.txt"
        requirements.write_text("\n".join(["--no-index", f"--find-links {tmp_path / 'wheels'}", *lines]) + "\n")
        return EnvironmentSpec(**{"name": name, "requirements": requirements, "pythons": [HERE], **fields})

    return make


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache folder that does not exist yet."""
    return tmp_path / "cache"


@pytest.fixture
def bare() -> CachedEnvironment:
    """The quick kind."""
    return CachedEnvironment(BareTool())
