"""Moments that the kernel notes: a second clock beside that of the steps, which no code of a process can have changed.

A mark is a message of this process to itself, on which the kernel writes when it was sent: some microseconds.
"""

import contextlib
import socket
import struct
import time
from typing import List, Optional, Tuple

_STAMPED = 35
"""Linux's SO_TIMESTAMPNS, which Python has no name for."""
_STAMP = struct.Struct("@qq")
"""Seconds and nanoseconds of the system's clock."""
_SET_S = 1e-3
"""By how much that clock may have been set meanwhile."""
_READINGS = 5


class KernelMarks(object):
    """The marks of one stretch of steps, a context manager; none where no message is stamped, or the clock was set."""

    def __init__(self) -> None:
        self._marks: List[Tuple[int, float, bool]] = []
        self._first: Optional[Tuple[int, int]] = None
        self._ends: Tuple[socket.socket, ...] = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with contextlib.suppress(OSError):
            self._ends[1].setsockopt(socket.SOL_SOCKET, _STAMPED, 1)
        self.put(0, over=False)  # the first takes longest
        self._marks, self._first, self._ahead_s = [], None, _system_ahead_s()

    def __enter__(self) -> "KernelMarks":  # noqa: PYI034 - Self is newer than Python 3.6
        return self

    def __exit__(self, *_: object) -> None:
        for end in self._ends:
            end.close()

    def put(self, moments: int, over: bool) -> None:
        """Mark that the step clock has marked so many ``moments``, and whether the last of them is ``over``.

        The next moment lies behind this one in any case.
        """
        self._ends[0].send(b".")
        _, found, _, _ = self._ends[1].recvmsg(1, 64)
        for _, _, stamp in found:
            now = _STAMP.unpack(stamp)
            first = self._first = self._first or now
            self._marks.append((moments, now[0] - first[0] + (now[1] - first[1]) * 1e-9, over))

    def read(self) -> List[Tuple[int, float, bool]]:
        """Return ``[moments, seconds since the first mark, over]`` of each mark."""
        return [] if abs(_system_ahead_s() - self._ahead_s) > _SET_S else self._marks


def _system_ahead_s() -> float:
    """Return how far the system's clock is ahead of the monotonic one, by the quickest of several readings."""
    found = []
    for _ in range(_READINGS):
        before, now, after = map(time.clock_gettime, (time.CLOCK_MONOTONIC, time.CLOCK_REALTIME, time.CLOCK_MONOTONIC))
        found.append((after - before, now - before))
    return min(found)[1]
