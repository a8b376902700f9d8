"""A cache that is reached by another path than that by which its environments were made: real links and real mounts."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from bare_tool import SpecMaker, write_wheel

from steptime.environments.kinds import CachedEnvironment, create, find_ready, list_environments, remove
from steptime.environments.spec import BuildContext
from steptime.errors import EnvironmentFailure

_PROGRAM = Path(__file__).with_name("making_program.py")


@pytest.fixture
def made(cache: Path, spec_of: SpecMaker, bare: CachedEnvironment) -> Path:
    """Make an environment with a file by which it is known again, and return its folder."""
    folder = bare.create(spec_of(kind="bare"), BuildContext(cache)).folder
    assert folder is not None
    (folder / "kept").touch()
    return folder


@pytest.fixture
def link(cache: Path, tmp_path: Path) -> Path:
    """Another path to the cache: a symbolic link."""
    other = tmp_path / "link"
    other.symlink_to(cache)
    return other


def test_an_environment_that_is_reached_by_a_link_is_ready(
    made: Path, link: Path, spec_of: SpecMaker, bare: CachedEnvironment
) -> None:
    ready = bare.find_ready(spec_of(kind="bare"), link)

    assert ready is not None
    assert ready.folder == made
    assert ready.interpreter.is_relative_to(made)


def test_an_environment_that_is_reached_by_a_link_is_not_made_again(
    made: Path, link: Path, spec_of: SpecMaker, bare: CachedEnvironment
) -> None:
    stages: list[str] = []

    bare.create(spec_of(kind="bare"), BuildContext(link, stages.append))

    assert stages == []
    assert (made / "kept").exists()


def test_an_environment_that_was_made_through_a_link_is_ready_without_it(
    cache: Path, link: Path, spec_of: SpecMaker, bare: CachedEnvironment
) -> None:
    cache.mkdir()
    made = bare.create(spec_of(kind="bare"), BuildContext(link))

    assert bare.find_ready(spec_of(kind="bare"), cache) == made


def test_an_environment_that_is_reached_by_a_link_is_listed_as_ready(made: Path, link: Path) -> None:
    listed = list_environments(link, [link / "environments" / made.name])

    assert [(each.ready, each.current, each.unusable) for each in listed] == [(True, True, None)]


@pytest.mark.costly
def test_programs_of_an_environment_that_is_reached_by_a_link_run(
    cache: Path, link: Path, spec_of: SpecMaker, tmp_path: Path
) -> None:
    write_wheel(tmp_path / "wheels", "tiny_one", "1.5")
    create(spec_of("tiny-one==1.5"), cache=cache)

    ready = find_ready(spec_of("tiny-one==1.5"), link)

    assert ready is not None
    assert ready.folder is not None
    listed = subprocess.run([ready.folder / "bin" / "pip", "list"], capture_output=True, text=True, check=True).stdout
    assert "1.5" in listed


def test_new_code_that_verifies_keeps_the_path_by_which_the_environment_was_made(
    made: Path, link: Path, cache: Path, spec_of: SpecMaker, bare: CachedEnvironment
) -> None:
    newer = spec_of(kind="bare", verify="import json")

    assert bare.create(newer, BuildContext(link)).folder == made
    assert bare.find_ready(newer, cache) is not None
    assert (made / "kept").exists()


def test_an_environment_that_is_reached_by_a_bind_mount_is_not_made_again(
    made: Path, cache: Path, spec_of: SpecMaker, tmp_path: Path
) -> None:
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-rm", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no mount namespace can be made here")
    # The mount is seen by this one process only.
    inner = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
    maker = [sys.executable, _PROGRAM, mounted, spec_of().requirements, "", "tiny"]
    command = [unshare, "-rm", "sh", "-c", inner, "sh", cache, mounted, *maker]

    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, env=os.environ)

    assert (done.stdout, done.returncode) == ("tiny ready\n", 0), done.stderr
    assert (made / "kept").exists()


def test_a_copy_of_a_cache_is_refused_with_both_folders_and_kept(
    made: Path, cache: Path, spec_of: SpecMaker, bare: CachedEnvironment, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(cache, copy, symlinks=True)
    there = copy / "environments" / made.name

    assert bare.find_ready(spec_of(kind="bare"), copy) is None
    with pytest.raises(EnvironmentFailure, match=f"{there} is complete .*made as {made}, .*another folder") as caught:
        bare.create(spec_of(kind="bare"), BuildContext(copy))

    assert f"set STEPTIME_CACHE to {cache}" in str(caught.value)
    assert (there / "kept").exists()
    assert [(each.ready, each.unusable) for each in list_environments(copy)] == [(False, str(caught.value))]


def test_a_moved_cache_is_refused_with_both_folders_and_kept_until_it_is_removed(
    made: Path, cache: Path, spec_of: SpecMaker, bare: CachedEnvironment
) -> None:
    moved = cache.rename(cache.with_name("moved"))
    there = moved / "environments" / made.name

    assert bare.find_ready(spec_of(kind="bare"), moved) is None
    with pytest.raises(EnvironmentFailure, match=f"{there} is complete .*made as {made}, .*cannot be reached"):
        bare.create(spec_of(kind="bare"), BuildContext(moved))
    assert (there / "kept").exists()

    remove(made.name, moved)

    assert bare.create(spec_of(kind="bare"), BuildContext(moved)).folder == there
    assert not (there / "kept").exists()


@pytest.mark.parametrize("content", ['{"schema": 1, "fol', '{"schema": 2}', '{"schema": 1, "folder": 7}', "[]"])
def test_an_environment_with_a_marker_that_cannot_be_read_is_refused_and_kept(
    content: str, made: Path, cache: Path, spec_of: SpecMaker, bare: CachedEnvironment
) -> None:
    (made / "ready.json").write_text(content)

    assert bare.find_ready(spec_of(kind="bare"), cache) is None
    with pytest.raises(EnvironmentFailure, match=f"ready.json is .*steptime env remove {made.name}"):
        bare.create(spec_of(kind="bare"), BuildContext(cache))

    assert (made / "kept").exists()


def test_an_environment_whose_python_is_gone_is_refused_with_its_path_and_kept(
    made: Path, cache: Path, spec_of: SpecMaker, bare: CachedEnvironment
) -> None:
    interpreter = made / "bin" / "python"
    interpreter.unlink()
    interpreter.symlink_to("/nonexistent/python")

    assert bare.find_ready(spec_of(kind="bare"), cache) is None
    with pytest.raises(EnvironmentFailure, match=f"its Python, /nonexistent/python, .*env remove {made.name}"):
        bare.create(spec_of(kind="bare"), BuildContext(cache))

    assert (made / "kept").exists()


def test_an_environment_that_newer_code_finds_broken_is_kept_for_those_who_made_it(
    made: Path, cache: Path, spec_of: SpecMaker, bare: CachedEnvironment
) -> None:
    with pytest.raises(EnvironmentFailure, match=f"No module named 'absent'(.|\n)*env remove {made.name}"):
        bare.create(spec_of(kind="bare", verify="import absent"), BuildContext(cache))

    assert bare.find_ready(spec_of(kind="bare"), cache) is not None
    assert (made / "kept").exists()
