"""``steptime list``: what may be named in a study, for people and for programs."""

import json
from pathlib import Path
from typing import Any

import pytest
from program import steptime

from steptime.catalog.accelerators import find_accelerators
from steptime.catalog.choices import LOADERS, STRATEGIES
from steptime.catalog.manifest import load_manifests
from steptime.catalog.workloads.table import LIBRARY
from steptime.cli.list import _LISTS
from steptime.datasets.builtins import BUILTINS
from steptime.launchers.table import LAUNCHERS
from steptime.runner.net_plan import back_ends_of
from steptime.study.study_file import study_files

LISTS = {
    "frameworks": load_manifests(),
    "workloads": LIBRARY,
    "strategies": STRATEGIES,
    "loaders": LOADERS,
    "launchers": LAUNCHERS,
    "backends": back_ends_of(load_manifests()),
    "datasets": BUILTINS,
    "studies": study_files(),
}


@pytest.fixture(scope="module")
def frameworks(tmp_path_factory) -> list[dict[str, Any]]:
    """The rows of ``steptime list frameworks --json``."""
    return json.loads(steptime("list", "frameworks", "--json", cwd=tmp_path_factory.mktemp("here")).stdout)


def test_every_list_is_tested_here():
    assert set(_LISTS) == set(LISTS)


@pytest.mark.parametrize("what", LISTS)
def test_json_is_a_list_of_objects_with_every_name(what, tmp_path):
    done = steptime("list", what, "--json", cwd=tmp_path)
    rows = json.loads(done.stdout)
    assert {row["name"] for row in rows} == set(LISTS[what])
    assert len(rows) == len(LISTS[what])
    assert done.stderr == ""


@pytest.mark.parametrize("what", LISTS)
def test_a_narrow_terminal_still_shows_every_name_whole(what, tmp_path):
    text = steptime("list", what, cwd=tmp_path, COLUMNS="60").stdout
    assert all(name in text for name in LISTS[what])
    assert max(map(len, text.splitlines())) <= 60


def test_a_framework_says_what_it_can_and_whether_it_is_here(frameworks):
    found = find_accelerators()
    for row in frameworks:
        manifest = load_manifests()[row["name"]]
        assert row["strategies"] == list(manifest.strategies)
        assert row["possible_devices"] == list(manifest.devices)
        assert row["devices"] == ["cpu", "cuda"][: 2 if len(found) and manifest.cuda_build(found) else 1]
        assert row["python"].startswith("3.")
        assert isinstance(row["installed"], bool)


def test_a_framework_that_is_not_here_says_why_and_what_to_do(frameworks):
    for row in frameworks:
        assert (row["reason"] is None) == row["installed"]
        assert row["installed"] or "steptime env create" in row["reason"] or "no Python" in row["reason"]


def test_a_framework_without_a_python_says_which_it_needs(tmp_path):
    (empty := tmp_path / "home").mkdir()
    nowhere = {"PATH": str(empty), "HOME": str(empty), "PYENV_ROOT": str(empty), "STEPTIME_CACHE": str(empty)}
    rows = json.loads(steptime("list", "frameworks", "--json", cwd=tmp_path, **nowhere).stdout)
    here = {row["name"]: row["installed"] for row in rows}
    assert here["reference"]
    assert not here["mxnet"]


def test_the_parameters_of_a_workload_are_the_published_ones(tmp_path):
    rows = {row["name"]: row for row in json.loads(steptime("list", "workloads", "--json", cwd=tmp_path).stdout)}
    assert rows["lenet5"]["parameters"] == 61_706
    assert rows["resnet50"]["parameters"] == 25_557_032


def test_listing_makes_nothing(tmp_path: Path):
    cache = tmp_path / "cache"
    for what in LISTS:
        steptime("list", what, cwd=tmp_path, STEPTIME_CACHE=str(cache))
    assert not cache.exists()


def test_a_framework_tells_its_options_in_both_tiers_and_the_strategies_that_it_does_not_implement(frameworks):
    for row in frameworks:
        manifest = load_manifests()[row["name"]]
        assert {name: option["default"] for name, option in row["options"].items()} == {
            name: option.default for name, option in manifest.options.items()
        }
        assert row["tuned"] == manifest.tuned.model_dump(mode="json")
        assert row["implementations"] == {
            name: support.implementation for name, support in manifest.strategies.items() if support.implementation
        }
