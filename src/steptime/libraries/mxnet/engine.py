"""Marks in the queue of MXNet's engine: when it got there, noted without holding up the program that feeds it."""

import ctypes
import threading
import time
from typing import Any, Dict, List

import mxnet
from mxnet.base import _LIB, check_call

from steptime.worker.clock import EventClock, HostClock, StepClock

_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_CPU = 1
_PRIORITIZED = 2
"""Runs the mark in a thread of the engine's pool for urgent work, so that no computation waits for it."""


class _EngineDevice(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int), ("number", ctypes.c_int32))


def step_clock(arrays: List[Any]) -> StepClock:
    """Return a clock whose steps end when everything that was issued to write ``arrays`` has been written.

    It marks the end in the engine, as an event does on a device: waiting for the engine after each step would
    keep it idle while Python issues the next, which no training does. A library without the engine's interface
    for foreign functions (MXNet before 1.6) gets a clock that waits.
    """
    if not can_mark():
        return HostClock(mxnet.nd.waitall)
    marks, written = EngineMarks(), EngineArrays(arrays)
    return EventClock(lambda: marks.push(written), lambda earlier, later: later.at_s - earlier.at_s, marks.wait)


def can_mark() -> bool:
    """Say whether this library has the engine's interface for foreign functions."""
    return hasattr(_LIB, "MXEnginePushSyncND")


class EngineArrays(object):
    """Arrays in the form in which the engine takes them."""

    def __init__(self, arrays: List[Any]) -> None:
        self.handles = (ctypes.c_void_p * len(arrays))(*[array.handle for array in arrays])
        self._arrays = arrays  # the handles are theirs


class EngineMark(object):
    """``at_s`` is the host's monotonic time of the moment, once it has come and ``reached`` is set."""

    def __init__(self) -> None:
        self.at_s = None
        self.reached = threading.Event()


class EngineMarks(object):
    """Functions in the engine's queue that read arrays, and with that wait for whoever writes them."""

    def __init__(self) -> None:
        self._device = _EngineDevice(_CPU, 0)
        self._property = ctypes.c_int(_PRIORITIZED)
        self._pending: Dict[Any, Any] = {}
        self._count = 0
        self._reach = _CALLBACK(self._reached)

    def push(self, arrays: Any) -> "EngineMark":
        """Return a mark behind everything issued so far that writes one of ``arrays``, which are ``Arrays``."""
        mark = EngineMark()
        self._count += 1
        self._pending[self._count] = mark
        check_call(
            _LIB.MXEnginePushSyncND(
                self._reach,
                ctypes.c_void_p(self._count),
                None,
                ctypes.byref(self._device),
                arrays.handles,
                len(arrays.handles),
                None,
                0,
                ctypes.byref(self._property),
                0,
                b"steptime mark",
            )
        )
        return mark

    def wait(self) -> None:
        """Wait until the engine is idle and all marks are reached."""
        mxnet.nd.waitall()
        for mark in list(self._pending.values()):
            mark.reached.wait()

    def _reached(self, _: Any, number: int) -> None:
        now = time.monotonic()
        mark = self._pending.pop(number)
        mark.at_s = now
        mark.reached.set()
