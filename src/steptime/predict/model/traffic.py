"""What travels in a step: the bytes of gradients and weights by precision, compression and sharding.

Sources: S. Rajbhandari et al., "ZeRO", SC 2020, section 7: with P values, data parallelism, ZeRO 1 and ZeRO 2 move 2 P
values per worker and step, ZeRO 3 moves 3 P; F. Seide et al., Interspeech 2014, for one bit per value; D. Alistarh et
al., NeurIPS 2018, for the largest values of all with their places; Y. Zhao et al., PVLDB 16 (2023) 3848, for shards
within hosts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from steptime.predict.model.policies import StepGraph
from steptime.worker.communication import Gather, PlannedMessage

WIDTHS: Mapping[str, int] = {"fp32": 4, "bf16": 2, "fp16": 2}
"""Bytes of a value."""
COMPRESSIONS = ("none", "fp16", "bf16", "onebit", "topk")
SHARDS = ("all", "host")
_PLANNED_WIDTH = 4
_PLACE_BYTES = 4
_COMPRESSED = {"fp16": 1 / 2, "bf16": 1 / 2, "onebit": 1 / 32}
"""What is left of a gradient of 32 bits."""
_GRADIENTS = ("allreduce", "reduce_scatter", "push", "star")


@dataclass(frozen=True)
class Traffic:
    """How gradients and weights travel; by default as the step graph plans them, in 32 bits."""

    gradient_precision: str = "fp32"
    """Of gradients, and of weights that are gathered."""
    compression: str = "none"
    """One of ``COMPRESSIONS``, of gradients alone."""
    kept: float = 0.01
    """Share of the values that ``topk`` sends."""
    shard: str = "all"
    """``host``: each host has all weights and optimizer state, sharded over its own workers."""


AS_PLANNED = Traffic()


def with_traffic(graph: StepGraph, traffic: Traffic, workers: int, per_host: int) -> StepGraph:
    """Return the graph with other bytes in its messages.

    Args:
        graph: a step whose messages have 4 bytes per value.
        traffic: how they travel.
        workers: how many.
        per_host: workers of a host, among which shards are spread.
    """
    if traffic == AS_PLANNED:
        return graph
    width = WIDTHS[traffic.gradient_precision] / _PLANNED_WIDTH
    plan = graph.plan
    messages = [_compressed(each, traffic, width, workers) for each in plan.messages]
    gathers = tuple(gather._replace(bytes=round(gather.bytes * width)) for gather in plan.gathers)
    after = tuple(each._replace(bytes=round(each.bytes * width)) for each in plan.after_update)
    if traffic.shard == "host" and per_host < workers:
        messages = [part for each in messages for part in _within_hosts(each)]
        after = tuple(each._replace(operation="host_all_gather") for each in after)
        gathers = tuple(Gather(gather.layers, gather.bytes, gather.again, "host_all_gather") for gather in gathers)
    return replace(graph, plan=plan._replace(messages=tuple(messages), gathers=gathers, after_update=after))


def ignored_option(graph: StepGraph, traffic: Traffic) -> str | None:
    """Return ``name=value`` of an option that changes nothing of what a step sends, on whatever hosts; None if none."""
    options = {name: getattr(traffic, name) for name in ("gradient_precision", "compression", "shard")}
    for name, value in options.items():
        alone = replace(AS_PLANNED, **{name: value})
        if alone != AS_PLANNED and with_traffic(graph, alone, workers=4, per_host=2).plan == graph.plan:
            return f"{name}={value}"
    return None


def _compressed(message: PlannedMessage, traffic: Traffic, width: float, workers: int) -> PlannedMessage:
    if message.operation not in _GRADIENTS or traffic.compression == "none":
        return message._replace(bytes=round(message.bytes * width))
    if traffic.compression == "topk":
        # Every worker ends up with the values and places of all others.
        kept = traffic.kept * message.bytes / _PLANNED_WIDTH * (_PLANNED_WIDTH + _PLACE_BYTES)
        if message.operation == "push":
            return message._replace(bytes=round(kept))
        if message.operation == "star":
            # As many bytes go back as come: to the middle its own values alone, and back those of all workers.
            return message._replace(bytes=round(kept * (workers + 1) / 2))
        return message._replace(operation="all_gather", bytes=round(kept * workers))
    return message._replace(bytes=round(message.bytes * _COMPRESSED[traffic.compression]))


def _within_hosts(message: PlannedMessage) -> list[PlannedMessage]:
    """Return a reduce-scatter within hosts and the all-reduce of each shard between them."""
    if message.operation != "reduce_scatter":
        return [message]
    return [
        message._replace(operation="host_reduce_scatter"),
        message._replace(operation="hosts_allreduce", gradient_names=()),
    ]
