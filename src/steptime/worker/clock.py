"""Step clocks: when did each step end?

A clock is ticked once after every step and drained once after the last. Ends are seconds on this host's monotonic
clock, so that the ends of several workers of one host can be compared.
"""

import time


class HostClock(object):
    """Waits for the step to finish, then reads the host's monotonic clock; exact for host computation."""

    def __init__(self, wait):
        """``wait`` is a callable that returns when all work of the step is done."""
        self._wait = wait
        self._ends = []

    def tick(self):
        """Mark the end of the step that was just issued."""
        self._wait()
        self._ends.append(time.monotonic())

    def drain(self):
        """Return the ends marked since the last drain, in seconds, oldest first."""
        ends, self._ends = self._ends, []
        return ends


class EventClock(object):
    """Marks each step's end with a device event, and reads the events only when drained.

    The host is never held up inside the measured window, so it may run ahead of the device as it does in real
    training. ``new_event`` returns a recorded event; ``elapsed_s`` gives the seconds between two events;
    ``synchronize`` waits for the device.
    """

    def __init__(self, new_event, elapsed_s, synchronize):
        self._new_event = new_event
        self._elapsed_s = elapsed_s
        self._synchronize = synchronize
        self._events = []

    def tick(self):
        """Record an event behind the step that was just issued."""
        self._events.append(self._new_event())

    def drain(self):
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
