"""Locks on a file system that refuses flock, held by real processes that are killed."""

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from steptime.errors import StoreError
from steptime.file_lock import FileLock, Lease, locks_one_host_only
from steptime.results.lock import FolderLock
from steptime.results.store import Store

_PROGRAM = Path(__file__).with_name("holding_program.py")
_OTHER_HOST = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
"""Its processes cannot be seen from here, as those of another host."""
_PATIENCE_S = 60.0
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a function that starts the program; what still runs at the end of the test is killed."""
    started = []

    def begin(*arguments: object, within: tuple[str, ...] = ()) -> "subprocess.Popen[str]":
        command = [*within, sys.executable, *map(str, (_PROGRAM, *arguments))]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def _held(process: "subprocess.Popen[str]") -> "subprocess.Popen[str]":
    assert process.stdout.readline().strip() == "held"
    return process


def _lock(path: Path, **limits: float) -> FileLock:
    return FileLock(path, os.open(path, os.O_RDWR | os.O_CREAT), **limits)


def _taken_after(lock: FileLock) -> float:
    """Wait until the lock is free, take it and return the seconds that this took."""
    began = time.monotonic()
    while not lock.take():
        assert time.monotonic() - began < _PATIENCE_S
        time.sleep(0.02)
    return time.monotonic() - began


@pytest.mark.parametrize("lockless", ["ENOLCK", "EOPNOTSUPP", "ENOSYS"], indirect=True)
def test_where_the_file_system_refuses_flock_the_lock_is_a_lease(lockless: Path) -> None:
    with (lockless / "file").open("w") as file, pytest.raises(OSError, match=r"No locks|not supported|not implemented"):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    first, second = _lock(lockless / "lock"), _lock(lockless / "lock")

    assert first.take()
    assert not second.take()
    first.release()
    assert second.take()
    second.release()


def test_four_processes_that_count_under_the_lock_lose_no_count(lockless: Path, start: Start) -> None:
    counting = [start("count", lockless / "lock") for _ in range(4)]

    assert [each.wait(_PATIENCE_S) for each in counting] == [0] * 4
    assert (lockless / "lock.count").read_text() == "200"


def test_the_lock_of_a_killed_process_is_taken_by_the_next(lockless: Path, start: Start) -> None:
    holder = _held(start("hold", lockless / "lock"))
    lock = _lock(lockless / "lock")
    assert not lock.take()

    holder.kill()
    holder.communicate()

    assert _taken_after(lock) < _PATIENCE_S / 2  # and not after the silence of minutes
    lock.release()


def test_the_lock_of_a_process_killed_on_another_host_is_taken_after_its_silence(lockless: Path, start: Start) -> None:
    holder = _held(start("hold", lockless / "lock", within=_OTHER_HOST))
    lock = _lock(lockless / "lock", silence_s=3)
    holder.kill()
    holder.communicate()
    last_sign_s = (lockless / "lock.1").stat().st_mtime

    _taken_after(lock)
    assert time.time() - last_sign_s > 2.9
    lock.release()


def test_a_living_process_on_another_host_keeps_its_lock(lockless: Path, start: Start) -> None:
    _held(start("hold", lockless / "lock", within=_OTHER_HOST))
    lock = _lock(lockless / "lock", silence_s=10)  # the holder gives a heartbeat every 5 s

    deadline = time.monotonic() + 14
    while time.monotonic() < deadline:
        assert not lock.take()
        time.sleep(0.1)
    lock.release()


def test_of_many_that_take_over_from_a_dead_holder_one_succeeds(lockless: Path, start: Start) -> None:
    holder = _held(start("hold", lockless / "lock"))
    takers = [start("try", lockless / "lock") for _ in range(6)]
    holder.kill()
    holder.communicate()
    for taker in takers:
        taker.stdin.write("\n")
    for taker in takers:
        taker.stdin.flush()

    assert sorted(taker.stdout.readline().strip() for taker in takers) == ["False"] * 5 + ["True"]


def test_who_read_an_old_listing_of_the_folder_does_not_take_a_number_that_was_used(lockless: Path) -> None:
    path = lockless / "lock"
    late = Lease(path, os.open(path, os.O_RDWR | os.O_CREAT))
    old = late._highest()
    for _ in range(3):
        other = _lock(path)
        assert other.take()
        last = other
        if _ < 2:
            other.release()
    late._highest = lambda: old

    assert not late.take()
    last.release()


def test_a_holder_that_was_silent_for_too_long_learns_that_another_has_the_lock(lockless: Path) -> None:
    path = lockless / "lock"
    first = Lease(path, os.open(path, os.O_RDWR | os.O_CREAT), beat_s=1.0)
    assert first.take()
    os.utime(path.with_name("lock.1"), (1, 1))

    second = _lock(path, silence_s=600)
    assert second.take()

    deadline = time.monotonic() + _PATIENCE_S
    while not first.lost:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    second.release()


def test_a_results_folder_has_one_writer(lockless: Path, start: Start) -> None:
    holder = _held(start("results", lockless))

    with (
        pytest.raises(StoreError, match=f"process {holder.pid} on .* is writing to it"),
        FolderLock(lockless / "run.lock"),
    ):
        pass


def test_what_was_left_of_a_lease_does_not_keep_results_from_being_made(lockless: Path, start: Start) -> None:
    holder = _held(start("results", lockless))
    holder.kill()
    holder.communicate()

    store = Store.create(lockless, study_text="", study_json={})

    assert store.exists(lockless)


def test_a_writer_whose_results_folder_was_taken_over_writes_no_more(lockless: Path) -> None:
    lock = FolderLock(lockless / "run.lock")
    with lock:
        lock._lock._lease._lost = True
        with pytest.raises(StoreError, match="gave no heartbeat for 10 min"), lock:
            pass


def test_an_environment_has_one_maker_and_its_killed_maker_holds_up_nobody(lockless: Path, start: Start) -> None:
    first = _held(start("environment", lockless / "tiny"))
    second = start("environment", lockless / "tiny")
    assert second.stdout.readline().strip() == "waiting"

    first.kill()
    first.communicate()

    _held(second)


@pytest.mark.parametrize(
    ("kind", "options", "local"),
    [
        ("nfs4", "rw,vers=4.2,local_lock=none", False),
        ("nfs", "rw,vers=3,nolock,local_lock=all", True),
        ("nfs", "rw,vers=3,local_lock=flock", True),
        ("lustre", "rw,flock", False),
        ("lustre", "rw,localflock", True),
        ("ext4", "rw", False),
    ],
)
def test_mounts_whose_flock_holds_on_one_host_only_are_known_by_their_options(
    kind: str, options: str, local: bool, tmp_path: Path
) -> None:
    device = tmp_path.stat().st_dev
    table = tmp_path / "mountinfo"
    table.write_text(
        f"36 35 {os.major(device)}:{os.minor(device)} / /x rw,noatime shared:1 - {kind} server:/x {options}\n"
    )
    with table.open() as file:
        assert locks_one_host_only(file.fileno(), table) is local


def test_where_flock_holds_on_one_host_only_the_lock_is_a_lease(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("steptime.file_lock.locks_one_host_only", lambda _: True)
    lock = _lock(tmp_path / "lock")

    assert lock.take()
    assert (tmp_path / "lock.1").exists()
    lock.release()


def test_where_flock_holds_no_lease_is_written(tmp_path: Path) -> None:
    lock = _lock(tmp_path / "lock")

    assert lock.take()
    assert [each.name for each in tmp_path.iterdir()] == ["lock"]
    lock.release()
