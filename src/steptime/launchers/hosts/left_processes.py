"""Processes that a killed far end has left on this host: found by the marks in their environment, and ended.

A far end ends what it started; only where it was killed with SIGKILL, and what it started did not notice, is something
left. The standard library suffices, since the far end imports this. ``launchers/orphans.py`` does the same for launches
of this host's own runner.
"""

import contextlib
import os
import signal
import time

from steptime.launchers.hosts.host_files import listed
from steptime.process_identity import ProcessIdentity, pid_namespace, start_ticks

_MARK = b"STEPTIME_RUN="
_RUNNER = b"STEPTIME_RUNNER="
_END_S = 10.0
"""How long the kernel may take to end a killed process; one that waits for a dead disk can take for ever."""
_POLL_S = 0.01


def end_left_processes() -> int:
    """Kill the processes of launches whose far end is known to have ended, wait for their ends; return their number.

    Only processes of this user and of this PID namespace are touched, and of these only those whose marks name a far
    end that ran here, since this boot, and has ended. Marks that cannot be read are no marks.
    """
    here, found = pid_namespace(), {}
    for pid in (int(name) for name in listed("/proc") if name.isdigit()):
        started = start_ticks(pid)
        if started is None or pid == os.getpid() or not _was_left(pid) or pid_namespace(pid) != here:
            continue
        if start_ticks(pid) == started:  # the number is not that of another process meanwhile
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                found[pid] = started
    deadline = time.monotonic() + _END_S
    while any(start_ticks(pid) == started for pid, started in found.items()) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return len(found)


def _was_left(pid: int) -> bool:
    """Whether a process is this user's and carries the marks of a launch whose far end has ended."""
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.getuid():  # noqa: PTH116 - as in the far end
            return False
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
            variables = file.read().split(b"\0")
    except OSError:  # ended meanwhile, or not this user's to look at
        return False
    mark, runner = (
        next((each[len(name) :].decode("ascii", "replace") for each in variables if each.startswith(name)), "")
        for name in (_MARK, _RUNNER)
    )
    identity = ProcessIdentity.parse(runner) if mark else None
    return identity is not None and identity.has_ended
