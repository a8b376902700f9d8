"""What holds for every kind of environment; a new one is tested by being listed in the table."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bare_tool import SpecMaker, write_wheel

from steptime.environments.kinds import KINDS, create, find_ready
from steptime.environments.spec import ReadyEnvironment
from steptime.environments.tools import find_uv


@pytest.fixture(params=sorted(KINDS))
def ready(request: pytest.FixtureRequest, spec_of: SpecMaker, cache: Path, tmp_path: Path) -> ReadyEnvironment:
    """An environment of each kind."""
    if request.param == "uv" and find_uv() is None:
        pytest.skip("missing uv: pip install uv")
    write_wheel(tmp_path / "wheels", "tiny_one")
    spec = spec_of("tiny_one", kind=request.param, interpreter=Path(sys.executable))
    made = create(spec, cache=cache)

    assert find_ready(spec, cache) == made
    return made


def test_the_interpreter_is_what_the_environment_says_that_it_is(ready: ReadyEnvironment) -> None:
    question = "import json, platform, sys; print(json.dumps([platform.python_version(), sys.executable]))"

    said = subprocess.run([ready.interpreter, "-I", "-c", question], capture_output=True, check=True).stdout

    assert json.loads(said) == [ready.python_version, str(ready.interpreter)]
