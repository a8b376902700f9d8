"""Processes that a launch left behind: found by the marks in their environment, and ended.

The host agent of a host imports this, so that it needs the standard library only.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from steptime.process_identity import ProcessIdentity, pid_namespace, start_ticks

_MARK = b"STEPTIME_RUN="
_RUNNER = b"STEPTIME_RUNNER="
_END_S = 10.0
"""How long the kernel may take to end a killed process; one that waits for a dead disk can take for ever."""
_POLL_S = 0.005


class MarkedProcess(NamedTuple):
    """A process that carries the marks of a launch, also where its number was given to another one meanwhile."""

    pid: int
    started: int
    """In ticks since boot."""

    @property
    def runs(self) -> bool:
        """Whether it has not ended; a zombie has, and stays where process 1 reaps nothing."""
        return start_ticks(self.pid) == self.started


def marked(marker: str) -> list[MarkedProcess]:
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

    The runner of processes on another host is the host agent that started them. Only processes of this user and of this
    PID namespace are touched, and of these only those whose marks name a runner that ran here, since this boot, and has
    ended. Everybody writes the environment of their own processes as they like: marks that cannot be read are no marks.
    """
    here = pid_namespace()
    found = [
        process
        for process, _, runner in _marked_processes()
        if (identity := ProcessIdentity.parse(runner)) and identity.has_ended and pid_namespace(process.pid) == here
    ]
    _kill(found)
    return len(found)


def end_after_runner(marker: str) -> None:
    """End the processes of the launch ``marker`` when the standard input ends, as it does when its other end dies.

    They are asked first: who watches over a container removes it when its program ends well.
    """
    while os.read(0, 1):
        pass
    left = marked(marker)
    for each in left:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(each.pid, signal.SIGTERM)
    await_ends(left)
    end_marked(marker)


def await_ends(processes: Sequence[MarkedProcess], limit_s: float = _END_S) -> bool:
    """Wait until none of ``processes`` runs, whoever their parents are; return whether all ended in time."""
    deadline = time.monotonic() + limit_s
    while any(each.runs for each in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _kill(processes: Sequence[MarkedProcess]) -> bool:
    for each in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if each.runs:
                os.kill(each.pid, signal.SIGKILL)
    return await_ends(processes)


def _marked_processes() -> Iterator[tuple[MarkedProcess, str, str]]:
    """Yield this user's processes that carry the marks of a launch, with the mark and the runner that they name."""
    if Path("/proc/self").resolve().name != str(
        os.getpid()
    ):  # another PID namespace's /proc, whose numbers name others here
        return
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        started = start_ticks(pid)  # before its environment: it then knows its number given to another process
        if started is None or pid == os.getpid():
            continue
        try:
            if _real_user(folder) != os.getuid():
                continue
            variables = (folder / "environ").read_bytes().split(b"\0")
        except (OSError, StopIteration):  # ended meanwhile, or not ours to look at
            continue
        mark, runner = (
            next((item[len(name) :].decode("ascii", "replace") for item in variables if item.startswith(name)), "")
            for name in (_MARK, _RUNNER)
        )
        if mark and runner:
            yield MarkedProcess(pid, started), mark, runner


def _real_user(folder: Path) -> int:
    lines = (folder / "status").read_bytes().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(b"Uid:")))
