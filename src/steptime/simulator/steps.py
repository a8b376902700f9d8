"""Many steps that vary, as a launch has them: each with a slowest worker of its own."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from steptime.perfmodels.communication.carriage import Interconnect
from steptime.perfmodels.layers import Shares
from steptime.simulator.phases import Phases
from steptime.simulator.play import play
from steptime.simulator.scene import Crew, Durations
from steptime.simulator.spread import draw_slowest
from steptime.stepgraph.graph import StepGraph

Array = NDArray[np.float64]


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
