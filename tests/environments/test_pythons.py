"""Finding Pythons: every candidate is run before it is believed."""

import sys
from pathlib import Path

import pytest
from bare_tool import HERE

from steptime.environments import spec
from steptime.environments.spec import apt_has, candidates, choose_python, find_python, how_to_get
from steptime.environments.subprocesses import fingerprint_of
from steptime.errors import EnvironmentFailure


def _write_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_this_interpreter_is_found_under_its_own_version() -> None:
    assert find_python(HERE) == Path(sys.executable)


def test_the_first_version_that_exists_is_taken() -> None:
    assert choose_python("tiny", ["3.99", HERE])[1] == HERE


def test_a_shim_that_fails_does_not_hide_the_python_behind_it(tmp_path: Path) -> None:
    shim = _write_program(tmp_path / "python", "echo 'command not found' >&2; exit 127")

    found, refusals = spec._first_usable(HERE, (shim, Path(sys.executable)))

    assert found == Path(sys.executable)
    assert refusals == (f"{shim}: exit code 127, command not found",)


def test_no_suitable_python_says_what_was_tried_what_would_do_and_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim = _write_program(tmp_path / "python3.77", "exit 3")
    liar = _write_program(tmp_path / "more" / "python3.77", f'exec {sys.executable} "$@"')
    monkeypatch.setenv("PATH", f"{shim.parent}:{liar.parent}")

    with pytest.raises(EnvironmentFailure) as caught:
        choose_python("tiny", ["3.77", "3.78"])

    message = str(caught.value)
    assert "it needs 3.77 or 3.78" in message
    assert f"{shim}: exit code 3" in message
    assert f"{liar}: it is Python {HERE}" in message
    assert "pyenv install 3.77" in message
    assert "uv python install 3.77" in message
    assert "What does not need tiny still runs" in message


def test_a_python_without_venv_is_named_with_the_missing_modules(tmp_path: Path) -> None:
    stripped = (
        f"""echo '{HERE}'; echo /usr/bin/python; echo "ModuleNotFoundError: No module named 'ensurepip'"; exit 1"""
    )
    program = _write_program(tmp_path / f"python{HERE}", stripped)

    found, refusals = spec._first_usable(HERE, (program,))

    assert found is None
    assert refusals == (f"{program}: it lacks the modules venv and ensurepip",)


@pytest.mark.parametrize(
    ("variable", "pattern"),
    [
        ("HOME", ".pyenv/versions/{}/bin"),
        ("HOME", ".local/share/uv/python/cpython-{}-linux/bin"),
        ("HOME", "miniconda3/envs/py{}/bin"),
        ("PYENV_ROOT", "versions/{}/bin"),
        ("UV_PYTHON_INSTALL_DIR", "cpython-{}-linux/bin"),
    ],
)
def test_usual_folders_are_searched_newest_first(
    variable: str, pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    old = _write_program(tmp_path / pattern.format("3.77.9") / "python3.77", "exit 1")
    new = _write_program(tmp_path / pattern.format("3.77.10") / "python3.77", "exit 1")

    assert candidates("3.77") == [new, old]


def test_apt_is_not_believed_to_have_what_it_has_not() -> None:
    assert not apt_has("python3.77")


@pytest.mark.parametrize("version", ["3.6", "3.7", "3.8", "3.9"])
def test_old_pythons_say_what_they_are(version: str) -> None:
    python = find_python(version)
    if python is None:
        pytest.skip(f"missing Python {version}: {how_to_get(version, [])[0]}")

    said = fingerprint_of(python)

    assert said["python"].startswith(f"{version}.")
    assert "pip" in said["packages"]
