"""The ablated step in MXNet: the same symbol and the same engine, with stages left out.

Nothing here waits for the engine more often than a training step does; the engine itself notes when a stage ends.

Marks in the queue of MXNet's engine: when it got there, noted without holding up the program that feeds it.
"""

import ctypes
import threading
import time
from typing import Any, Callable, Dict, List, Optional

import mxnet
from mxnet.base import _LIB, check_call

from steptime.worker.clock import EventClock, HostClock, StepClock
from steptime.worker.session import AblatedStep

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


_BYTES = 4


class MXNetAblation(AblatedStep):
    """Stages that are issued to the engine.

    ``written``
        The arrays that a stage may write last: when all of them are written, the stage is over.
    """

    def __init__(self, bound: Any, update: Any, batches: Any, steps_ahead: int, *, cuda: bool) -> None:
        """Take a session's parts, how many steps the engine may fall behind, and whether on a CUDA device."""
        self._cuda = cuda
        self._bound = bound
        self._update = update
        self._batches = batches
        self._steps_ahead = steps_ahead
        self._issued = 0
        self._transfers: List[List[Any]] = []
        weights, gradients = list(bound.weights.values()), list(bound.gradients.values())
        self.written = weights + gradients + [bound.losses]
        self.marks = ()
        if can_mark():
            exchange = ("exchange",) if update.arriving else ()
            self.marks = ("input", "backward") + exchange + (("update",) if update.updates_here else ())
            self._engine = EngineMarks()
            self._weights, self._gradients = EngineArrays(weights), EngineArrays(gradients)
            self._arriving = EngineArrays(list(update.arriving))
            self._pieces = [
                (name, _BYTES * gradient.size, EngineArrays([gradient]), EngineArrays([arriving]))
                for (name, gradient), arriving in zip(bound.gradients.items(), update.arriving)
            ]

    def stages(self) -> Dict[str, Callable[[], Any]]:
        bound, update = self._bound, self._update
        held = next(self._batches)

        def forward() -> None:
            self._keep_near(bound.losses)
            bound.propagate(*held)

        def backward() -> None:
            self._keep_near(bound.losses)
            bound.backpropagate(*held)

        def local() -> None:
            backward()
            update.apply()

        def exchange() -> None:
            backward()
            update.step()

        def communication() -> None:
            self._keep_near(update.arriving[0])  # the first layer's, which goes first
            update.exchange()

        def h2d() -> None:
            self._keep_near(bound.losses)
            bound.backpropagate(*next(copies))
            update.step()

        stages = {"forward": forward, "backward": backward, "input": self._load}
        if self._cuda:
            copies = self._batches.copies()
            stages["h2d"] = h2d
        if update.updates_here:
            stages["local"] = local
        if update.arriving:
            stages.update(exchange=exchange, communication=communication)
        return stages

    def _keep_near(self, array: Any) -> None:
        """Wait as a training step waits, for an array of the last step."""
        self._issued += 1
        if self._issued % self._steps_ahead == 0:
            array.wait_to_read()

    def _load(self) -> Any:
        batch = next(self._batches)
        for array in batch:  # no clock sees a batch that the engine has yet to make
            array.wait_to_read()
        return batch

    def marked_step(self, mark: Callable[..., None]) -> None:
        # Everything is issued before anything is waited for, so that the engine works as in training, except that it
        # is idle while the first operators of the next step are issued.
        engine, update = self._engine, self._update
        batch = self._load()
        mark("input")
        self._bound.backpropagate(*batch)
        # The forward pass has no mark: the engine lets backward begin before it writes the losses.
        ready = [engine.push(gradient) for _, _, gradient, _ in self._pieces]
        reached = [("backward", engine.push(self._gradients))]
        if update.arriving:
            update.exchange()
            done = [engine.push(arriving) for _, _, _, arriving in self._pieces]
            reached.append(("exchange", engine.push(self._arriving)))
        if update.updates_here:
            update.apply()
            reached.append(("update", engine.push(self._weights)))
        for phase, end in reached:
            end.reached.wait()
            mark(phase)
        if update.arriving:
            self._note(ready, done)

    def _note(self, ready: Any, done: Any) -> None:
        found = []
        for (name, size, _, _), start, end in zip(self._pieces, ready, done):
            end.reached.wait()
            # Threads of the engine note both, and Python may let the later one go first.
            found.append([name, size, start.at_s, max(start.at_s, end.at_s)])
        self._transfers += sorted(found, key=lambda piece: piece[2])

    def transfers(self) -> Optional[List[List[Any]]]:
        found, self._transfers = self._transfers, []
        return found if self._update.arriving else None
