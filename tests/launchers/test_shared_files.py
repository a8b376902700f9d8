"""What a host sees of the files that all hosts must share."""

import sys
from pathlib import Path
from typing import Any

import pytest

from steptime.launchers.hosts.host_files import look


def seen(folder: Path, **asked: Any) -> dict[str, Any]:
    (folder / "nonce").write_text("text")
    nothing: dict[str, Any] = {"cache": None, "cache_file": None, "folders": [], "programs": []}
    shared = {"file": str(folder / "nonce"), "text": "text", "interpreter": sys.executable, "limit_s": 0.2}
    return look({**nothing, **shared, **asked})


def test_a_cache_is_shared_where_its_file_shows_with_its_text(tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "nonce").write_text("text")
    assert seen(tmp_path, cache=str(cache), cache_file=str(cache / "nonce"))["cache_seen"]


@pytest.mark.parametrize("text", [None, "of another cache"])
def test_a_cache_of_the_host_itself_is_none_that_is_shared(tmp_path, text):
    cache = tmp_path / "cache"
    cache.mkdir()
    if text is not None:
        (cache / "nonce").write_text(text)
    assert not seen(tmp_path, cache=str(cache), cache_file=str(cache / "nonce"))["cache_seen"]


@pytest.mark.parametrize("exists", [True, False])
def test_a_cache_that_the_launcher_cannot_write_must_be_there_at_least(tmp_path, exists):
    if exists:
        (tmp_path / "cache").mkdir()
    assert seen(tmp_path, cache=str(tmp_path / "cache"))["cache_seen"] == exists


def test_datasets_must_be_folders_and_interpreters_programs(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "python").write_text("no program")
    paths = {"folders": [str(tmp_path / "data"), str(tmp_path / "photos")]}
    found = seen(tmp_path, **paths, programs=[sys.executable, str(tmp_path / "python"), "/opt/none/python"])
    assert found["no_folders"] == [str(tmp_path / "photos")]
    assert found["no_programs"] == [str(tmp_path / "python"), "/opt/none/python"]


def test_a_folder_that_is_not_shared_shows_nothing(tmp_path):
    assert seen(tmp_path, file=str(tmp_path / "other"))["seen_s"] is None
