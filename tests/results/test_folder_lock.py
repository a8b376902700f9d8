"""What is said of a results folder whose lock another process holds: who, whether it lives, and what to do."""

import fcntl
import os
import socket
import time
from pathlib import Path

import pytest
from simulated import a_store

from steptime.errors import FolderInUse
from steptime.results.progress import PROGRESS, RunProgress
from steptime.results.store import Store


@pytest.fixture
def held(tmp_path: Path) -> Store:
    """A folder whose lock a run has: process 12 on n0, in Slurm job 7."""
    store = a_store(tmp_path)
    (store.path / PROGRESS).write_bytes(RunProgress(pid=12, host="n0", job="7", stage="Racing").to_json())
    with (store.path / "run.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("process 12 on n0\n")
        file.flush()
        yield store


def refusal(store: Store) -> str:
    with pytest.raises(FolderInUse) as caught, store.lock():
        pass
    return str(caught.value)


def test_who_holds_the_lock_is_named_with_its_job_and_its_last_sign_of_life(held):
    said = refusal(held)
    assert "is in use: process 12 on n0 (Slurm job 7) gave its last heartbeat" in said
    assert said.endswith("Wait for it to end, or choose another folder")


def test_a_lock_whose_holder_is_silent_comes_with_what_to_do_where_its_host_is_dead(held):
    then = time.time() - 600
    os.utime(held.path / PROGRESS, (then, then))
    said = refusal(held)
    assert "is locked by process 12 on n0 (Slurm job 7), which gave its last heartbeat 10 min" in said
    assert "If n0 is dead, its file server frees the lock some time later: give the same command again" in said
    assert f"remove {held.path / 'run.lock'} to continue at once" in said


def test_signs_of_life_of_an_earlier_run_are_not_those_of_the_process_that_holds_the_lock(held):
    (held.path / "run.lock").write_text(f"process 99 on {socket.gethostname()}\n")
    assert "heartbeat" not in refusal(held)
