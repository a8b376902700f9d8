"""Distances of short sketches, of which ``UpdateSketcher`` of the worker makes one for each array.

A sketch has the length of the weights, that of their update since the first ones, and sums that are linear in it.
"""

import math

from steptime.results.records import ShortSketches

UPDATE = 1
"""Place of an update's length in a short sketch; its sums come behind."""
SUMS = slice(2, None)


def distance_of_updates(one: ShortSketches, other: ShortSketches) -> float:
    """Return how far two updates are apart, as a share of the second one's length."""
    length = math.sqrt(sum(numbers[UPDATE] ** 2 for numbers in other.values()))
    apart = math.sqrt(sum(array_distance(one, other, name) ** 2 for name in other.keys() & one.keys()))
    return apart / length if length else math.inf if apart else 0.0


def array_distance(one: ShortSketches, other: ShortSketches, name: str) -> float:
    """Return how far the updates of one array are apart."""
    return math.dist(one[name][SUMS], other[name][SUMS])
