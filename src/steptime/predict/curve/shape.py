"""The curve model: the time of a step over that of one worker, put together from the performance models.

``r(p) = 1 + inside(g) + exposed(between(h)) / c + straggling(h)`` with g workers in the fullest host, h hosts and c
the seconds of one worker. What happens inside a host does not change any more once a host is full. A flat ring goes
through the links inside and between hosts at once and is as slow as the slower ones; two levels take turns. Inside a
host of which all links meet in a switch, an exchange may cost two workers as much as eight. Where workers were
spread over all hosts before any had two, those beyond the measured ones share cards.

Where a table states over how many workers weights are split, each pass gathers them and each step scatters gradients
within such a group, and equal parts of its replicas are reduced (Y. Zhao et al., *PyTorch FSDP*, VLDB 2023, hybrid
sharding). Of several backward passes before one exchange only the last hides it.
"""

import numpy as np

from steptime.predict.curve.curve import Array, ScalingCurve
from steptime.predict.curve.facts import Facts, facts_of
from steptime.predict.curve.priors import INDEX, PARAMETERS
from steptime.predict.model.overlap import exposed

_FULL_HOST = 8
_MOST_EXPONENT = 2.0
"""Of what grows with a power of hosts or workers: cards that come to be shared, and switches that these share."""
_BACKWARD_SHARE = 0.66
"""Of a step's computing, while which gradients become ready."""


def relative_times(curve: ScalingCurve, workers: Array, servers: Array, seconds: float, parameters: Array) -> Array:
    """Return times relative to one worker, (samples, points).

    Args:
        curve: for its set-up.
        workers: of the points.
        servers: of the points; nan where not stated.
        seconds: the compute time of one worker.
        parameters: samples behind their links, (samples, parameters).
    """
    facts = facts_of(curve.setup)
    value = {parameter.name: parameter.natural(parameters[:, [INDEX[parameter.name]]]) for parameter in PARAMETERS}
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
    waiting = exposed(between / seconds, _window(facts), value["hidden"] if facts.overlaps else 0.0)
    passes = _passes(together, value, shared=facts.shared_memory)
    if facts.sharded_over is not None:
        grouped = _passes(np.minimum(together, facts.sharded_over), value, shared=facts.shared_memory)
        passes = grouped * _collectives_of_a_group(facts.accumulation) / 2
    around = value["inside"] * passes * size / (facts.inside_rate * unstated["unstated_inside"]) / seconds
    inside = _crowding(together, value) + around - value["flat"] * np.minimum(around, waiting)
    straggling = value["host_jump"] * (hosts > 1) + value["host_doubling"] * np.log2(hosts)
    relative: Array = 1 + inside + waiting + straggling
    return relative


def _half(facts: Facts, prior: Array) -> Array | float:
    return prior if 0 < facts.half_bytes < 1 else facts.half_bytes


def _ring_share(workers: Array) -> Array:
    share: Array = 2 * (workers - 1) / workers
    return share


def _passes(together: Array, value: dict[str, Array], *, shared: bool) -> Array:
    """Return how many times the gradients pass a link inside the host, or the memory that all its workers share."""
    saturated = value["saturation"]
    passes: Array = (1 - saturated) * _ring_share(together) + saturated * (together > 1)
    if shared:
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
