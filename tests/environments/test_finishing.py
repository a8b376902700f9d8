"""The program that completes an environment with what pip cannot install."""

from pathlib import Path

import pytest
from bare_tool import SpecMaker

from steptime.environments.cache import address
from steptime.environments.kinds import CachedEnvironment
from steptime.environments.spec import BuildContext, EnvironmentSpec
from steptime.environments.subprocesses import fix_in
from steptime.errors import EnvironmentFailure

WRAPPER = """
import os, pathlib, sys
folder, word = pathlib.Path(sys.argv[1]), sys.argv[2]
script = folder / "bin" / "wrapped"
script.write_text("#!/bin/sh\\nexec %s \\"$@\\"\\n" % (folder / "bin" / "python"))
script.chmod(0o755)
wheels = pathlib.Path(os.environ["STEPTIME_WHEELS"])
(wheels / word).write_text("built")
"""


def finishing(spec_of: SpecMaker, tmp_path: Path, code: str, **fields: object) -> EnvironmentSpec:
    """Return a spec whose environment is finished by ``code``, called with the argument ``word``."""
    program = tmp_path / "finish.py"
    program.write_text(code)
    return spec_of(finish=[str(program), "word"], **fields)


def test_what_was_built_is_kept_for_other_environments_and_its_interpreter_is_the_one_launched(
    spec_of: SpecMaker, bare: CachedEnvironment, cache: Path, tmp_path: Path
) -> None:
    spec = finishing(spec_of, tmp_path, WRAPPER, program="bin/wrapped", verify="import sys")

    ready = bare.create(spec, BuildContext(cache))

    assert ready.folder is not None
    assert ready.interpreter == ready.folder / "bin" / "wrapped"
    assert (cache / "wheels" / "word").read_text() == "built"


def test_a_program_that_fails_says_what_would_help(
    spec_of: SpecMaker, bare: CachedEnvironment, cache: Path, tmp_path: Path
) -> None:
    code = "import sys\nsys.stderr.write('no compiler\\nfix: sudo apt-get install g++\\n')\nsys.exit(1)"
    spec = finishing(spec_of, tmp_path, code)

    with pytest.raises(EnvironmentFailure, match="no compiler") as caught:
        bare.create(spec, BuildContext(cache))

    assert caught.value.fix == "sudo apt-get install g++"
    assert bare.find_ready(spec, cache) is None


@pytest.mark.parametrize(
    ("library", "package"), [("libgomp.so.1", "libgomp1"), ("libX11.so.6", "libx11-6"), ("libGL.so.1.2.0", "libgl1")]
)
def test_a_library_that_the_system_lacks_is_named_with_its_package(library, package, tmp_path, monkeypatch):
    (tmp_path / "apt-get").touch(mode=0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    log = tmp_path / "log"
    log.write_text(f"$ python -c ...\nOSError: {library}: cannot open shared object file: No such file or directory\n")

    assert fix_in(log) == f"sudo apt-get install {package}"


def test_a_library_that_is_missing_where_no_apt_is_has_no_command(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    log = tmp_path / "log"
    log.write_text("OSError: libgomp.so.1: cannot open shared object file: No such file or directory\n")

    assert fix_in(log) is None


def test_another_program_makes_another_environment(spec_of: SpecMaker, cache: Path, tmp_path: Path) -> None:
    first = address(finishing(spec_of, tmp_path, "pass"), "3.11", cache)
    second = address(finishing(spec_of, tmp_path, "pass  # better"), "3.11", cache)

    assert first != second
