"""Caches that others may write, and that others own: real modes and owners."""

import grp
import os
from pathlib import Path

import pytest
from bare_tool import SpecMaker

from steptime.environments.cache import environments_folder
from steptime.environments.kinds import CachedEnvironment
from steptime.environments.spec import BuildContext
from steptime.errors import EnvironmentFailure

_NOBODY = 65534


@pytest.fixture
def made(cache: Path, spec_of: SpecMaker, bare: CachedEnvironment) -> Path:
    """Make an environment and return its folder."""
    return bare.create(spec_of(kind="bare"), BuildContext(cache)).folder


@pytest.fixture
def foreign_group() -> grp.struct_group:
    """A group that is nobody's own."""
    if os.geteuid():
        pytest.skip("only root gives a folder to a group of others")
    return grp.getgrnam("users")


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_an_environment_that_everyone_may_write_is_refused_with_the_folder_and_the_next_step(
    depth: int, made: Path, cache: Path, spec_of: SpecMaker, bare: CachedEnvironment
) -> None:
    place = (made, environments_folder(cache), cache)[depth]
    place.chmod(0o777)

    assert bare.find_ready(spec_of(kind="bare"), cache) is None
    with pytest.raises(EnvironmentFailure, match=f"{place} may be written by everyone.*chmod -R go-w {cache}"):
        bare.create(spec_of(kind="bare"), BuildContext(cache))


def test_an_environment_that_a_group_may_write_is_refused_with_its_name(
    made: Path, cache: Path, spec_of: SpecMaker, bare: CachedEnvironment, foreign_group: grp.struct_group
) -> None:
    os.chown(made, -1, foreign_group.gr_gid)
    made.chmod(0o770)

    with pytest.raises(EnvironmentFailure, match=f"{made} may be written by the group users"):
        bare.create(spec_of(kind="bare"), BuildContext(cache))

    made.chmod(0o750)
    assert bare.find_ready(spec_of(kind="bare"), cache)


def test_the_group_of_the_owner_alone_may_write(
    made: Path, cache: Path, spec_of: SpecMaker, bare: CachedEnvironment
) -> None:
    if grp.getgrgid(made.stat().st_gid).gr_mem or os.geteuid():
        pytest.skip("the user of the tests has no group of its own")
    made.chmod(0o770)

    assert bare.find_ready(spec_of(kind="bare"), cache)


def test_a_cache_in_a_folder_where_others_rename_nothing_is_used(
    made: Path, cache: Path, spec_of: SpecMaker, bare: CachedEnvironment
) -> None:
    cache.chmod(0o1777)

    assert bare.find_ready(spec_of(kind="bare"), cache).folder == made


def test_a_cache_of_somebody_else_that_no_third_may_write_is_used(
    made: Path, cache: Path, spec_of: SpecMaker, bare: CachedEnvironment
) -> None:
    if os.geteuid():
        pytest.skip("only root gives folders to somebody else")
    for place in (cache, environments_folder(cache), made):
        os.chown(place, _NOBODY, -1)
        place.chmod(0o755)

    assert bare.find_ready(spec_of(kind="bare"), cache).folder == made
