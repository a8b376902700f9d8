"""What an environment is once it is made, and what is left when it cannot be made."""

import json
import sys
from pathlib import Path

import pytest
from bare_tool import HERE, BorrowedPip, SpecMaker, write_wheel

from steptime.environments import subprocesses
from steptime.environments.kinds import KINDS, CachedEnvironment, create, create_all, find_ready
from steptime.environments.spec import BuildContext
from steptime.environments.tools import Uv
from steptime.errors import EnvironmentFailure


def test_pip_installs_build_requirements_and_then_what_the_requirements_say_and_it_is_recorded(
    spec_of: SpecMaker, cache: Path, tmp_path: Path
) -> None:
    wheels = tmp_path / "wheels"
    write_wheel(wheels, "builder", requires=["tiny_two<2"])
    write_wheel(wheels, "tiny_two", "1.0")
    write_wheel(wheels, "tiny_two", "2.0")
    spec = spec_of("tiny_two==2.0", verify="import tiny_two")
    spec.build_requirements.write_text(f"--no-index\n--find-links {wheels}\nbuilder\n")
    stages: list[str] = []

    ready = create(spec, stages.append, cache=cache)

    assert (ready.packages["builder"], ready.packages["tiny-two"]) == ("1.0", "2.0")
    assert ready.python_version.startswith(HERE)
    assert [stage.split()[0] for stage in stages] == ["creating", "installing", "installing", "verifying", "ready"]
    assert ready.folder is not None
    assert "tiny" in json.loads((ready.folder / "ready.json").read_text())["conflicts"][0]


def test_a_failed_installation_says_what_pip_said_where_the_log_is_and_what_to_repeat(
    spec_of: SpecMaker, cache: Path
) -> None:
    with pytest.raises(EnvironmentFailure) as caught:
        CachedEnvironment(BorrowedPip()).create(spec_of("no-such-package==7"), BuildContext(cache))

    message = str(caught.value)
    assert "no-such-package==7" in message
    assert "steptime env create tiny" in message
    log = Path(message.split("log: ")[1].splitlines()[0])
    assert "No matching distribution" in log.read_text()


def test_nothing_but_the_log_is_left_of_a_failed_installation(spec_of: SpecMaker, cache: Path) -> None:
    with pytest.raises(EnvironmentFailure):
        CachedEnvironment(BorrowedPip()).create(spec_of("no-such-package==7"), BuildContext(cache))

    assert [path.suffix for path in (cache / "environments").glob("tiny*")] == [".log"]


def test_an_environment_that_does_not_work_is_none(spec_of: SpecMaker, cache: Path, bare: CachedEnvironment) -> None:
    with pytest.raises(EnvironmentFailure, match=r"does not work(.|\n)*No module named 'absent'"):
        bare.create(spec_of(verify="import absent"), BuildContext(cache))

    assert bare.find_ready(spec_of(verify="import absent"), cache) is None


def test_a_ready_environment_is_found_without_starting_a_process(
    spec_of: SpecMaker, cache: Path, bare: CachedEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = bare.create(spec_of(), BuildContext(cache))
    monkeypatch.delattr(subprocesses.subprocess, "Popen")

    assert bare.create(spec_of(), BuildContext(cache)) == made


def test_changed_requirements_are_another_environment(spec_of: SpecMaker, cache: Path, bare: CachedEnvironment) -> None:
    first = bare.addresses(spec_of("one==1"), cache)

    assert bare.addresses(spec_of("one==2"), cache) != first


def test_changed_requirements_of_an_included_file_are_another_environment(
    spec_of: SpecMaker, cache: Path, bare: CachedEnvironment, tmp_path: Path
) -> None:
    included = tmp_path / "included.txt"
    included.write_text("one==1\n")
    first = bare.addresses(spec_of(f"-r {included}"), cache)
    included.write_text("one==2\n")

    assert bare.addresses(spec_of(f"-r {included}"), cache) != first


def test_a_changed_comment_is_the_same_environment(spec_of: SpecMaker, cache: Path, bare: CachedEnvironment) -> None:
    first = bare.addresses(spec_of("one==1"), cache)

    assert bare.addresses(spec_of("# why", "one==1  # because"), cache) == first


def test_changed_verification_verifies_again_but_installs_nothing(
    spec_of: SpecMaker, cache: Path, bare: CachedEnvironment, tmp_path: Path
) -> None:
    folder = bare.create(spec_of(), BuildContext(cache)).folder
    assert folder is not None
    (folder / "kept").touch()
    proof = tmp_path / "verified"
    newer = spec_of(verify=f"open({str(proof)!r}, 'w')")
    assert bare.find_ready(newer, cache) is None

    bare.create(newer, BuildContext(cache))

    assert proof.exists()
    assert (folder / "kept").exists()


def test_packages_on_pythonpath_are_not_seen(
    spec_of: SpecMaker, cache: Path, bare: CachedEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stray.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    with pytest.raises(EnvironmentFailure, match="No module named 'stray'"):
        bare.create(spec_of(verify="import stray"), BuildContext(cache))


def test_one_environment_that_cannot_be_made_does_not_stop_the_others(
    spec_of: SpecMaker, cache: Path, bare: CachedEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, "bare", bare)  # type: ignore[arg-type]  # the table is a dict
    specs = [
        spec_of(name="bad", kind="bare", verify="import absent"),
        spec_of(name="none", kind="bare", pythons=["3.99"]),
        spec_of(name="good", kind="bare", verify="import json"),
    ]

    made = create_all(specs, lambda _name, _stage: None, cache=cache)

    failed = [name for name, result in made.items() if isinstance(result, EnvironmentFailure)]
    assert failed == ["bad", "none"]


def test_a_cache_that_cannot_be_written_is_named_with_the_remedy(spec_of: SpecMaker, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()

    with pytest.raises(EnvironmentFailure, match=r"Not a directory.*STEPTIME_CACHE"):
        create(spec_of(), cache=blocked)


def test_missing_requirements_are_named(spec_of: SpecMaker, cache: Path) -> None:
    spec = spec_of()
    spec.requirements.unlink()

    with pytest.raises(EnvironmentFailure, match=r"requirements\.txt cannot be read"):
        create(spec, cache=cache)


def test_an_unknown_kind_is_answered_with_the_nearest(spec_of: SpecMaker, cache: Path) -> None:
    with pytest.raises(EnvironmentFailure, match="did you mean 'venv'"):
        find_ready(spec_of(kind="vnev"), cache)


def test_uv_is_found_beside_the_interpreter_that_runs(
    spec_of: SpecMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "uv").touch(mode=0o700)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing-here"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))

    command = next(Uv().commands(spec_of(kind="uv"), tmp_path / "python", HERE, tmp_path / "made"))

    assert command.command[0] == tmp_path / "uv"


def test_uv_is_asked_for_when_it_is_not_there(
    spec_of: SpecMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))

    with pytest.raises(EnvironmentFailure, match=rf"in {tmp_path}; pip install 'steptime\[uv\]', or use venv"):
        next(Uv().commands(spec_of(kind="uv"), tmp_path / "python", HERE, tmp_path / "made"))
