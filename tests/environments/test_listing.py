"""Listing and removing what lies in the cache."""

from pathlib import Path

import pytest
from bare_tool import SpecMaker
from typer.testing import CliRunner

from steptime.cli.app import app
from steptime.environments.kinds import CachedEnvironment, list_environments, remove
from steptime.environments.spec import BuildContext


def test_an_empty_cache_lists_nothing(cache: Path) -> None:
    assert list_environments(cache) == []


def test_an_environment_of_older_requirements_is_listed_as_not_current(
    spec_of: SpecMaker, cache: Path, bare: CachedEnvironment
) -> None:
    bare.create(spec_of("one==1"), BuildContext(cache))
    newest = spec_of("one==2")
    bare.create(newest, BuildContext(cache))

    listed = list_environments(cache, bare.addresses(newest, cache))

    assert [(each.name, each.ready) for each in listed] == [("tiny", True), ("tiny", True)]
    assert sorted(each.current for each in listed) == [False, True]


def test_removing_a_name_removes_all_its_environments_and_says_how_much_was_freed(
    spec_of: SpecMaker, cache: Path, bare: CachedEnvironment
) -> None:
    bare.create(spec_of("one==1"), BuildContext(cache))
    bare.create(spec_of("one==2"), BuildContext(cache))
    bare.create(spec_of(name="other"), BuildContext(cache))
    expected = sum(each.bytes for each in list_environments(cache) if each.name == "tiny")

    freed = remove("tiny", cache)

    assert [each.name for each in list_environments(cache)] == ["other"]
    assert freed >= expected > 0


def test_removing_what_is_not_there_frees_nothing(cache: Path) -> None:
    assert remove("tiny", cache) == 0


def test_the_list_names_the_cache_once_and_each_folder_whole(
    spec_of: SpecMaker, cache: Path, bare: CachedEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare.create(spec_of("one==1"), BuildContext(cache))
    monkeypatch.setenv("COLUMNS", "80")
    (listed,) = list_environments(cache)
    shown = CliRunner().invoke(app, ["env", "list"], env={"STEPTIME_CACHE": str(cache)}).stdout

    assert Path(listed.folder).name in shown.split()
    assert shown.count(str(Path(listed.folder).parent)) <= 1
