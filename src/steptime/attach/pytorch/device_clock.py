"""The clock of a device beside that of the host, and for how long the device was without work between two marks."""

from __future__ import annotations

from collections import deque
from typing import Any, Sequence

from ..record_file import now

# Steps by which the distance of both clocks is known: they drift.
WINDOW = 64
UNSEEN = 1 << 62
# A device passes a mark so late that is handed over while it has no work.
LATE_NS = 50_000


class DeviceMark:
    """An event on a stream: when the host handed it over, between when the device passed it, and when by its clock."""

    __slots__ = ("at", "earliest", "event", "handed", "latest")

    def __init__(self, event: Any, handed: int) -> None:
        self.event = event
        self.handed = self.earliest = handed
        self.latest = UNSEEN
        self.at = 0

    def is_passed(self) -> bool:
        """Return whether the device has passed it; nothing waits."""
        asked = now()
        passed = bool(self.event.query())
        if passed:
            self.latest = min(self.latest, now())
        else:
            self.earliest = max(self.earliest, asked)
        return passed


class DeviceClock:
    """Nanoseconds on the device since its first mark, and between which bounds the host's clock is ahead."""

    def __init__(self) -> None:
        self.last: DeviceMark | None = None  # of the step before
        self.bounds: deque[tuple[int, int]] = deque(maxlen=WINDOW)

    def read(self, marks: Sequence[DeviceMark]) -> None:
        """Read when the device passed ``marks``, which it has."""
        since = self.last or marks[0]
        for mark in marks:
            mark.at = since.at + round(since.event.elapsed_time(mark.event) * 1e6)
        low = max(mark.earliest - mark.at for mark in marks)
        self.bounds.append((low, min(mark.latest - mark.at for mark in marks)))

    def waited(self, marks: Sequence[DeviceMark]) -> list[int]:
        """Return how long at least, and at most, the device had passed a mark before the next was handed over.

        It may have worked meanwhile on what was handed over between the two. Where it passes the second one late, it
        had work all along, if work is handed over evenly. ``marks`` are in the order of the host.
        """
        ahead = max(low for low, _ in self.bounds)
        sums = []
        for distance in (max(ahead, min(high for _, high in self.bounds)), ahead):
            waited, done = 0, marks[0].at
            for mark in marks[1:]:
                if mark.at + distance - mark.handed < LATE_NS:
                    waited += max(0, min(mark.handed - done - distance, mark.at - done))
                done = max(done, mark.at)
            sums.append(waited)
        return sums
