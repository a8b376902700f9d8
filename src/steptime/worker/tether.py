"""The tether of a process to its parent: the kernel kills the process when its parent dies.

Run as a program (``python tether.py mpiexec …``), it tethers itself and then becomes the other program: the tether
outlives ``exec``, which lets the runner tether launchers that have no such option.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies; does nothing where the kernel cannot (not Linux)."""
    if not sys.platform.startswith("linux"):
        return
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        return
    # The parent may have died before the request was made; the kernel would then never kill this process.
    expected = os.environ.get("STEPTIME_PARENT")
    if expected and os.getppid() == 1 and int(expected) != 1 and not _in_other_processes():
        os.kill(os.getpid(), signal.SIGKILL)


def _in_other_processes() -> bool:
    """Whether this process has another PID namespace than the runner, as in a container: 1 is its first process."""
    fields = os.environ.get("STEPTIME_RUNNER", "").split(":")
    try:
        return fields[2] not in ("0", str(os.stat("/proc/self/ns/pid").st_ino))
    except (IndexError, OSError):
        return False


if __name__ == "__main__":
    die_with_parent()
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - no shell is wanted
