"""Moments that the kernel notes: a second clock beside that of the steps, which no code of a process can have changed.

A mark is a write to a file in memory and a look at the moment of its last change, which takes some microseconds. Before
Linux 6.13 the kernel notes the moment of its last tick, which lies up to ``resolution_s`` earlier.
"""

import contextlib
import os
import time
from typing import Any, Dict, List, Tuple

_FOLDER = "/dev/shm"  # noqa: S108 - in memory on every Linux, where no server far away notes the moments
_COARSE_CLOCK = 5
"""Linux's CLOCK_REALTIME_COARSE, which Python has no name for."""


class KernelMarks(object):
    """The marks of one stretch of steps; none where the system has no folder in memory."""

    def __init__(self) -> None:
        self._marks: List[Tuple[int, int, bool]] = []
        self._file = -1
        with contextlib.suppress(OSError):
            self._file = os.open(_FOLDER, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
            self.put(0, over=False)  # the first takes longest
            self._marks.clear()

    def put(self, moments: int, over: bool) -> None:
        """Mark that the step clock has marked so many ``moments``, and whether the last of them is ``over``.

        The next moment lies behind this one in any case.
        """
        if self._file >= 0:
            os.pwrite(self._file, b".", 0)
            self._marks.append((moments, os.fstat(self._file).st_ctime_ns, over))

    def read(self) -> Dict[str, Any]:
        """Return ``marks`` (``[moments, seconds since the first mark, over]``) and ``resolution_s``; put no more."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        first_ns = self._marks[0][1] if self._marks else 0
        marks = [(moments, (at_ns - first_ns) * 1e-9, over) for moments, at_ns, over in self._marks]
        return {"marks": marks, "resolution_s": time.clock_getres(_COARSE_CLOCK)}
