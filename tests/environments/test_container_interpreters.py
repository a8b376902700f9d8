"""Interpreters in containers: believed only after they have run there, with what a launch needs around them."""

import sys
from pathlib import Path

import pytest
from bare_tool import SpecMaker
from containers import CONTAINER, WHOLE, missing_bubblewrap

import steptime
from steptime.environments.kinds import create, find_ready
from steptime.errors import EnvironmentFailure

BWRAP = pytest.mark.skipif(missing_bubblewrap() is not None, reason=str(missing_bubblewrap()))


def failure(spec_of: SpecMaker, cache: Path, **fields: object) -> str:
    """Return why an environment cannot be had, in one line."""
    settings = {"kind": "existing", "interpreter": Path(sys.executable), "container": CONTAINER}
    with pytest.raises(EnvironmentFailure) as raised:
        create(spec_of(**{**settings, **fields}), cache=cache)
    return " ".join(str(raised.value).split())


@BWRAP
def test_an_interpreter_in_a_container_is_used_as_it_is(spec_of: SpecMaker, cache: Path) -> None:
    spec = spec_of(kind="existing", interpreter=Path(sys.executable), container=CONTAINER, verify="import numpy")

    ready = create(spec, cache=cache)

    assert (ready.interpreter, ready.container, ready.folder) == (Path(sys.executable), CONTAINER, None)
    assert "numpy" in ready.packages
    assert not cache.exists()


@BWRAP
def test_the_framework_is_sought_in_the_container(spec_of: SpecMaker, cache: Path) -> None:
    hidden = (*WHOLE, "--tmpfs", str(Path(pytest.__file__).parent), "--")

    assert find_ready(spec_of(kind="existing", interpreter=Path(sys.executable), verify="import pytest"), cache)
    said = failure(spec_of, cache, container=hidden, verify="from pytest import fixture")
    assert "tiny does not work in bwrap --dev-bind / / --tmpfs" in said
    assert "cannot import name 'fixture'" in said


def test_a_container_program_that_is_missing_is_named_with_the_ways_to_have_it(spec_of: SpecMaker, cache: Path) -> None:
    said = failure(spec_of, cache, container=("no-such-apptainer", "exec", "image.sif"), interpreter=Path("python3"))

    assert said.startswith("environments.tiny.container: no program 'no-such-apptainer' on this machine's PATH")
    assert "module load" in said


@BWRAP
def test_an_interpreter_that_the_container_lacks_is_named_with_what_the_container_says(
    spec_of: SpecMaker, cache: Path
) -> None:
    said = failure(spec_of, cache, interpreter=Path("no-such-python"))

    assert "environments.tiny.container: no-such-python does not work in the container (exit code 1)" in said
    assert "bwrap: execvp no-such-python: No such file or directory" in said
    assert "tried: bwrap --dev-bind / / -- no-such-python -I" in said


@BWRAP
def test_an_interpreter_that_this_machine_lacks_may_be_in_the_container(
    spec_of: SpecMaker, cache: Path, tmp_path: Path
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    link = ("--ro-bind", str(Path(sys.executable).parent), str(inside), "--")
    python = inside / Path(sys.executable).name
    assert not python.exists()

    assert (
        create(spec_of(kind="existing", interpreter=python, container=(*WHOLE, *link)), cache=cache).interpreter
        == python
    )


@BWRAP
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ["--clearenv"],
            "keeps environment variables from its programs, and workers learn from them which they are; let it pass",
        ),
        (["--unshare-net"], "has a network of its own, in which workers do not find each other; let it share"),
        (
            ["--tmpfs", str(Path(steptime.__file__).parent)],
            f"does not have steptime's files at {Path(steptime.__file__).parent}; it must see steptime's installation",
        ),
    ],
)
def test_what_a_launch_needs_of_a_container_is_asked_before_any_launch(
    spec_of: SpecMaker, cache: Path, options: list[str], words: str
) -> None:
    said = failure(spec_of, cache, container=(*WHOLE, *options, "--"))

    assert f"environments.tiny.container: the container {words}" in said
    assert f"tried: bwrap --dev-bind / / {options[0]}" in said


@BWRAP
def test_relative_paths_of_a_container_are_not_those_of_the_current_folder(
    spec_of: SpecMaker, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "missing").mkdir()

    said = failure(spec_of, cache, container=(*WHOLE, "--bind", "missing", "/mnt", "--"))
    assert "bwrap: Can't find source path missing" in said


def test_a_container_that_answers_nothing_is_quoted(spec_of: SpecMaker, cache: Path) -> None:
    said = failure(spec_of, cache, container=("echo", "no container is made:"))

    assert "does not work in the container (exit code 0): | no container is made:" in said
