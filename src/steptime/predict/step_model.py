"""One step played with draws of its parameters: from a setting and a link to the seconds of every phase."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from steptime.model.collectives import Link
from steptime.model.interconnect import Interconnect
from steptime.model.step_graph import StepGraph
from steptime.predict.observation import Setting
from steptime.predict.parameter_draws import Array
from steptime.simulate.phases import Phases
from steptime.simulate.simulate import Crew, Durations
from steptime.simulate.simulate import play as played_step
from steptime.simulate.stragglers import Spread

Parameters = Mapping[str, Array]
"""Draws of each parameter, (draws,); see ``MEANINGS``."""

MEANINGS: Mapping[str, str] = {
    "forward_fixed_s": "forward pass without a sample, s",
    "forward_per_sample_s": "forward pass, s per sample",
    "backward_fixed_s": "backward pass without a sample, s",
    "backward_per_sample_s": "backward pass, s per sample",
    "update_s": "update of the weights, s",
    "input_per_sample_s": "loading alone, s per sample",
    "input_share": "share of loading that a step waits for",
    "beside": "factor on computing of workers that compute beside each other",
    "persistent": "spread of workers that stays, share of computing",
    "transient": "spread of workers from step to step, share of computing",
    "timing": "timed step over the sum of the phases, one worker",
    "start": "factor on the link's start of a step",
    "rate": "factor on the link's rate",
    "hidden": "share of what the step graph lets hide behind computing that does hide",
}


@dataclass(frozen=True)
class Scene:
    """All that a step needs beside parameters."""

    setting: Setting
    graph: StepGraph
    """What the framework exchanges after what."""
    link: Link | None
    """None for a worker who exchanges with nobody."""
    crowd: int
    """Workers that share processors."""
    slots: int
    """Workers that those processors can run at once."""
    ready: Array | None = None
    """Share of the backward pass after which each message can go, where that was measured."""

    @property
    def sharing(self) -> int:
        """How many workers take turns on a processor."""
        return max(1, -(-self.crowd // self.slots))


def play(parameters: Parameters, scene: Scene) -> dict[str, Array]:
    """Return the seconds of every phase that sums to the step, and ``comm_hidden`` beside them, (draws,) each.

    Computing is affine in the batch, ``ceil(p/c)`` times as long where p workers share c processors, and a measured
    factor longer beside others. The simulator plays it on the step graph; of what hides there, a share does not.
    """
    setting = scene.setting
    factor = scene.sharing * (parameters["beside"] if scene.crowd > 1 else 1.0)
    forward = factor * (parameters["forward_fixed_s"] + parameters["forward_per_sample_s"] * setting.batch)
    backward = factor * (parameters["backward_fixed_s"] + parameters["backward_per_sample_s"] * setting.batch)
    update = factor * parameters["update_s"]
    exposed = hidden = sync = np.zeros_like(forward)
    if scene.link is not None:
        played = _exchanged(parameters, scene, scene.link, (forward, backward, update))
        backward, update, sync = played.backward, played.update, played.sync_wait
        hides = np.maximum(played.comm_hidden, 0.0)
        exposed = np.maximum(played.comm_exposed, 0.0) + (1.0 - parameters["hidden"]) * hides
        hidden = parameters["hidden"] * hides
    computing = forward + backward + update
    reading = scene.sharing * parameters["input_per_sample_s"] * setting.batch
    waiting = np.maximum(parameters["input_share"] * reading, reading - computing - sync - exposed)
    return {
        "input_wait": waiting,
        "h2d": np.zeros_like(computing),
        "forward": forward,
        "backward": backward,
        "comm_exposed": exposed,
        "sync_wait": sync,
        "update": update,
        "residual": (parameters["timing"] - 1.0) * (computing + waiting),
        "comm_hidden": hidden,
    }


def step_of(phases: Mapping[str, Array]) -> Array:
    """Return the seconds of a step from its phases."""
    total: Array = sum((value for name, value in phases.items() if name != "comm_hidden"), start=np.zeros(1))
    return total


def _exchanged(parameters: Parameters, scene: Scene, link: Link, parts: tuple[Array, Array, Array]) -> Phases:
    setting = scene.setting
    forward, backward, update = parts
    return played_step(
        scene.graph,
        Durations(forward=forward, backward=backward, update=update),
        Crew(
            workers=setting.workers,
            spread=Spread(parameters["persistent"], parameters["transient"]),
            colocated=setting.placement == "colocated",
        ),
        Interconnect(
            replace(link, rate=link.rate * parameters["rate"], latency=link.latency * parameters["start"]),
            workers_per_host=setting.workers_per_host if setting.hosts > 1 else 1,
        ),
        ready=scene.ready,
    )
