"""The curve model: the time of a step over that of one worker, put together from the performance models.

``r(p) = 1 + inside(g) + exposed(between(h)) / c + straggling(h)`` with g workers in the fullest host, h hosts and c
the seconds of one worker. What happens inside a host does not change any more once a host is full. A flat ring goes
through the links inside and between hosts at once and is as slow as the slower ones; two levels take turns. Where a
table does not say who shares a host, workers beyond the measured ones may come to share cards.
"""

import numpy as np

from steptime.model.overlap import exposed
from steptime.predict.curve.curve import Array, ScalingCurve
from steptime.predict.curve.facts import Facts, facts_of
from steptime.predict.curve.priors import INDEX, PARAMETERS

_FULL_HOST = 8
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
    size = facts.gradient_bytes * (1 - 0.5 * _half(facts, value["half"]))
    together = np.minimum(workers, curve.setup.host_size)
    hosts = np.array([curve.hosts(int(count)) for count in workers], dtype=float)
    volume = _through_servers(hosts, servers, value) if facts.servers else _through_rings(workers, hosts, value)
    network = value["efficiency"] * facts.card_rate
    per_byte = 1 / network + hosts ** value["chopping"] / (value["stack_rate"] * facts.cards)
    between = volume * size * per_byte + value["latency"] * facts.latency * facts.messages * _steps(hosts, facts)
    if not facts.hosts_stated:
        between = between * np.maximum(1.0, workers / curve.fit[-1].workers) ** value["sharing"]
    waiting = exposed(between / seconds, _BACKWARD_SHARE, value["hidden"] if facts.overlaps else 0.0)
    around = value["inside"] * _ring_share(together) * size / facts.inside_rate / seconds
    inside = _crowding(together, value) + around - value["flat"] * np.minimum(around, waiting)
    straggling = value["host_jump"] * (hosts > 1) + value["host_doubling"] * np.log2(hosts)
    relative: Array = 1 + inside + waiting + straggling
    return relative


def _half(facts: Facts, prior: Array) -> Array | float:
    return prior if 0 < facts.half_bytes < 1 else facts.half_bytes


def _ring_share(workers: Array) -> Array:
    share: Array = 2 * (workers - 1) / workers
    return share


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


def _steps(hosts: Array, facts: Facts) -> Array:
    """Return how many latencies between hosts follow each other in one exchange; those inside are short beside them."""
    if facts.servers:
        return np.where(hosts > 1, 2.0, 0.0)
    steps: Array = 2 * (hosts - 1)
    return steps
