"""What-if questions by the thousand: every combination of what may change, played at once.

Many steps that vary, as a launch has them: each with a slowest worker of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from steptime.model.compute import Shares
from steptime.model.interconnect import Interconnect
from steptime.model.step_graph import StepGraph
from steptime.simulate.configuration import Crew, Durations
from steptime.simulate.phases import Phases
from steptime.simulate.simulate import play
from steptime.simulate.stragglers import draw_slowest

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


@dataclass(frozen=True)
class Noise:
    """What else varies from step to step, as coefficients of variation."""

    link: float = 0.0
    """Of the bytes per second that an exchange gets, log-normal."""
    input: float = 0.0
    """Of the time until the next batch is there, log-normal."""


QUIET = Noise()


def play_steps(  # noqa: PLR0913 - what is played, how often, and how it varies
    graph: StepGraph,
    durations: Durations,
    crew: Crew,
    interconnect: Interconnect,
    *,
    steps: int,
    generator: np.random.Generator,
    noise: Noise = QUIET,
    shares: Shares | None = None,
) -> Phases:
    """Return the phases of every step of one launch, (steps,) each.

    The cost does not grow with the number of workers: the slowest is drawn by classes of workers. All numbers of
    ``durations``, ``crew`` and ``interconnect`` are those of one configuration.
    """
    slowest = draw_slowest(crew.spread, int(np.asarray(crew.workers)), steps, generator)
    link = interconnect.link
    if noise.link > 0:
        link = replace(link, rate=np.asarray(link.rate) * _about_one(noise.link, steps, generator))
    if noise.input > 0:
        durations = replace(durations, input=np.asarray(durations.input) * _about_one(noise.input, steps, generator))
    return play(graph, durations, replace(crew, slowest=slowest), replace(interconnect, link=link), shares=shares)


def _about_one(variation: float, steps: int, generator: np.random.Generator) -> Array:
    """Return log-normal numbers of mean 1."""
    spread = np.sqrt(np.log1p(variation**2))
    drawn: Array = generator.lognormal(-(spread**2) / 2, spread, steps)
    return drawn
