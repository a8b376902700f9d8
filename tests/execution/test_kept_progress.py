"""The progress that a run keeps in its results folder, and the heartbeats that it gives there."""

import os
import time
from pathlib import Path

import pytest

from steptime.execution.progress import KeptProgress, Silent
from steptime.results.progress import PROGRESS, last_sign_age_s, run_progress

LONG_AGO_S = 1000.0


@pytest.fixture
def kept(tmp_path: Path) -> KeptProgress:
    return KeptProgress(Silent(), tmp_path, "7", beat_s=0.05)


def grow_old(folder: Path) -> None:
    then = time.time() - LONG_AGO_S
    os.utime(folder / PROGRESS, (then, then))


def is_renewed(folder: Path, limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if (last_sign_age_s(folder) or 0.0) < LONG_AGO_S / 2:
            return True
        time.sleep(0.02)
    return False


def test_a_run_is_named_in_its_folder_before_its_first_stage(kept, tmp_path):
    kept.begin()
    found = run_progress(tmp_path)
    kept.end("done")
    assert (found.pid, found.job, found.stage) == (os.getpid(), "7", "Starting")


def test_a_run_gives_signs_of_life_while_nothing_else_happens(kept, tmp_path):
    kept.begin()
    grow_old(tmp_path)
    renewed = is_renewed(tmp_path, 30)
    kept.end("done")
    assert renewed


def test_a_run_that_has_ended_gives_no_sign_of_life(kept, tmp_path):
    kept.begin()
    kept.end("done")
    grow_old(tmp_path)
    assert not is_renewed(tmp_path, 0.5)


def test_a_link_in_the_place_of_the_progress_is_not_followed_by_a_sign_of_life(kept, tmp_path):
    kept.begin()
    victim = tmp_path / "victim"
    victim.write_text("mine")
    os.utime(victim, (1, 1))
    (tmp_path / PROGRESS).unlink()
    (tmp_path / PROGRESS).symlink_to(victim)
    time.sleep(0.5)
    kept.end("done")
    assert victim.stat().st_mtime == 1
