"""What-if questions by the thousand: every combination of what may change, played at once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from steptime.simulator.phases import Phases

Array = NDArray[np.float64]
Value = float | int | str | bool


@dataclass(frozen=True)
class Grid:
    """All combinations, in the order of the last axis running first."""

    columns: Mapping[str, NDArray[np.generic]]
    """Of each axis the value of every combination, (combinations,)."""
    phases: Phases

    def best(self, count: int = 1) -> list[dict[str, Value]]:
        """Return the combinations of the shortest steps, the shortest first, with ``step_s`` beside their values."""
        step = self.phases.step
        order = np.argsort(step, kind="stable")[:count]
        return [
            {**{name: column[place].item() for name, column in self.columns.items()}, "step_s": float(step[place])}
            for place in order
        ]


def play_grid(
    changing_the_graph: Mapping[str, Sequence[Value]],
    numbers: Mapping[str, Sequence[float]],
    played: Callable[[Mapping[str, Value], Mapping[str, Array]], Phases],
) -> Grid:
    """Return every combination of both kinds of axes.

    Args:
        changing_the_graph: axes for each of whose combinations a graph is made, such as ``bucket_mb`` or ``framework``.
        numbers: axes that are played as arrays, such as ``bandwidth``, ``workers`` or ``batch``.
        played: from one combination of the first kind and arrays of the second, (combinations of numbers,) each, to
            the phases of all of them.
    """
    meshes = np.meshgrid(*(np.asarray(values, float) for values in numbers.values()), indexing="ij")
    arrays = {name: mesh.ravel() for name, mesh in zip(numbers, meshes, strict=True)}
    combinations = [dict(zip(changing_the_graph, each, strict=True)) for each in product(*changing_the_graph.values())]
    found = [played(combination, arrays) for combination in combinations]
    width = len(next(iter(arrays.values()))) if arrays else 1
    columns: dict[str, NDArray[np.generic]] = {
        name: np.repeat(np.array([combination[name] for combination in combinations]), width)
        for name in changing_the_graph
    }
    columns.update({name: np.tile(array, len(combinations)) for name, array in arrays.items()})
    names = Phases.__dataclass_fields__
    joined = {
        name: np.concatenate([np.broadcast_to(getattr(each, name), (width,)) for each in found]) for name in names
    }
    return Grid(columns, Phases(**joined))
