"""Tie a process to its parent, so that nothing survives a parent that is killed.

Run as a program, it ties itself and then becomes another program (``python tether.py mpiexec …``): the tie outlives
``exec``, which lets the runner tie launchers that know nothing of it.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent():
    """Ask the kernel to kill this process when its parent dies; does nothing where the kernel cannot (not Linux)."""
    if not sys.platform.startswith("linux"):
        return
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        return
    # The parent may have died before the request was made; the process would then never be told.
    expected = os.environ.get("STEPTIME_PARENT")
    if expected and os.getppid() == 1 and int(expected) != 1:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    die_with_parent()
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - no shell is wanted
