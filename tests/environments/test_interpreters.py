"""Interpreters that steptime did not make: believed only after they have run."""

import sys
from pathlib import Path

import pytest
from bare_tool import SpecMaker

from steptime.environments.kinds import create, find_ready
from steptime.errors import EnvironmentFailure


def test_an_existing_interpreter_is_used_as_it_is(spec_of: SpecMaker, cache: Path) -> None:
    spec = spec_of(kind="existing", interpreter=Path(sys.executable), verify="import numpy")

    ready = create(spec, cache=cache)

    assert ready.interpreter == Path(sys.executable)
    assert "numpy" in ready.packages
    assert not cache.exists()


def test_an_existing_interpreter_that_lacks_the_framework_says_so(spec_of: SpecMaker, cache: Path) -> None:
    spec = spec_of(kind="existing", interpreter=Path(sys.executable), verify="import absent")

    with pytest.raises(EnvironmentFailure, match="No module named 'absent'"):
        create(spec, cache=cache)


@pytest.mark.parametrize("content", [None, "#!/bin/sh\nexit 5\n", "#!/nonexistent/python\n", "#!/bin/sh\necho hello\n"])
def test_a_broken_interpreter_is_named(content: str | None, spec_of: SpecMaker, cache: Path, tmp_path: Path) -> None:
    broken = tmp_path / "python"
    if content is not None:
        broken.write_text(content)
        broken.chmod(0o755)
    spec = spec_of(kind="existing", interpreter=broken)

    with pytest.raises(EnvironmentFailure, match=f"{broken} does not work as a Python interpreter"):
        create(spec, cache=cache)


def test_a_broken_interpreter_is_not_ready(spec_of: SpecMaker, cache: Path, tmp_path: Path) -> None:
    assert find_ready(spec_of(kind="existing", interpreter=tmp_path / "absent"), cache) is None


def test_an_existing_environment_needs_an_interpreter(spec_of: SpecMaker, cache: Path) -> None:
    with pytest.raises(EnvironmentFailure, match="no interpreter is given"):
        create(spec_of(kind="existing"), cache=cache)


def test_the_core_runs_what_needs_nothing_installed(spec_of: SpecMaker, cache: Path) -> None:
    ready = create(spec_of(kind="core", verify="import numpy"), cache=cache)

    assert ready.interpreter == Path(sys.executable)
    assert "numpy" in ready.packages
