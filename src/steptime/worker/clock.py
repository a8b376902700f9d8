"""Step clocks: when did each step end?

A step ends when everything that was issued for it is done, on the device too: the same for all frameworks. A clock is
ticked once after every step and drained once after the last. Ends are seconds on this host's monotonic clock, so that
the ends of several workers of one host can be compared.
"""

import abc
import contextlib
import queue
import threading
import time
from typing import Any, Callable, List, Optional, Tuple


class StepClock(abc.ABC):
    """The interface of all clocks."""

    is_own = True
    """Whether it is read in this process; moments that another process notes are compared with the kernel's there."""

    @abc.abstractmethod
    def tick(self) -> None:
        """Mark the end of the step that was just issued."""

    @abc.abstractmethod
    def drain(self) -> List[float]:
        """Wait for the marked steps; return their ends since the last drain, in seconds, oldest first."""

    def settle(self) -> bool:
        """Wait until the ends of all marked steps are noted; return False where that cannot be known before a drain."""
        return False


class HostClock(StepClock):
    """Waits for the step to finish, then reads the host's monotonic clock; exact for host computation."""

    def __init__(self, wait: Callable[[], Any]) -> None:
        """``wait`` is a callable that returns when all work of the step is done."""
        self._wait = wait
        self._ends: List[float] = []

    def tick(self) -> None:
        """Mark the end of the step that was just issued."""
        self._wait()
        self._ends.append(time.monotonic())

    def settle(self) -> bool:
        """Return at once: a mark waits for its step."""
        return True

    def drain(self) -> List[float]:
        """Return the ends marked since the last drain, in seconds, oldest first."""
        ends, self._ends = self._ends, []
        return ends


class EventClock(StepClock):
    """Marks each step's end with a device event, and reads the events only when drained.

    The host is never held up inside the measured window, so it may run ahead of the device as it does in real
    training. ``new_event`` returns a recorded event; ``elapsed_s`` gives the seconds between two events;
    ``synchronize`` waits for the device.
    """

    def __init__(
        self, new_event: Callable[[], Any], elapsed_s: Callable[[Any, Any], float], synchronize: Callable[[], Any]
    ) -> None:
        self._new_event = new_event
        self._elapsed_s = elapsed_s
        self._synchronize = synchronize
        self._events: List[Any] = []

    def tick(self) -> None:
        """Record an event behind the step that was just issued."""
        self._events.append(self._new_event())

    def settle(self) -> bool:
        """Wait for the device."""
        self._synchronize()
        return True

    def drain(self) -> List[float]:
        """Wait for the device, then return the ends in seconds on the host's monotonic clock.

        The last event is tied to the host clock right after the wait; the earlier ones are placed before it by
        the device's own elapsed times.
        """
        if not self._events:
            return []
        self._synchronize()
        now = time.monotonic()
        last = self._events[-1]
        ends = [now - self._elapsed_s(event, last) for event in self._events]
        self._events = []
        return ends


class WaitingClock(StepClock):
    """Has threads wait for each step's result, and notes when it is there: the loop itself is never held up.

    For frameworks whose device gives no event that can be read later.
    """

    def __init__(
        self,
        newest: Callable[[], Any],
        wait_for: Callable[[Any], Any],
        synchronize: Callable[[], Any],
        at_once: Optional[int] = None,
    ) -> None:
        """Start the threads, which last as long as the process.

        Args:
            newest: returns the result of the step that was just issued.
            wait_for: returns when one result is there.
            synchronize: returns when the device is idle, and raises what a step has raised there.
            at_once: how many results are waited for at once. None has one thread wait for one result after the other,
                for a framework in which each result knows when it is there. A number is for a framework that waits
                for all that was issued before ``wait_for`` was called: ``tick`` then returns when a thread is about to
                call it, so that what is issued next does not count, and the host is so many steps ahead at most.
        """
        self._newest = newest
        self._wait_for = wait_for
        self._synchronize = synchronize
        self._at_once = at_once
        self._given: "queue.Queue[Tuple[_StepEnd, Any]]" = queue.Queue()
        self._step_ends: List[_StepEnd] = []
        for _ in range(at_once or 1):
            threading.Thread(target=self._note, name="step ends", daemon=True).start()

    def tick(self) -> None:
        """Have a thread note the end of the step that was just issued."""
        end = _StepEnd()
        self._step_ends.append(end)
        self._given.put((end, self._newest()))
        if self._at_once:
            end.begun.acquire()

    def settle(self) -> bool:
        """Wait for the device, and for the threads; raises what a step has raised on the device."""
        self._synchronize()
        self._given.join()
        return True

    def drain(self) -> List[float]:
        """Wait for the device, and return the ends marked since the last drain, in seconds, oldest first.

        Raises what a step has raised on the device.
        """
        if not self._step_ends:
            return []
        self.settle()
        ends = sorted(end.at_s for end in self._step_ends)  # two threads may wake in either order
        self._step_ends = []
        return ends

    def _note(self) -> None:
        while True:
            end, result = self._given.get()
            # From here on the thread holds Python's lock until the framework lets go of it and waits.
            end.begun.release()
            with contextlib.suppress(Exception):  # whoever waits next meets the same failure, and reports it
                self._wait_for(result)
            end.at_s = time.monotonic()
            del result
            self._given.task_done()


class _StepEnd(object):
    """When a result was there: ``at_s``, in seconds, once it was; ``begun`` is locked until somebody waits for it."""

    at_s: float

    def __init__(self) -> None:
        self.begun = threading.Lock()
        self.begun.acquire()
