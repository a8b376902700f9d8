"""A row of nccl-tests: its columns by the table's header, and its time, which size and rates must confirm.

Numbers are printed in seven characters, so that a long time has two digits (``1.2e+07``): what confirms it is as wide
as its last digit, and the time is taken from the number that is printed more precisely.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from steptime.units import PrintedNumber, parse_printed

LARGEST = 1e15
"""Bytes or microseconds that no run has."""
_HEADER = re.compile(r"\bsize\s+count\s+type\s+redop\s+(\S.*)$")
_TIME, _CALL_TIME = "time", "cputime"
_MICRO, _GIGA = 1e-6, 1e9
_ROUNDING = 0.02
_PRINTED = 0.006
"""GB/s by which two decimals are off."""
_PRECISE = 0.01  # so far two rates may be off whose ratio gives the number of ranks
_LEAST_US = 1e-3
_SHOWN = 60
CALL_TIMES = "its times are of the calls (cputime, -C 1), not of the exchange; run all_reduce_perf without -C"


@dataclass(frozen=True)
class NcclRow:
    """An all-reduce of one size; seconds."""

    size: int
    """Bytes of each rank."""
    out_of_place_s: float
    in_place_s: float | None

    @property
    def seconds(self) -> float:
        """The mean of both, which differ by chance: an all-reduce in place moves the same bytes."""
        return self.out_of_place_s if self.in_place_s is None else (self.out_of_place_s + self.in_place_s) / 2


@dataclass(frozen=True)
class Columns:
    """The columns of a table behind that of the reduction."""

    names: tuple[str, ...]

    @property
    def times(self) -> tuple[int, ...]:
        """Where the time of an all-reduce is, out of place and in place."""
        return tuple(place for place, name in enumerate(self.names) if name == _TIME)

    @property
    def mistake(self) -> str | None:
        """Why no time can be taken from such a table."""
        if _CALL_TIME in self.names:
            return CALL_TIMES
        if any(self.names[place + 1 : place + 3] != ("algbw", "busbw") for place in self.times) or not self.times:
            return f"its header has no column time followed by algbw and busbw (it has {' '.join(self.names)})"
        return None


def columns_in(line: str) -> Columns | None:
    """Return the columns that a line names; None of a line that is not a header."""
    header = _HEADER.search(line)
    return Columns(tuple(header[1].split())) if header else None


class Measurement(NamedTuple):
    """What was read from a row."""

    row: NcclRow
    bus_ratio: float | None
    """``busbw`` over ``algbw``; None if both are too small or too coarse."""
    wrong_values: bool


def measured(size: int, words: Sequence[str], columns: Columns | None) -> Measurement | None:
    """Return what the words behind the reduction mean; None for a row that is cut.

    Without a header the column ``root`` may be missing, as in old versions, where a whole number is the time. The
    reading is right in which size over time is ``algbw``.

    Raises ValueError if no reading is consistent.
    """
    refused: ValueError | None = None
    for starts in (columns.times,) if columns else ((1, 5), (0, 4)):
        groups = [words[first : first + 4] for first in starts]
        groups = [group for group in groups if len(group) >= 3]  # noqa: PLR2004 - time, algbw and busbw
        if not groups:
            continue
        try:
            times, ratios = zip(*(_time(size, group[:3]) for group in groups), strict=True)
        except ValueError as error:
            # Of two readings that fail, the one that takes a whole number for the root is the likelier.
            refused = refused or error
            continue
        # Behind the rates is #wrong, in old versions the error, a fraction.
        counted = [int(text[:9]) for group in groups for text in group[3:] if text.isdecimal()]
        row = NcclRow(size, times[0], times[1] if len(times) > 1 else None)
        return Measurement(row, ratios[-1], any(counted))
    if refused:
        raise refused
    return None


def _time(size: int, group: Sequence[str]) -> tuple[float, float | None]:
    """Return seconds and the ratio of ``busbw`` to ``algbw``; raises ValueError if they contradict each other."""
    try:
        time_us, algorithm, bus = map(parse_printed, group)
    except ValueError:
        message = f"{' '.join(group)[:_SHOWN]!r} is not a time in microseconds with two rates in GB/s"
        raise ValueError(message) from None
    return checked_time(size, time_us, algorithm, bus)


def checked_time(
    size: int, time_us: PrintedNumber, algorithm: PrintedNumber, bus: PrintedNumber | None
) -> tuple[float, float | None]:
    """Return seconds and the ratio of ``busbw`` to ``algbw``, None if they are too coarse.

    Raises ValueError where size, time and ``algbw`` contradict each other beyond the digits that were printed.
    """
    if not (math.isfinite(time_us.value) and _LEAST_US < time_us.value < LARGEST and 0 < size < LARGEST):
        message = f"{size} bytes in {time_us.value:g} microseconds cannot be"
        raise ValueError(message)
    expected = size / (time_us.value * _MICRO) / _GIGA
    allowed = (_ROUNDING + time_us.relative) * expected + max(_PRINTED, algorithm.off)
    if not abs(algorithm.value - expected) <= allowed:
        message = f"{size} bytes in {time_us.value:g} microseconds are {expected:.2f} GB/s, not {algorithm.value:g}"
        raise ValueError(message)
    seconds = time_us.value * _MICRO
    if algorithm.value > 0.0 and algorithm.relative < time_us.relative:
        seconds = size / algorithm.value / _GIGA
    if bus is None or not math.isfinite(bus.value) or algorithm.value < 1.0:
        return seconds, None
    return seconds, bus.value / algorithm.value if algorithm.relative + bus.relative <= _PRECISE else None
