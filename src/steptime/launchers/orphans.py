"""Processes that a launch left behind: found by the marks in their environment, and ended."""

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

_MARK = b"STEPTIME_RUN="
_PARENT = b"STEPTIME_PARENT="
_END_S = 10.0
"""How long the kernel may take to end a killed process; one that waits for a dead disk can take for ever."""
_POLL_S = 0.005


def marked(marker: str) -> list[psutil.Process]:
    """Return the processes of the launch ``marker``.

    To be called before they are ended: a process that is ending has no environment any more, so that its mark
    cannot be read, and yet runs on for a moment.
    """
    return [process for process, mark, _ in _marked_processes() if mark == marker]


def end_marked(marker: str) -> int:
    """Kill every process of the launch ``marker`` and wait for its end; return how many there were."""
    count = 0
    while found := marked(marker):  # what was killed may have started another one meanwhile
        count += len(found)
        if not _kill(found):
            break
    return count


def end_orphans() -> int:
    """Kill the processes of launches whose runner no longer exists and wait for their ends; return their number.

    Only processes that carry steptime's marks are touched, and only those whose runner is gone.
    """
    found = [process for process, _, parent in _marked_processes() if not Path(f"/proc/{parent}").exists()]
    _kill(found)
    return len(found)


def await_ends(processes: Sequence[psutil.Process], limit_s: float = _END_S) -> bool:
    """Wait until none of ``processes`` runs, whoever their parents are; return whether all ended in time."""
    deadline = time.monotonic() + limit_s
    while any(_runs(each) for each in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _runs(process: psutil.Process) -> bool:
    try:  # a zombie has ended; where process 1 reaps nothing, it stays
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _kill(processes: Sequence[psutil.Process]) -> bool:
    for each in processes:
        with contextlib.suppress(psutil.Error):
            each.kill()
    return await_ends(processes)


def _marked_processes() -> Iterator[tuple[psutil.Process, str, int]]:
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        if pid == os.getpid():
            continue
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # ended meanwhile, or another user's
            continue
        mark = next((item[len(_MARK) :] for item in variables if item.startswith(_MARK)), None)
        parent = next((item[len(_PARENT) :] for item in variables if item.startswith(_PARENT)), None)
        if mark and parent:
            with contextlib.suppress(psutil.NoSuchProcess):
                yield psutil.Process(pid), mark.decode(), int(parent)
