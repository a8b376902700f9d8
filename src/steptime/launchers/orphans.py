"""Find and end processes that a launch left behind, by the marks in their environment."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

_MARK = b"STEPTIME_RUN="
_PARENT = b"STEPTIME_PARENT="


def end_marked(marker: str) -> int:
    """Kill every process of the launch ``marker``; return how many there were."""
    return _kill(pid for pid, mark, _ in _marked_processes() if mark == marker)


def end_orphans() -> int:
    """Kill the processes of launches whose runner no longer exists; return how many there were.

    Only processes that carry steptime's marks are touched, and only those whose runner is gone.
    """
    return _kill(pid for pid, _, parent in _marked_processes() if not Path(f"/proc/{parent}").exists())


def _kill(pids: Iterator[int]) -> int:
    count = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
            count += 1
    return count


def _marked_processes() -> Iterator[tuple[int, str, int]]:
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
            yield pid, mark.decode(), int(parent)
