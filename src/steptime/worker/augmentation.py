"""The augmentation of photographs, the same in every framework: a random resized crop and a flip for each sample.

A sample is decoded at its full size, cut to a random rectangle, resized to the workload's size by a filter that takes
in every pixel, flipped left to right with probability one half, and normalised. The area of the rectangle is drawn
evenly, and so is the logarithm of its width over its height (Szegedy et al., "Going deeper with convolutions", 2015,
section 6).

Rectangles depend on the seed, the epoch and the sample, and on nothing else: neither on the loader, nor on its helpers,
nor on the worker that gets the sample. Every loader that can cut a given rectangle therefore gives the same pixels.
"""

from typing import Any, Dict, Sequence, Tuple

import numpy

_ATTEMPTS = 10
"""After so many rectangles that do not fit into the image, the largest one in its middle is taken."""
_DRAWS = 2 * _ATTEMPTS + 3
_HALF = 0.5


def crops(
    transform: Dict[str, Any], sizes: numpy.ndarray, seed: int, epoch: int, indices: Sequence[int]
) -> Tuple[numpy.ndarray, numpy.ndarray]:
    """Return the rectangle of each sample, int32 (samples, 4): left, top, width, height; and who is flipped, bool.

    Args:
        transform: of the job's dataset: ``area`` and ``aspect`` with both ends of their ranges, and ``flip``.
        sizes: width and height of each of these samples, int (samples, 2).
        seed: of the job.
        epoch: from 0.
        indices: of the samples in the dataset, int (samples,).
    """
    sizes = numpy.asarray(sizes, dtype=numpy.int64).reshape(-1, 2)
    stream = _Stream(seed, epoch, indices)
    sides = _middle(transform, sizes)
    waiting = numpy.arange(len(sizes))
    for attempt in range(_ATTEMPTS):
        drawn = _drawn_sides(transform, sizes[waiting], stream.draw(2 * attempt, 2)[waiting])
        fits = ((drawn > 0) & (drawn <= sizes[waiting])).all(axis=1)
        sides[waiting[fits]] = drawn[fits]
        waiting = waiting[~fits]
        if not len(waiting):
            break
    last = stream.draw(2 * _ATTEMPTS, 3)
    corners = ((sizes - sides + 1) * last[:, :2]).astype(numpy.int64)
    corners[waiting] = (sizes[waiting] - sides[waiting]) // 2
    flips = (last[:, 2] < _HALF) & bool(transform["flip"])
    return numpy.concatenate([corners, sides], axis=1).astype(numpy.int32), flips


def _drawn_sides(transform: Dict[str, Any], sizes: numpy.ndarray, chances: numpy.ndarray) -> numpy.ndarray:
    """Return width and height for two even random numbers each; they may be larger than the image."""
    (least, most), (narrowest, widest) = transform["area"], numpy.log(transform["aspect"])
    area = sizes[:, 0] * sizes[:, 1] * (least + (most - least) * chances[:, 0])
    aspect = numpy.exp(narrowest + (widest - narrowest) * chances[:, 1])
    sides: numpy.ndarray = numpy.sqrt(numpy.stack([area * aspect, area / aspect], axis=1))
    return numpy.round(sides).astype(numpy.int64)


def _middle(transform: Dict[str, Any], sizes: numpy.ndarray) -> numpy.ndarray:
    """Return width and height of the largest rectangle whose aspect is in the range."""
    narrowest, widest = transform["aspect"]
    width, height = sizes[:, 0], sizes[:, 1]
    narrow = numpy.minimum(width, numpy.round(height * widest))
    low = numpy.minimum(height, numpy.round(width / narrowest))
    sides: numpy.ndarray = numpy.maximum(1, numpy.stack([narrow, low], axis=1))
    return sides.astype(numpy.int64)


class _Stream(object):
    """Random numbers by counter (SplitMix64: Steele, Lea, Flood, OOPSLA 2014): any of them without those before it."""

    def __init__(self, seed: int, epoch: int, indices: Sequence[int]) -> None:
        key = _mixed(_mixed(numpy.array([seed], dtype=numpy.uint64)) + numpy.uint64(epoch))
        self._first = key + numpy.asarray(indices).astype(numpy.uint64) * numpy.uint64(_DRAWS)

    def draw(self, first: int, count: int) -> numpy.ndarray:
        """Return float64 (samples, count) in [0, 1): the numbers from ``first`` on of each sample."""
        counters = self._first[:, None] + numpy.arange(first, first + count, dtype=numpy.uint64)
        return (_mixed(counters) >> numpy.uint64(11)).astype(numpy.float64) * 2.0**-53


def _mixed(counters: numpy.ndarray) -> numpy.ndarray:
    mixed = (counters + numpy.uint64(1)) * numpy.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> numpy.uint64(31))
