"""The performance model of one step: from parameters, a step graph and a link to the seconds of every phase.

Parameters come as draws, so that every phase has as many values as its parameters have draws.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from steptime.catalog.workloads.costs import Costs, costs
from steptime.catalog.workloads.table import build_workload
from steptime.fitting.observation import Deployment, GroupKey
from steptime.fitting.posterior import Array
from steptime.model.collectives import Link
from steptime.model.compute import pass_seconds, turns, work_of
from steptime.model.interconnect import Interconnect
from steptime.model.policies import StepGraph, step_graph, with_traffic
from steptime.model.synchronous_sgd import input_wait
from steptime.model.worker_spread import WorkerSpread
from steptime.phases import HIDDEN
from steptime.simulate.configuration import Durations, WorkerGroup
from steptime.simulate.simulate import Phases, simulate
from steptime.worker.communication import PolicyContext

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
    "contention_factor": "factor on computing of workers that share memory and caches with other workers",
    "persistent": "spread of workers that stays, share of computing",
    "transient": "spread of workers from step to step, share of computing",
    "timing": "timed step over the sum of the phases, one worker",
    "latency_factor": "factor on the link's latency of a step of the exchange's algorithm",
    "bandwidth_factor": "factor on the link's bandwidth",
    "inner_latency_factor": "the same of the links inside hosts",
    "inner_bandwidth_factor": "the same of the links inside hosts",
    "overlap_efficiency": "share of the communication that the step graph lets hide behind computing that does hide",
}

_TIME, _FACTOR, _SHARE, _SPREAD = (0.0, 1e15), (1e-15, 1e15), (0.0, 1.0), (0.0, 1e9)
BOUNDS: Mapping[str, tuple[float, float]] = {
    **{name: _FACTOR if "factor" in name else _TIME for name in MEANINGS},
    "input_share": _SHARE,
    "persistent": _SPREAD,
    "transient": _SPREAD,
    "timing": _FACTOR,
    "overlap_efficiency": _SHARE,
}
"""The least and the largest draw of each parameter."""

OUTER = ("latency_factor", "bandwidth_factor")
INNER = ("inner_latency_factor", "inner_bandwidth_factor")
"""Factors on links inside a host: of its workers, where all are in one, or where rings run through several hosts."""

_SAME_SIZE = 0.01
"""Relative difference of sizes that padding makes."""


@dataclass(frozen=True)
class Contention:
    """Workers that share processors, and how many workers the processors can run at once."""

    workers: int
    processors: int

    @property
    def turns(self) -> int:
        """How many workers take turns on a processor."""
        return turns(self.workers, self.processors)

    @property
    def alone(self) -> bool:
        """Whether a worker has all processors for itself."""
        return self.workers == 1


@dataclass(frozen=True)
class StepModel:
    """All that the phases of a step follow from, but the parameters."""

    deployment: Deployment
    graph: StepGraph
    """The framework's tasks of a step and their dependences."""
    link: Link | None
    """Between hosts, or between the workers of the only host; None for a worker by itself."""
    contention: Contention
    ready: Array | None = None
    """Share of the backward pass after which each message can go, where it was measured."""
    inner: Link | None = None
    """Inside hosts, where workers of several hosts exchange that have neighbours."""
    algorithm: str = "ring"
    wake_up_s: float = 0.0
    """Seconds that a communicating thread waits for a core that computing holds."""

    @property
    def link_factors(self) -> tuple[str, ...]:
        """The parameters that are factors on the latency and the rate of the links, outer ones first."""
        return (*(OUTER if self.deployment.crosses else INNER), *(INNER if self.inner is not None else ()))


def phases_of(parameters: Parameters, model: StepModel) -> dict[str, Array]:
    """Return the seconds of every phase that sums to the step, and of ``comm_hidden``, (draws,) each.

    Computing is affine in the batch, ``ceil(p/c)`` times as long where p workers share c processors, and a measured
    contention factor longer beside other workers. The simulator runs the step graph on it; of the communication that
    hides there, the share ``overlap_efficiency`` does hide.
    """
    batch, contention = model.deployment.batch, model.contention
    factor = contention.turns * (1.0 if contention.alone else parameters["contention_factor"])
    forward, backward = (
        factor * pass_seconds(batch, parameters[f"{name}_fixed_s"], parameters[f"{name}_per_sample_s"])
        for name in ("forward", "backward")
    )
    update = factor * parameters["update_s"]
    # Passes whose gradients stay where they are come before the one that is exchanged.
    earlier = (model.deployment.accumulation - 1) * (forward + backward)
    exposed = hidden = sync = np.zeros_like(forward)
    if model.link is not None:
        durations = Durations(forward + earlier, backward, update)
        simulated = _simulate_exchange(parameters, model, model.link, durations)
        backward, update, sync = simulated.backward, simulated.update, simulated.sync_wait
        hides = np.maximum(simulated.comm_hidden, 0.0)
        exposed = np.maximum(simulated.comm_exposed, 0.0) + (1.0 - parameters["overlap_efficiency"]) * hides
        hidden = parameters["overlap_efficiency"] * hides
    if model.deployment.accumulation > 1:
        forward, backward = (model.deployment.accumulation * each for each in (forward, backward))
    computing = forward + backward + update
    reading = contention.turns * parameters["input_per_sample_s"] * batch * model.deployment.accumulation
    waiting = np.asarray(input_wait(reading, parameters["input_share"], computing, sync, exposed))
    # Timed steps take more than the phases of broken-down ones, which is the rest, or less, which each phase does.
    shorter = np.minimum(parameters["timing"], 1.0)
    return {
        "input_wait": shorter * waiting,
        "h2d": np.zeros_like(computing),
        "forward": shorter * forward,
        "backward": shorter * backward,
        "comm_exposed": exposed,
        "sync_wait": sync,
        "update": shorter * update,
        "residual": np.maximum(parameters["timing"] - 1.0, 0.0) * (computing + waiting),
        "comm_hidden": hidden,
    }


POP_NAMES = (
    "parallel",
    "load_balance",
    "communication",
    "serialisation",
    "transfer",
    "computation",
    "global_efficiency",
    "without_input_wait",
)
"""As ``analysis/ablation/pop.py`` has them."""


def efficiencies_of(phases: Mapping[str, Array], alone: Mapping[str, Array], uneven: Array) -> dict[str, Array]:
    """Return the POP efficiencies of a step of workers that wait for each other, (draws,) each.

    Args:
        phases: of the step.
        alone: of the step of one worker with the same batch, which computation is relative to.
        uneven: how much longer than the mean the worker computes that is slow on average, as a share.
    """
    step = step_of(phases)
    useful = step - phases["comm_exposed"] - phases["sync_wait"]
    parallel, transfer, balance = useful / step, 1.0 - phases["comm_exposed"] / step, 1.0 / (1.0 + uneven)
    useful_alone = step_of(alone) - alone["comm_exposed"] - alone["sync_wait"]
    found = (
        parallel,
        balance,
        parallel / balance,
        parallel / balance / transfer,
        transfer,
        useful_alone / useful,
        useful_alone / step,
        1.0 - phases["input_wait"] / step,
    )
    return dict(zip(POP_NAMES, found, strict=True))


def step_of(phases: Mapping[str, Array]) -> Array:
    """Return the seconds of a step from its phases."""
    total: Array = sum((value for name, value in phases.items() if name != HIDDEN.name), start=np.zeros(1))
    return total


def _simulate_exchange(parameters: Parameters, model: StepModel, link: Link, durations: Durations) -> Phases:
    deployment, contention = model.deployment, model.contention
    return simulate(
        model.graph,
        durations,
        WorkerGroup(
            workers=deployment.workers,
            spread=WorkerSpread(parameters["persistent"], parameters["transient"]),
            colocated=deployment.placement == "colocated",
            wake_up_s=model.wake_up_s,
            processors=contention.processors if contention.workers == deployment.workers else np.inf,
        ),
        _interconnect(parameters, model, link),
        ready=model.ready,
    )


def _interconnect(parameters: Parameters, model: StepModel, link: Link) -> Interconnect:
    deployment = model.deployment
    used = _scaled(link, parameters, OUTER if deployment.crosses else INNER)
    if deployment.hosts == 1 and model.algorithm == "nccl":
        return Interconnect(Link(np.inf), "nccl", deployment.workers, inner=used)
    return Interconnect(
        used,
        model.algorithm,
        workers_per_host=min(deployment.workers_per_host, deployment.workers) if deployment.crosses else 1,
        inner=None if model.inner is None else _scaled(model.inner, parameters, INNER),
        nics_per_host=deployment.nics_per_host if deployment.crosses else 1,
    )


def _scaled(link: Link, parameters: Parameters, names: tuple[str, str]) -> Link:
    latency, rate = (parameters[name] for name in names)
    return replace(link, rate=link.rate * rate, latency=link.latency * latency)


@cache
def costs_of(workload: str, input_shape: tuple[int, ...], classes: int) -> Costs:
    """Return the costs of a workload of the library."""
    return costs(build_workload(workload, input_shape, classes))


@cache
def graph_of(key: GroupKey, deployment: Deployment) -> StepGraph:
    """Return the step graph of a framework and strategy; the strategy must be one that ``has_policy``."""
    options = dict(key.options)
    if deployment.bucket_mb is not None:
        options["bucket_mb"] = deployment.bucket_mb
    graph = step_graph(
        work_of(build_workload(key.workload, key.input_shape, key.classes)),
        key.framework,
        key.strategy,
        PolicyContext(
            workers=deployment.workers,
            servers=deployment.servers,
            options=options,
            device="cuda" if key.device == "cuda" else "cpu",
            batch=deployment.batch,
        ),
    )
    per_host = min(deployment.workers_per_host, deployment.workers)
    return with_traffic(graph, deployment.traffic, deployment.workers, per_host)


def measured_readiness(graph: StepGraph, measured: Iterable[Sequence[tuple[float, float]]]) -> Array | None:
    """Return after which share of the backward pass each message can go, averaged over measured pieces of its sizes.

    None if no pieces of these sizes were measured: the simulator then takes the layers' arithmetic.
    """
    sizes = np.array([message.bytes for message in graph.messages], dtype=np.float64)
    seen = [
        [share for _, share in pieces]
        for pieces in measured
        if len(pieces) == len(sizes) and np.allclose([size for size, _ in pieces], sizes, rtol=_SAME_SIZE)
    ]
    return np.mean(seen, axis=0) if seen else None
