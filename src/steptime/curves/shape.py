"""The curve model: the time of a step over that of one worker, put together from the performance models.

``r(p) = 1 + inside(g) + exposed(between(h)) / c + straggling(h)`` with g workers in the fullest host, h hosts and c the
seconds of one worker, or the time of its input where that is longer. Where g workers share fewer cores, all but the
exchange between hosts takes so many times as long (``model/shared_cores.py``). What happens inside a host does not
change any more once a host is full. A flat ring goes through the links inside and between hosts at once and is as slow
as the slower ones; two levels take turns. Inside a host of which all links meet in a switch, an exchange may cost two
workers as much as eight. Where workers were spread over all hosts before any had two, those beyond the measured ones
share cards.

Where times hold what an epoch has once (an evaluation, a checkpoint), its share of a step grows with the workers, whose
epochs have fewer steps.

Where a table states over how many workers weights are split, each pass gathers them and each step scatters gradients
within such a group, and equal parts of its replicas are reduced (Y. Zhao et al., *PyTorch FSDP*, VLDB 2023, hybrid
sharding). Of several backward passes before one exchange only the last hides it.

The parameters of the curve model, their priors, and samples of the priors.

Every parameter is a normal number with a median and a spread, seen through a link: ``log`` for what is positive,
``logit`` for what lies between 0 and 1. Samples come from a fixed low-discrepancy sequence: the same table always
yields the same predictions. ``priors.json`` holds the priors that
published curves give: one set without each source, and one from all sources.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import numpy as np
import scipy  # type: ignore[import-untyped]  # scipy ships no types; its modules are imported when used

from steptime.curves.curve import Array, ScalingCurve
from steptime.curves.facts import UNSTATED, Facts, facts_of
from steptime.curves.input_ceiling import full_host, input_path, with_input
from steptime.model.synchronous_sgd import exposed

_SEED = 20170301


@dataclass(frozen=True)
class NormalPrior:
    """A normal distribution behind a link."""

    mean: float
    spread: float


@dataclass(frozen=True)
class CurveParameter:
    """One parameter of the curve model; median and spread are what an expert would say who has seen no curve."""

    name: str
    link: Literal["log", "logit"]
    median: float
    spread: float
    meaning: str

    @property
    def expert(self) -> NormalPrior:
        """The prior before any curve was seen."""
        return NormalPrior(
            float(np.log(self.median) if self.link == "log" else scipy.special.logit(self.median)), self.spread
        )

    def natural(self, normal: Array) -> Array:
        """Return values in natural units."""
        values: Array = np.exp(normal) if self.link == "log" else scipy.special.expit(normal)
        return values


PARAMETERS = (
    CurveParameter("jump", "log", 0.015, 1.0, "share of compute added by leaving one worker"),
    CurveParameter("contention", "log", 0.005, 1.2, "share of compute added by each doubling inside a host"),
    CurveParameter("crowding", "log", 0.01, 1.3, "share of compute added in a full host, linear in its workers"),
    CurveParameter(
        "inside", "log", 0.4, 1.0, "exposed time of the exchange inside a host, over bytes and nominal rate"
    ),
    CurveParameter(
        "saturation", "logit", 0.2, 1.5, "share of the exchange inside a host that does not grow beyond two workers"
    ),
    CurveParameter(
        "bus", "logit", 0.35, 1.5, "share of the exchange inside a host that waits for a memory that all workers share"
    ),
    CurveParameter("efficiency", "log", 0.85, 0.3, "reached share of the network's nominal rate, were the hosts quick"),
    CurveParameter(
        "stack_rate", "log", 6e9, 0.8, "bytes per second that a host moves per card, were the network quick"
    ),
    CurveParameter("hidden", "logit", 0.8, 1.5, "share of the exchange between hosts that may hide, all but a bucket"),
    CurveParameter(
        "flat", "logit", 0.98, 1.5, "flat ring (1) or two levels (0); servers apart (1) or on the hosts (0)"
    ),
    CurveParameter("latency", "log", 1.0, 1.0, "latency of a step between hosts, over the usual one of the transport"),
    CurveParameter("host_jump", "log", 0.015, 1.0, "share of compute added by the first further host"),
    CurveParameter("host_doubling", "log", 0.01, 1.0, "share of compute added by each doubling of hosts"),
    CurveParameter(
        "chopping", "log", 0.02, 1.2, "exponent of hosts by which a stack gets slower: its pieces get smaller"
    ),
    CurveParameter(
        "sharing",
        "log",
        1.0,
        0.5,
        "exponent of further workers, where they share the cards of hosts that all have some",
    ),
    CurveParameter("half", "logit", 0.5, 3.0, "whether mixed precision sends two bytes per value (1) or four (0)"),
    CurveParameter("noise", "log", 0.008, 0.5, "relative error of a measured point"),
    CurveParameter("walk", "log", 0.012, 0.7, "relative drift from the model per root of a doubling of workers"),
    CurveParameter("host_walk", "log", 0.02, 1.0, "relative drift from the model per root of a doubling of hosts"),
    CurveParameter("crossing", "log", 0.04, 0.8, "relative error common to all points beyond one host"),
    *(
        CurveParameter(name, "log", 1.0, 1.0, f"what the column {column} leaves open, in spreads of its belief")
        for name, column in UNSTATED.items()
    ),
    CurveParameter(
        "bend", "log", 0.01, 1.0, "drift of the relative growth per doubling of hosts, per root of a doubling of hosts"
    ),
    CurveParameter("loaders", "log", 4.0, 1.0, "full hosts that the loaders of one feed while they compute"),
    CurveParameter("store", "log", 30.0, 1.5, "eights of workers that a shared store feeds while they compute"),
    CurveParameter("queueing", "log", 3.0, 0.5, "exponent by which input and the rest of a step make its length"),
    CurveParameter("disturbing", "log", 0.05, 1.0, "exponent of workers by which a busy store gives less"),
)
"""In the order of the columns of a sample."""

INDEX: Mapping[str, int] = {parameter.name: column for column, parameter in enumerate(PARAMETERS)}

Priors = Mapping[str, NormalPrior]


def expert_priors() -> dict[str, NormalPrior]:
    """Return the priors before any curve was seen."""
    return {parameter.name: parameter.expert for parameter in PARAMETERS}


@cache
def standard_normals(log_samples: int, seed: int = 0) -> Array:
    """Return the fixed samples of a seed, (samples, parameters)."""
    points = scipy.stats.qmc.Sobol(len(PARAMETERS), seed=_SEED + seed).random_base2(log_samples)
    normals: Array = scipy.special.ndtri(np.clip(points, 1e-9, 1 - 1e-9))
    return normals


@dataclass(frozen=True)
class NormalVector:
    """Normal numbers behind the links, one a parameter, which may depend on each other."""

    mean: Array
    factor: Array
    """Lower triangular; times its transpose it is the covariance."""

    def samples(self, standard: Array) -> Array:
        """Return samples of the parameters behind their links, (samples, parameters), from standard normal ones."""
        drawn: Array = self.mean + standard @ self.factor.T
        return drawn

    def log_density(self, parameters: Array) -> Array:
        """Return the logarithm of the density at samples, up to a constant that all such vectors share."""
        standard = scipy.linalg.solve_triangular(self.factor, (parameters - self.mean).T, lower=True)
        density: Array = -0.5 * np.sum(standard**2, axis=0) - np.sum(np.log(np.diagonal(self.factor)))
        return density


def joint_prior(priors: Priors) -> NormalVector:
    """Return priors in the order of the parameters, each independent of the others."""
    return NormalVector(
        np.array([priors[parameter.name].mean for parameter in PARAMETERS]),
        np.diag([priors[parameter.name].spread for parameter in PARAMETERS]),
    )


ALL_SOURCES = ""
"""The name of what was learned from all sources, for curves of a source that is none of them."""


def priors_for(source: str) -> Priors:
    """Return the priors for a curve of ``source``, which were learned without that source."""
    known = _learned()
    return known.get(source, known[ALL_SOURCES])


def learned_sources() -> list[str]:
    """Return the names of the sources that the shipped priors were learned from."""
    return sorted(name for name in _learned() if name != ALL_SOURCES)


@cache
def _learned() -> dict[str, Priors]:
    content: dict[str, Any] = json.loads(files("steptime.curves").joinpath("priors.json").read_text("utf-8"))
    return {
        name: {**expert_priors(), **{parameter: NormalPrior(*pair) for parameter, pair in priors.items()}}
        for name, priors in content["learned_without"].items()
    }


_FULL_HOST = 8
_MOST_EXPONENT = 2.0
"""Of what grows with a power of hosts or workers: cards that come to be shared, and switches that these share."""
_BACKWARD_SHARE = 0.66
"""Of a step's computing, while which gradients become ready."""


def relative_times(  # noqa: PLR0913, PLR0917 - the last two are of workers that share a batch
    curve: ScalingCurve,
    workers: Array,
    servers: Array,
    seconds: float,
    parameters: Array,
    batch: float = 1.0,
    computing: float = 1.0,
) -> Array:
    """Return times relative to the computing of one worker, (samples, points).

    Args:
        curve: for its set-up, and its first point.
        workers: of the points.
        servers: of the points; nan where not stated.
        seconds: the compute time of one worker of the first point.
        parameters: samples behind their links, (samples, parameters).
        batch: of a worker of these points, over that of one of the first point.
        computing: of a worker of these points, over that of one of the first point.
    """
    value = {parameter.name: parameter.natural(parameters[:, [INDEX[parameter.name]]]) for parameter in PARAMETERS}
    first, once = curve.fit[0], curve.setup.assumed_once
    slower = float(curve.slowdown(np.array([float(first.workers)]))[0])
    seconds *= (1.0 - once) / slower
    work = _work(curve, workers, servers, seconds * computing, value)
    path = input_path(curve)
    readers = workers * batch / computing
    together = np.minimum(workers, curve.setup.host_size) / full_host(curve) * batch / computing
    # ``seconds`` are those of the first point's whole step, of which computing is a part.
    whole: Array | float = 1.0
    if path.samples_s is not None:
        servers_of_first = np.array([np.nan if first.servers is None else first.servers], dtype=float)
        whole = _work(curve, np.array([float(first.workers)]), servers_of_first, seconds, value)
    step = with_input(work, path, together, readers, seconds / whole, value)
    # More workers make fewer steps of an epoch, each of which then has more of what an epoch has once.
    return (1.0 - once) * step + once * slower * workers / first.workers if once else step


def _work(curve: ScalingCurve, workers: Array, servers: Array, seconds: float, value: dict[str, Array]) -> Array:
    """Return the times of computing and exchange over the ``seconds`` of computing, (samples, points)."""
    facts = facts_of(curve.setup)
    unstated = {name: value[name] ** spread for name, spread in facts.spreads.items()}
    size = facts.gradient_bytes * unstated["unstated_gradients"] * (1 - 0.5 * _half(facts, value["half"]))
    together = np.minimum(workers, curve.setup.host_size)
    hosts = np.array([curve.hosts(int(count)) for count in workers], dtype=float)
    size_of_host = curve.setup.host_size
    if facts.servers:
        volume, steps = _through_servers(hosts, servers, value), np.where(hosts > 1, 2.0, 0.0)
    elif facts.sharded_over is not None:
        volume, steps = _through_groups(workers, hosts, size_of_host, facts.sharded_over, facts.accumulation)
    else:
        volume, steps = _through_rings(workers, hosts, value), 2 * (hosts - 1)
    network = value["efficiency"] * facts.card_rate
    per_byte = 1 / network + hosts ** np.minimum(value["chopping"], _MOST_EXPONENT) / (
        value["stack_rate"] * facts.cards
    )
    latency = value["latency"] * unstated["unstated_latency"] * facts.latency
    between = volume * size * per_byte / unstated["unstated_network"] + latency * facts.messages * steps
    if facts.spread:
        between = between * np.maximum(1.0, workers / curve.fit[-1].workers) ** np.minimum(
            value["sharing"], _MOST_EXPONENT
        )
    slower = curve.slowdown(workers)
    waiting = exposed(between / seconds, _window(facts) * slower, value["hidden"] if facts.overlaps else 0.0)
    passes = _passes(together, value, facts)
    if facts.sharded_over is not None:
        grouped = _passes(np.minimum(together, facts.sharded_over), value, facts)
        passes = grouped * _collectives_of_a_group(facts.accumulation) / 2
    # What travels inside a host is copied and added by the cores that compute.
    around = value["inside"] * passes * size / (facts.inside_rate * unstated["unstated_inside"]) / seconds * slower
    inside = _crowding(together, value) * slower + around - value["flat"] * np.minimum(around, waiting)
    straggling = (value["host_jump"] * (hosts > 1) + value["host_doubling"] * np.log2(hosts)) * slower
    work: Array = slower + inside + waiting + straggling
    return work


def _half(facts: Facts, prior: Array) -> Array | float:
    return prior if 0 < facts.half_bytes < 1 else facts.half_bytes


def _ring_share(workers: Array) -> Array:
    share: Array = 2 * (workers - 1) / workers
    return share


def _passes(together: Array, value: dict[str, Array], facts: Facts) -> Array:
    """Return how many times the gradients pass a link inside the host, or the memory that all its workers share.

    Devices that split a worker's layers exchange a part each, all at once: of memory alone they take turns.
    """
    saturated = value["saturation"]
    passes: Array = ((1 - saturated) * _ring_share(together) + saturated * (together > 1)) / facts.links
    if facts.shared_memory:
        passes = (1 - value["bus"]) * passes + value["bus"] * (together - 1)
    return passes


def _crowding(together: Array, value: dict[str, Array]) -> Array:
    added: Array = (
        value["jump"] * (together > 1)
        + value["contention"] * np.log2(together)
        + value["crowding"] * (together - 1) / (_FULL_HOST - 1)
    )
    return added


def _through_rings(workers: Array, hosts: Array, value: dict[str, Array]) -> Array:
    """Return how many times the gradients pass the card of a host in an all-reduce."""
    flat = value["flat"]
    volume: Array = (flat * _ring_share(workers) + (1 - flat) * _ring_share(hosts)) * (hosts > 1)
    return volume


def _through_servers(hosts: Array, servers: Array, value: dict[str, Array]) -> Array:
    """Return how many times the gradients pass the busiest card on the way to servers and back."""
    count = np.where(np.isnan(servers) | (servers < 1), hosts, servers)
    apart = value["flat"] + (1 - value["flat"]) * (hosts - 1) / hosts
    volume: Array = 2 * apart * np.maximum(1.0, hosts / count) * (hosts > 1)
    return volume


def _window(facts: Facts) -> float:
    """Return the share of a step's computing behind which an exchange may hide.

    Weights that are gathered ahead of each pass hide behind all of it, gradients behind the last backward pass.
    """
    return 1.0 if facts.sharded_over is not None else _BACKWARD_SHARE / facts.accumulation


def _collectives_of_a_group(accumulation: int) -> int:
    """Return how often a step passes the weights around a group: gathers of both passes, and one scatter."""
    return 2 * accumulation + 1


def _through_groups(
    workers: Array, hosts: Array, host_size: float, sharded_over: int, accumulation: int
) -> tuple[Array, Array]:
    """Return how many times the gradients pass the card of a host, and how many latencies follow each other.

    A ring of g workers passes (g-1)/g of the weights for a gather or scatter, and only where its group spans hosts. A
    host's workers hold min(g, host size)/g of the weights in all, and that much is reduced with other replicas.
    """
    group = np.minimum(workers, sharded_over)
    replicas = np.ceil(workers / group)
    spans = group > host_size
    count = _collectives_of_a_group(accumulation)
    within = np.where(spans, count * (group - 1) / group, 0.0)
    apart = np.where(spans, replicas, np.minimum(replicas, hosts))
    held = np.minimum(group, host_size) / group
    volume: Array = (within + held * _ring_share(np.maximum(apart, 1.0))) * (hosts > 1)
    steps: Array = count * (np.ceil(group / host_size) - 1) + 2 * (apart - 1)
    return volume, steps * (hosts > 1)
