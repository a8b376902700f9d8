import subprocess
import sys

import pytest
from launch_phases import launch_of
from simulated import a_failure, a_launch, a_store, a_trial

from steptime.measurements.ablation.records import AblationLaunch


def an_ablation_launch():
    return AblationLaunch(**{**vars(launch_of(0, workers=1)), "trial": a_trial().id})


@pytest.fixture
def store(tmp_path):
    store = a_store(tmp_path / "results")
    store.add_trial(a_trial())
    for number in range(3):
        store.append(a_launch(a_trial(), number, [0.1, 0.3, 0.2]))
    return store


def test_each_launch_has_a_row_with_its_steps_and_median(store):
    rows = store.index()
    assert [row.launch for row in rows] == [0, 1, 2]
    assert {row.steps for row in rows} == {3}
    assert [row.median_s for row in rows] == pytest.approx([0.2] * 3)


def test_a_failed_launch_has_a_row_without_a_median(store):
    store.append(a_failure(a_trial(), 3))
    row = store.index()[-1]
    assert (row.status, row.steps, row.median_s, row.reason) == ("failed", 0, None, "worker-0: ValueError: no")


def test_the_index_catches_up_with_new_launches(store):
    store.index()
    store.append(a_launch(a_trial(), 3))
    assert len(store.index()) == 4


def test_a_missing_index_is_made_anew(store):
    rows = store.index()
    (store.path / "index.sqlite").unlink()
    assert store.index() == rows


@pytest.mark.parametrize("content", [b"", b"this is no database", b"SQLite format 3\0" + b"\0" * 4096])
def test_a_damaged_index_is_made_anew(store, content):
    rows = store.index()
    (store.path / "index.sqlite").write_bytes(content)
    assert store.index() == rows


def test_an_index_of_another_layout_is_made_anew(store):
    rows = store.index()
    change = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('PRAGMA user_version=99')"
    subprocess.run([sys.executable, "-c", change, str(store.path / "index.sqlite")], check=True)
    assert store.index() == rows


def test_records_replaced_by_shorter_ones_replace_their_rows(store):
    store.index()
    records = store.path / "trials" / a_trial().id / "records.jsonl"
    records.write_bytes(records.read_bytes().partition(b"\n")[0] + b"\n")
    assert [row.launch for row in store.index()] == [0]


def test_rebuilding_gives_the_same_rows(store):
    assert store.index() == store.rebuild_index()


def test_a_half_written_line_is_counted_once_it_is_whole(store):
    records = store.path / "trials" / a_trial().id / "records.jsonl"
    whole = records.read_bytes()
    records.write_bytes(whole[:-10])
    assert len(store.index()) == 2
    records.write_bytes(whole)
    assert len(store.index()) == 3


def test_a_folder_that_cannot_be_written_is_indexed_in_memory(store):
    """The index file is a folder here, which even root cannot write rows to."""
    (store.path / "index.sqlite").mkdir()
    assert len(store.index()) == 3
    assert list((store.path / "index.sqlite").iterdir()) == []


def test_ablation_launches_have_rows_of_their_kind(store):
    store.append_ablation(an_ablation_launch())
    assert [(row.kind, row.launch) for row in store.index()] == [
        ("timing", 0),
        ("timing", 1),
        ("timing", 2),
        ("ablation", 0),
    ]


def test_ablation_launches_are_counted_apart_from_timed_ones(store):
    store.append_ablation(an_ablation_launch())
    (row,) = store.status()
    assert (row["ok"], row["steps"]) == (3, 9)


def test_the_index_catches_up_with_new_ablation_launches(store):
    store.index()
    store.append_ablation(an_ablation_launch())
    assert [row.kind for row in store.index()].count("ablation") == 1


def test_a_failed_ablation_launch_says_why(store):
    failed = AblationLaunch(**{**vars(an_ablation_launch()), "status": "failed", "reason": "timed out", "workers": []})
    store.append_ablation(failed)
    assert (store.index()[-1].status, store.index()[-1].reason) == ("failed", "timed out")
