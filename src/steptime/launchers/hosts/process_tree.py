"""The processes below one process, their stops and their end; host agents import it: standard library only.

A process that is a subreaper (prctl(2)) is the parent of all below it whose own parents have ended.
"""

import contextlib
import os
import signal
import time

from steptime.launchers.hosts.host_files import listed, read_text

GRACE_S = 2.0
"""How long processes may take to end after they were asked to."""
_TURN_S = 0.01
_MOST_LOOKS = 20
_ENDED = ("Z", "X", "")


def end_below_self() -> None:
    """End every process below this one, which must be a subreaper, and wait for them."""
    own = os.getpid()
    for pid in living_below(own):
        _signal(pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while living_below(own) and time.monotonic() < deadline:
        _reap()
        time.sleep(_TURN_S)
    while found := living_below(own):
        for pid in found:
            _signal(pid, signal.SIGKILL)
        _reap()
        time.sleep(_TURN_S)


def living_below(top: int) -> list[int]:
    """Return the living processes below a process, by the fastest way that this kernel has."""
    if os.path.exists(f"/proc/{top}/task/{top}/children"):  # noqa: PTH110 - pathlib takes long to import
        return living_by_children(top)
    return living_by_parents(top)


def living_by_children(top: int) -> list[int]:
    """Return the living processes below a process, by the lists that a kernel with CONFIG_PROC_CHILDREN has."""
    found, waiting = [], [top]
    while waiting:
        parent = waiting.pop()
        for thread in listed(f"/proc/{parent}/task"):
            below = [int(pid) for pid in read_text(f"/proc/{parent}/task/{thread}/children").split()]
            waiting += below
            found += [pid for pid in below if _state_and_parent(pid)[0] not in _ENDED]
    return found


def living_by_parents(top: int) -> list[int]:
    """Return the living processes below a process, by the parent that each process of this machine names."""
    for _ in range(_MOST_LOOKS):
        seen = {int(name): _state_and_parent(int(name)) for name in listed("/proc") if name.isdecimal()}
        known = {pid: each for pid, each in seen.items() if each[0]}
        # A parent that ended during the look hides who was below it: those have another parent by now.
        if all(parent in known or not parent for _, parent in known.values()):
            break
    children: dict[int, list[int]] = {}
    for pid, (_, parent) in known.items():
        children.setdefault(parent, []).append(pid)
    found, waiting = [], [top]
    while waiting:
        below = children.get(waiting.pop(), [])
        waiting += below
        found += [pid for pid in below if known[pid][0] not in _ENDED]
    return found


def was_stopped(pid: int) -> bool:
    """Say whether a signal has stopped a child of this process since the last call, even if it was continued since."""
    with contextlib.suppress(ChildProcessError):  # it has ended
        return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WCONTINUED | os.WNOHANG) is not None
    return False


def _state_and_parent(pid: int) -> tuple[str, int]:
    """Return the letter of a process's state and its parent; nothing and 0 where it has ended. See proc(5)."""
    fields = read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (fields[0], int(fields[1])) if len(fields) > 1 else ("", 0)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
