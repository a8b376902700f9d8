"""The page cache of files: dropped without root, and what is left of it read back."""

import json
import subprocess
from pathlib import Path

import pytest

from steptime.execution.page_cache import cached_share, dataset_files, drop_page_cache
from steptime.results.loader_records import PageCache


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Files on a disk, written and read."""
    if subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, check=True).stdout.strip() == b"tmpfs":
        pytest.skip("files in memory cannot be dropped")
    paths = [tmp_path / str(number) for number in range(5)]
    for path in paths:
        path.write_bytes(b"x" * 40_000)
        subprocess.run(["sync", path], check=True)
        path.read_bytes()
    return paths


def test_a_file_that_was_just_read_is_in_memory(files: list[Path]) -> None:
    assert cached_share(files) == 1.0


def test_a_dropped_file_is_not_in_memory(files: list[Path]) -> None:
    found = drop_page_cache(files)

    assert found == PageCache(share_before=1.0, share_after=0.0, files=5)
    assert found.dropped


def test_a_dropped_file_is_whole(files: list[Path]) -> None:
    drop_page_cache(files)

    assert all(path.read_bytes() == b"x" * 40_000 for path in files)


def test_files_of_a_file_system_in_memory_stay_and_that_is_said(tmp_path: Path) -> None:
    place = tmp_path / "memory"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "none", place], check=False).returncode:
        pytest.skip("only root mounts a file system in memory")
    try:
        (place / "file").write_bytes(b"x" * 40_000)
        found = drop_page_cache([place / "file"])
    finally:
        subprocess.run(["umount", place], check=True)
    assert found is not None
    assert not found.dropped


def test_the_files_of_a_folder_of_images_are_those_of_its_index(tmp_path: Path) -> None:
    index = tmp_path / "index.json"
    index.write_text(json.dumps({"files": [["cat/1.jpg", 0]], "classes": ["cat"]}))
    loader = {"kind": "native", "dataset": {"form": "image_folder", "root": "/data", "index": str(index)}}

    assert dataset_files(loader) == [Path("/data/cat/1.jpg")]


def test_data_in_memory_have_no_files() -> None:
    assert dataset_files({"kind": "synthetic", "distinct_batches": 1}) == []
    assert drop_page_cache([]) is None
