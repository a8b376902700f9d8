"""Files through which workers agree: whole or not there, found by who waits for them, and looked for anew each time."""

import os
import threading

import numpy as np
import pytest

from steptime.worker.shared_file import await_file, is_there, open_plain, open_whole, read_arrays, read_json, write_json


def test_a_file_holds_what_was_written_and_nothing_is_left_next_to_it(tmp_path):
    write_json(str(tmp_path / "number.json"), {"steps": 3}, durable=True)

    assert read_json(str(tmp_path / "number.json")) == {"steps": 3}
    assert [path.name for path in tmp_path.iterdir()] == ["number.json"]


def write_half(path):
    message = "the disk is full"
    with open_whole(path) as file:
        file.write("half")
        raise OSError(message)


def test_a_file_that_could_not_be_written_whole_leaves_the_old_one(tmp_path):
    path = str(tmp_path / "number.json")
    write_json(path, "old")

    with pytest.raises(OSError, match="full"):
        write_half(path)

    assert read_json(path) == "old"


def test_who_waits_finds_a_file_that_comes_late(tmp_path):
    path = str(tmp_path / "late.json")
    threading.Timer(0.05, write_json, (path, None)).start()

    assert await_file(path, 20.0)


def test_who_waits_gives_up_at_the_limit(tmp_path):
    assert not await_file(str(tmp_path / "never"), 0.02)


def test_each_look_opens_the_folder_which_makes_nfs_forget_that_a_name_was_absent(tmp_path, monkeypatch):
    asked, really = [], os.open
    monkeypatch.setattr(os, "open", lambda path, flags: (asked.append(path), really(path, flags))[1])

    is_there(str(tmp_path / "number.json"))

    assert asked == [str(tmp_path)]


@pytest.mark.parametrize("make", ["symlink_to", "hardlink_to"])
def test_a_name_that_somebody_foresaw_leads_to_no_other_file(make, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("the user's own")
    for name in ("epochs.json", "epochs.json.partial"):
        getattr(tmp_path / name, make)(victim)

    write_json(str(tmp_path / "epochs.json"), [1])

    assert victim.read_text() == "the user's own"
    assert read_json(str(tmp_path / "epochs.json")) == [1]


def test_no_link_is_read_or_written(tmp_path):
    (tmp_path / "victim").write_text("[1]")
    (tmp_path / "link").symlink_to(tmp_path / "victim")

    for use in (read_json, read_arrays, lambda path: open_plain(path, os.O_WRONLY | os.O_APPEND)):
        with pytest.raises(OSError, match="symbolic links"):
            use(str(tmp_path / "link"))


def test_objects_in_an_archive_of_arrays_are_not_read(tmp_path):
    np.savez(tmp_path / "state.npz", state=np.array([{"an": "object"}], dtype=object))

    with pytest.raises(ValueError, match="allow_pickle=False"):
        read_arrays(str(tmp_path / "state.npz"))
