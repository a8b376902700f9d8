"""Moments at which MXNet's engine gets somewhere, noted without holding up the program that feeds it."""

import ctypes
import threading
import time

import mxnet
from mxnet.base import _LIB, check_call

from steptime.worker.clock import EventClock, HostClock

_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_CPU = 1
_PRIORITIZED = 2
"""Runs the mark in a thread of the engine's pool for urgent work, so that no computation waits for it."""


class _Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int), ("number", ctypes.c_int32))


def step_clock(arrays):
    """Return a clock whose steps end when everything that was issued to write ``arrays`` has been written.

    It marks the end in the engine, as an event does on a device: waiting for the engine after each step would
    keep it idle while Python issues the next, which no training does. A library without the engine's interface
    for foreign functions (MXNet before 1.6) gets a clock that waits.
    """
    if not hasattr(_LIB, "MXEnginePushSyncND"):
        return HostClock(mxnet.nd.waitall)
    marks = _Marks(arrays)
    return EventClock(marks.push, lambda earlier, later: later.at_s - earlier.at_s, marks.wait)


class _Mark(object):
    """``at_s`` is the host's monotonic time of the moment, once it has come."""

    def __init__(self):
        self.at_s = None
        self.reached = threading.Event()


class _Marks(object):
    """Functions in the engine's queue that read a set of arrays, and with that wait for whoever writes them."""

    def __init__(self, arrays):
        self._handles = (ctypes.c_void_p * len(arrays))(*[array.handle for array in arrays])
        self._arrays = arrays  # the handles are theirs
        self._device = _Device(_CPU, 0)
        self._property = ctypes.c_int(_PRIORITIZED)
        self._pending = {}
        self._count = 0
        self._reach = _CALLBACK(self._reached)

    def push(self):
        """Return a mark behind everything issued so far."""
        mark = _Mark()
        self._count += 1
        self._pending[self._count] = mark
        check_call(
            _LIB.MXEnginePushSyncND(
                self._reach,
                ctypes.c_void_p(self._count),
                None,
                ctypes.byref(self._device),
                self._handles,
                len(self._handles),
                None,
                0,
                ctypes.byref(self._property),
                0,
                b"step end",
            )
        )
        return mark

    def wait(self):
        """Wait until the engine is idle and all marks are reached."""
        mxnet.nd.waitall()
        for mark in list(self._pending.values()):
            mark.reached.wait()

    def _reached(self, _, number):
        now = time.monotonic()
        mark = self._pending.pop(number)
        mark.at_s = now
        mark.reached.set()
