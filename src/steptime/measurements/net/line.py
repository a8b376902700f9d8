"""The straight line through times against sizes: a start, and seconds per byte."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls  # type: ignore[import-untyped]  # scipy ships no types

from steptime.measurements.interval import LEVEL, half_width_between
from steptime.measurements.json_form import Interval


@dataclass(frozen=True)
class Line:
    """``start_s + per_byte_s * bytes``."""

    start_s: float
    per_byte_s: float

    def at(self, sizes: ArrayLike) -> NDArray[np.float64]:
        """Return the seconds of messages of so many bytes."""
        return self.start_s + self.per_byte_s * np.asarray(sizes, dtype=np.float64)

    @classmethod
    def of_fit(cls, start_s: float, volume: float, bytes_per_s: float | None) -> "Line":
        """Return the line of a fit; without a bandwidth the time does not grow with the size.

        Args:
            start_s: of a message without a byte.
            volume: bytes through the busiest link per byte of the message.
            bytes_per_s: of that link.
        """
        return cls(start_s, volume / bytes_per_s if bytes_per_s else 0.0)


_POINTS = 40
"""Points of a line: a straight one is bent where axes are logarithmic."""


def line_points(line: Line, smallest: float, largest: float) -> list[tuple[float, float]]:
    """Return points ``(bytes, seconds)`` of ``line``, equally far apart on a logarithmic axis of sizes."""
    sizes = np.geomspace(smallest, largest, _POINTS)
    return list(zip(sizes.tolist(), line.at(sizes).tolist(), strict=True))


Method = Callable[[NDArray[np.float64], NDArray[np.float64]], Line]
"""Takes ascending sizes in bytes and their seconds."""


def through_ends(sizes: NDArray[np.float64], seconds: NDArray[np.float64]) -> Line:
    """Return the line through the smallest and the largest size.

    What lies between is bent by buffers, bursts and switches of algorithm, which no line follows; the smallest size
    knows the latencies best and the largest the bandwidth.
    """
    per_byte = max((seconds[-1] - seconds[0]) / (sizes[-1] - sizes[0]), 0.0)
    return Line(float(max(seconds[0] - per_byte * sizes[0], 0.0)), float(per_byte))


def least_squares(sizes: NDArray[np.float64], seconds: NDArray[np.float64]) -> Line:
    """Return the line with the least sum of squared relative errors; neither number is negative."""
    terms = np.column_stack([np.ones_like(sizes), sizes]) / seconds[:, None]
    # Bytes are millions and the start is one: in units of the largest size both columns are of one magnitude.
    scale = np.array([1.0, sizes[-1]])
    (start, per_largest), _ = nnls(terms / scale, np.ones_like(sizes))
    return Line(float(start), float(per_largest / scale[1]))


METHODS: dict[str, Method] = {"ends": through_ends, "least_squares": least_squares}
PREFERRED = "ends"
"""What predicts best: docs/decisions/0008-net.md."""


def bounded(values: Sequence[float], value: float, level: float = LEVEL) -> Interval:
    """Return ``value`` with the interval that the units' own ``values`` give it: ± t(n - 1) sd / sqrt(n).

    On a logarithmic scale where all are positive, so that a time's interval is that of its inverse.
    """
    found = np.asarray(values, dtype=np.float64)
    if len(found) < 2:  # noqa: PLR2004 - a spread needs two
        return Interval(value, None, None)
    if value > 0 and np.all(found > 0):
        half_width = float(half_width_between(np.log(found), level))
        return Interval(value, value * float(np.exp(-half_width)), value * float(np.exp(half_width)))
    half_width = float(half_width_between(found, level))
    return Interval(value, value - half_width, value + half_width)
