"""Whether a signal that came to this process was sent to its whole group, and so to a command in it as well.

The kernel does not say: ``kill 0``, ``timeout``, ``kill %1``, batch systems and Ctrl-C send to all of a group or job,
and ``kill PID``, a container and a terminal that is closed to one process. A second process of the group, which
blocks every signal, keeps pending what it was sent.
"""

import contextlib
import os
import signal
from pathlib import Path

_SHELL = "/bin/sh"
_WAITS = [_SHELL, "-c", "read _"]
"""Ends once the pipe that it reads is closed, so also when this process is killed."""
_PENDING = "ShdPnd:"
"""The line of /proc with the signals that wait for a process as a whole, bit 0 for signal 1 (proc(5))."""


class GroupWitness:
    """A process of this one's group that only keeps the signals that it was sent."""

    def __init__(self) -> None:
        self._pid: int | None = None
        self._pipe: int | None = None
        self.renew()

    def has_got(self, number: int) -> bool:
        """Return whether it got a signal since it was renewed; False where that cannot be seen."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            text = Path(f"/proc/{self._pid}/status").read_text()
            return bool(int(text.partition(_PENDING)[2].split()[0], 16) >> (number - 1) & 1)
        return False

    def renew(self) -> None:
        """Forget what it got."""
        self.close()
        with contextlib.suppress(OSError):  # without one, every signal is passed on
            read, self._pipe = os.pipe()
            streams = [
                (os.POSIX_SPAWN_DUP2, read, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ]
            try:
                self._pid = os.posix_spawn(_SHELL, _WAITS, {}, file_actions=streams, setsigmask=signal.valid_signals())
            finally:
                os.close(read)

    def close(self) -> None:
        """End it."""
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)  # it may be stopped
            os.waitpid(self._pid, 0)
        if self._pipe is not None:
            os.close(self._pipe)
        self._pid = self._pipe = None
