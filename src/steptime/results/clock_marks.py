"""What the kernel noted while a worker's steps were timed, and whether the clock of the steps agrees with it.

Between two marks lie moments of the step clock that neither can have seen in another order: a process that is held up
anywhere puts its marks further apart, so that a right clock never disagrees, however busy the machine is.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from steptime.results.stored_record import STRICT, Count, Seconds
from steptime.units import format_seconds

Mark = tuple[Count, Seconds, bool]
_LEAST_S, _SHARE = 1e-3, 1e-3
"""By how much two right clocks may differ: devices count by an oscillator of their own."""
_UNSETTLED_S, _UNSETTLED_SHARE = 0.1, 0.01
"""How long a process may be held up between its last step and the moment at which it sees that all are over."""


def allowed_s(seconds: float) -> float:
    """Return by how much right clocks may differ over so many seconds."""
    return _LEAST_S + _SHARE * abs(seconds)


@dataclass(frozen=True)
class StoredMarks:
    """The marks of one worker, which a record keeps beside the ends of its steps."""

    __pydantic_config__ = STRICT

    marks: list[Mark]
    """How many moments the step clock had marked (the origin is the first, that of ``settled_s`` the last), seconds of
    the kernel since the first mark, and whether the last of these moments was over; the next one was not begun."""
    settled_s: Seconds
    """The step clock's moment after the last step, when nothing was under way."""

    def mistake(self, origin_s: float, ends_s: Sequence[float]) -> str | None:
        """Return in what the clock that noted a worker's ends contradicts the kernel, or None."""
        moments = [origin_s, *ends_s, self.settled_s]
        counts = [moment for moment, _, _ in self.marks]
        if counts and max(counts) != len(moments):
            return f"has {len(ends_s)} ends of steps, and took {max(counts) - 2} steps"
        allowed = allowed_s(moments[-1] - moments[0])
        earliest = [
            (at_s - moments[count], at_s, moments[count]) for count, at_s, _ in self.marks if count < len(moments)
        ]
        latest = [
            (at_s - moments[count - 1], at_s, moments[count - 1]) for count, at_s, over in self.marks if over and count
        ]
        if earliest and latest:
            (least, *one), (most, *other) = max(earliest), min(latest)
            if least - most > allowed:
                by_kernel, by_clock = (abs(now - then) for now, then in zip(one, other, strict=True))
                return f"counts {format_seconds(by_clock)} where the kernel counts {format_seconds(by_kernel)}"
        unsettled = self.settled_s - moments[-2]
        if unsettled > _UNSETTLED_S + _UNSETTLED_SHARE * (moments[-1] - moments[0]):
            return f"ends the last step {format_seconds(unsettled)} before it was over"
        return None
