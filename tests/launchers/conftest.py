"""A second user of the machine: a Python that runs as somebody who is not root, and a folder of theirs."""

import os
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from emulating import AS_SOMEBODY, SOMEBODY

import steptime


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that another user may write to."""
    made = Path(tempfile.mkdtemp())
    if os.geteuid() == 0:
        os.chown(made, SOMEBODY, SOMEBODY)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def python() -> list[str]:
    """The beginning of a command that runs a Python with steptime as somebody who is not root."""
    before = AS_SOMEBODY if os.geteuid() == 0 else []
    if before and shutil.which("setpriv") is None:
        pytest.skip("no 'setpriv', with which root becomes somebody else")
    paths = [str(Path(steptime.__file__).parents[1]), *site.getsitepackages()]
    variables = ["env", f"PYTHONPATH={os.pathsep.join(paths)}", "PYTHONDONTWRITEBYTECODE=1"]
    for candidate in (sys.executable, shutil.which(f"python3.{sys.version_info.minor}", path="/usr/bin")):
        command = [*before, *variables, str(candidate)]
        if (
            candidate
            and subprocess.run(
                [*command, "-c", "import pydantic, steptime"], capture_output=True, check=False
            ).returncode
            == 0
        ):
            return command
    pytest.skip(f"other users cannot read {Path(steptime.__file__).parents[2]}: clone steptime to where they can")
