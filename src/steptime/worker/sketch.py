"""A sketch of weights: short vectors by which the distance between two large arrays can be told.

A sketch is linear, so that the sketch of a difference, a sum or an average of arrays is the same of their sketches.
"""

from typing import Dict, Mapping

import numpy

LENGTH = 256
"""Values of a sketch. The squared distance of two sketches is that of the arrays within sqrt(2 / 256) = 9 %."""


class Sketcher(object):
    """Makes sketches of arrays by name: each value has a random sign and is added to one of ``LENGTH`` sums.

    AMS and count sketches: Alon, Matias, Szegedy, STOC 1996; Charikar, Chen, Farach-Colton, ICALP 2002. An array of up
    to ``LENGTH`` values is its own sketch. Signs depend on the name of an array and the place of a value alone.
    """

    def __init__(self) -> None:
        self._signs: Dict[str, numpy.ndarray] = {}

    def sketch(self, arrays: Mapping[str, numpy.ndarray]) -> Dict[str, numpy.ndarray]:
        """Return ``{name: float64 array of LENGTH values}`` of ``{name: array}``, or of fewer values as they are."""
        return {name: self._sketch(name, numpy.asarray(array)) for name, array in arrays.items()}

    def _sketch(self, name: str, array: numpy.ndarray) -> numpy.ndarray:
        values = array.reshape(-1)
        if values.size <= LENGTH:
            return values.astype(numpy.float64)
        if name not in self._signs:
            stream = numpy.random.RandomState([ord(letter) for letter in name])
            self._signs[name] = numpy.frombuffer(stream.bytes(values.size), numpy.int8) & 1
        total = numpy.zeros(LENGTH)
        rows = values.size // LENGTH
        piece = 4096  # rows at a time, so that a gigabyte of weights needs megabytes more
        for start in range(0, rows, piece):
            part = slice(start * LENGTH, min(start + piece, rows) * LENGTH)
            signed = values[part].astype(numpy.float64)
            signed *= 1.0 - 2.0 * self._signs[name][part]
            total += signed.reshape(-1, LENGTH).sum(axis=0)
        rest = slice(rows * LENGTH, None)
        total[: values.size - rows * LENGTH] += values[rest] * (1.0 - 2.0 * self._signs[name][rest])
        return total
