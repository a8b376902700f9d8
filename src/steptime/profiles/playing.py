"""One step played with numbers: from parameters, a setting and a link to the seconds of every phase."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from steptime.measurements.steps import ASYNCHRONOUS
from steptime.perfmodels.communication.carriage import Interconnect
from steptime.perfmodels.communication.link import Link
from steptime.perfmodels.imbalance import expected_maximum
from steptime.perfmodels.overlap import finish
from steptime.perfmodels.parameter_server import asynchronous_bound
from steptime.profiles.drawing import Array
from steptime.profiles.exchanging import Pieces, exchange_seconds
from steptime.profiles.observation import Setting
from steptime.simulator import play as simulator
from steptime.stepgraph.graph import StepGraph

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
    "hidden": "share of the exchange that starts during the backward pass",
}


@dataclass(frozen=True)
class Scene:
    """All that a step needs beside parameters."""

    strategy: str
    setting: Setting
    pieces: Pieces
    """What is exchanged, where no graph says it."""
    graph: StepGraph | None
    """What the framework exchanges after what; None for a strategy that has no graph."""
    link: Link | None
    """None for one worker."""
    crowd: int
    """Workers that share processors."""
    slots: int
    """Workers that those processors can run at once."""

    @property
    def sharing(self) -> int:
        """How many workers take turns on a processor."""
        return max(1, -(-self.crowd // self.slots))


def play(parameters: Parameters, scene: Scene) -> dict[str, Array]:
    """Return the seconds of every phase that sums to the step, and ``comm_hidden`` beside them, (draws,) each.

    Computing is affine in the batch, ``ceil(p/c)`` times as long where p workers share c processors, and a measured
    factor longer beside others. Exchanges follow the recursion of ``perfmodels/overlap``; the step waits for the
    slowest worker by order statistics.
    """
    setting = scene.setting
    factor = scene.sharing * (parameters["beside"] if scene.crowd > 1 else 1.0)
    forward = factor * (parameters["forward_fixed_s"] + parameters["forward_per_sample_s"] * setting.batch)
    backward = factor * (parameters["backward_fixed_s"] + parameters["backward_per_sample_s"] * setting.batch)
    update = factor * parameters["update_s"]
    computing = forward + backward + update
    alone = setting.workers == 1
    waits = not alone and scene.strategy not in ASYNCHRONOUS
    spread = np.sqrt(parameters["persistent"] ** 2 + parameters["transient"] ** 2)
    sync = computing * spread * expected_maximum(setting.workers) if waits else np.zeros_like(computing)
    exposed, hidden = _communication(parameters, scene, forward, backward, update)
    reading = scene.sharing * parameters["input_per_sample_s"] * setting.batch
    rest = computing + sync + exposed
    waiting = np.maximum(parameters["input_share"] * reading, reading - rest)
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


def _communication(
    parameters: Parameters, scene: Scene, forward: Array, backward: Array, update: Array
) -> tuple[Array, Array]:
    """Return the seconds of exchange that are waited for, and those that hide."""
    computing = forward + backward + update
    nothing = np.zeros_like(computing)
    if scene.link is None:
        return nothing, nothing
    link = Link(rate=scene.link.rate * parameters["rate"], latency=scene.link.start * parameters["start"])
    if scene.strategy in ASYNCHRONOUS:
        return _asynchronous(scene, computing, link), nothing
    if scene.graph is not None:
        behind, total = _played(scene, scene.graph, (forward, backward), link)
    else:
        column = Link(rate=np.asarray(link.rate)[:, None], latency=np.asarray(link.latency)[:, None])
        lasting = exchange_seconds(scene.strategy, scene.pieces.sizes, scene.setting, column)
        total = lasting.sum(axis=-1)
        behind = finish(backward[:, None] * scene.pieces.ready, lasting) - backward
    share = parameters["hidden"]
    exposed = share * behind + (1.0 - share) * total
    return exposed, total - exposed


def _played(scene: Scene, graph: StepGraph, passes: tuple[Array, Array], link: Link) -> tuple[Array, Array]:
    """Return the seconds that come behind computing, and those of the whole exchange, as the simulator plays them."""
    setting = scene.setting
    forward, backward, rate, latency = np.broadcast_arrays(*passes, link.rate, link.latency)
    played = simulator.play(
        graph,
        simulator.Durations(forward=forward, backward=backward),
        simulator.Crew(
            workers=setting.workers,
            servers=setting.servers,
            negotiation=latency * 2.0 * np.ceil(np.log2(setting.workers)) if graph.plan.fusion else 0.0,
        ),
        Interconnect(
            Link(rate=rate, latency=latency), workers_per_host=setting.workers_per_host if setting.hosts > 1 else 1
        ),
    )
    behind = np.maximum(played.comm_exposed, 0.0)
    return behind, behind + np.maximum(played.comm_hidden, 0.0)


def _asynchronous(scene: Scene, computing: Array, link: Link) -> Array:
    """A worker's round without others, and the servers that all of them share."""
    setting, total = scene.setting, scene.pieces.sizes.sum()
    servers = max(setting.servers, 1)
    beside = 2.0 if setting.placement == "colocated" else 1.0
    start, rate = link.start, link.rate
    travel = 2.0 * len(scene.pieces.sizes) * start + 2.0 * total / rate
    service = beside * total / (servers * rate)
    updates = asynchronous_bound(setting.workers, computing + travel - service, service)
    waited: Array = setting.workers / updates - computing
    return np.maximum(waited, 0.0)
