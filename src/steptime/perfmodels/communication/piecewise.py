"""A back end that does something else from some size on: where its measured times bend, and the line on either side."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls  # type: ignore[import-untyped]  # scipy ships no types

from steptime.perfmodels.communication.carriage import Interconnect, Switch
from steptime.perfmodels.communication.link import Link

Array = NDArray[np.float64]

_FEWEST = 3
"""Sizes on either side of a switch: two lie on some line whatever they are."""
_NUMBERS_OF_A_LINE = 2
_NUMBERS_OF_A_SWITCH = 3
"""Where it is, and another line."""
_CLOSEST = 0.05
"""Relative error below which nothing is explained better: buffers and the scheduler bend times as much."""


@dataclass(frozen=True)
class Piece:
    """Messages of at least a size: ``start_s + per_byte_s n``."""

    size: float
    start_s: float
    per_byte_s: float


def pieces(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[Piece, ...]:
    """Return the line through measured times, or the two lines and the size that parts them.

    A switch is believed when two lines explain the times better than one by the criterion of G. Schwarz (Ann. Stat. 6
    (1978) 461) over relative errors, with at least three sizes on either side. No number of a line is negative.

    Args:
        sizes: bytes, ascending.
        seconds: measured, one per size.

    Raises ValueError for fewer than two sizes, and for times that are not positive.
    """
    size, time = np.asarray(sizes, float), np.asarray(seconds, float)
    if len(size) < _NUMBERS_OF_A_LINE or (time <= 0).any() or (np.diff(size) <= 0).any():
        message = f"a line needs two ascending sizes and positive times, got {list(sizes)} and {list(seconds)}"
        raise ValueError(message)
    whole = _line(size, time)
    best: tuple[Piece, ...] = (_piece(0.0, whole),)
    least = _criterion(_squares(size, time, whole), len(size), _NUMBERS_OF_A_LINE)
    for cut in range(_FEWEST, len(size) - _FEWEST + 1):
        low, high = _line(size[:cut], time[:cut]), _line(size[cut:], time[cut:])
        squares = _squares(size[:cut], time[:cut], low) + _squares(size[cut:], time[cut:], high)
        found = _criterion(squares, len(size), _NUMBERS_OF_A_LINE + _NUMBERS_OF_A_SWITCH)
        if found < least:
            # Nothing was measured between the two sizes: the switch is taken to lie half-way, in orders of magnitude.
            best = (_piece(0.0, low), _piece(float(np.sqrt(size[cut - 1] * size[cut])), high))
            least = found
    return best


def interconnect_of(
    found: Sequence[Piece], steps: float, volume: float, algorithm: str = "ring", *, rendezvous: float = np.inf
) -> Interconnect:
    """Return the interconnect on which an operation takes as long as its pieces say.

    Args:
        found: of ``pieces``.
        steps: of the operation by its textbook algorithm, between the workers that were measured.
        volume: bytes on the busiest link per byte of a message, likewise.
        algorithm: whose steps and volume these are.
        rendezvous: bytes from which messages wait for their receivers.
    """
    links = [
        Link(
            rate=volume / piece.per_byte_s if piece.per_byte_s > 0 else np.inf,
            latency=piece.start_s / steps,
            rendezvous=rendezvous,
        )
        for piece in found
    ]
    switches = [Switch(piece.size, link, algorithm) for piece, link in zip(found[1:], links[1:], strict=True)]
    return Interconnect(links[0], algorithm, switches=tuple(switches))


def _line(sizes: Array, seconds: Array) -> Array:
    """Return start and seconds per byte of the least sum of squared relative errors."""
    terms = np.column_stack([np.ones_like(sizes), sizes]) / seconds[:, None]
    scale = np.array([1.0, sizes[-1]])
    found, _ = nnls(terms / scale, np.ones_like(sizes))
    line: Array = found / scale
    return line


def _piece(size: float, line: Array) -> Piece:
    return Piece(size, float(line[0]), float(line[1]))


def _squares(sizes: Array, seconds: Array, line: Array) -> float:
    return float(np.square((line[0] + line[1] * sizes) / seconds - 1.0).sum())


def _criterion(squares: float, count: int, numbers: int) -> float:
    return count * float(np.log(squares / count + _CLOSEST**2)) + numbers * float(np.log(count))
