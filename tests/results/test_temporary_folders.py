"""Folders for temporary files: what a killed process leaves is removed by the next one, and nothing else is."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from steptime.interruption import Interrupted, obeyed
from steptime.plain_file import temporary_folder
from steptime.process_identity import ProcessIdentity

HOLDER = """
import sys, time
from steptime.plain_file import temporary_folder
with temporary_folder("trying") as folder:
    (folder / "much").write_text("x")
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@pytest.fixture
def holder():
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True) as process:
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def left(place, owner):
    folder = place / "steptime-trying-left"
    folder.mkdir()
    (folder / ".owner").write_text(str(owner))
    return folder


def test_a_folder_is_gone_behind_its_block(place):
    with temporary_folder("trying") as folder:
        assert folder.parent == place
    assert list(place.iterdir()) == []


def test_a_folder_opens_for_its_user_alone():
    with temporary_folder("trying") as folder:
        assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_what_a_killed_process_left_is_removed_by_the_next(holder, number):
    process, folder = holder
    process.send_signal(number)
    process.wait()
    assert folder.exists()
    with temporary_folder("trying"):
        assert not folder.exists()


def test_the_folder_of_a_process_that_runs_stays(holder):
    with temporary_folder("trying"):
        assert (holder[1] / "much").exists()


def test_a_folder_of_another_purpose_stays(holder):
    process, folder = holder
    process.kill()
    process.wait()
    with temporary_folder("other"):
        assert folder.exists()


@pytest.mark.parametrize(
    "owner",
    [
        "",
        "1:2:3",
        "x:2:3:boot",
        ProcessIdentity(2**22 + 1, 1, ProcessIdentity.own().namespace + 1, ProcessIdentity.own().boot),
        ProcessIdentity(2**22 + 1, 1, ProcessIdentity.own().namespace, "another boot"),
    ],
    ids=["empty", "short", "no number", "another namespace", "another boot"],
)
def test_a_folder_whose_owner_cannot_be_seen_from_here_stays(place, owner):
    folder = left(place, owner)
    with temporary_folder("trying"):
        assert folder.exists()


def test_a_link_of_that_name_leads_nowhere(place):
    other = left(place, ProcessIdentity(2**22 + 1, 1, ProcessIdentity.own().namespace, ProcessIdentity.own().boot))
    kept = other.rename(place / "kept")
    (place / "steptime-trying-link").symlink_to(kept)
    with temporary_folder("trying"):
        assert (kept / ".owner").exists()


def test_a_signal_that_comes_while_it_is_removed_waits_until_it_is_gone(monkeypatch):
    remove = shutil.rmtree

    def interrupted(*arguments, **options):
        os.kill(os.getpid(), signal.SIGHUP)
        remove(*arguments, **options)

    with pytest.raises(Interrupted), obeyed(), temporary_folder("trying") as folder:
        monkeypatch.setattr(shutil, "rmtree", interrupted)

    assert not folder.exists()
