"""Interpreters of every Python that a framework may need."""

from pathlib import Path

import pytest
from standin import find_interpreter

from steptime.environments.spec import how_to_get

VERSIONS = ("3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13")


@pytest.fixture(scope="session", params=VERSIONS)
def python(request: pytest.FixtureRequest) -> Path:
    """An interpreter of each version, without regard to what is installed in it; skips what this machine lacks."""
    found = find_interpreter(request.param)
    if found is None:
        pytest.skip(f"missing Python {request.param}: {how_to_get(request.param, [])[0]}")
    return found
