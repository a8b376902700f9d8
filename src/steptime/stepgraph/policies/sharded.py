"""Weights, gradients or the optimizer's state split over the workers: DeepSpeed's ZeRO and PyTorch's FSDP.

S. Rajbhandari et al., SC 2020; Y. Zhao et al., PVLDB 16 (2023) 3848; and what the sources of DeepSpeed 0.19 and torch
2.13 do, which is not always what the papers say.
"""

from collections.abc import Iterable
from itertools import groupby

from steptime.stepgraph.plan import Circumstances, Gather, Message, Plan
from steptime.stepgraph.policies.flat import deepspeed
from steptime.stepgraph.policies.packing import VALUE_BYTES
from steptime.stepgraph.work import LayerWork, Work

_END = 0
_SMALLEST_GROUP = 1_000_000
"""Values from which neighbouring blocks are gathered by themselves, as the room ``pytorch`` groups them."""
_KEPT = 100_000
"""Values up to which stage 3 keeps a parameter whole (``stage3_param_persistence_threshold``)."""


def zero_1_2(work: Work, circumstances: Circumstances) -> Plan:
    """Return an all-reduce of gradients behind the backward pass and an all-gather of weights behind the update.

    DeepSpeed reduces buckets that belong to several workers by an all-reduce (``use_multi_rank_bucket_allreduce``), so
    that half as much again travels as without ZeRO.
    """
    whole = Message("all_gather", work.gradient_bytes, _END)
    return Plan(messages=deepspeed(work, circumstances).messages, after_update=(whole,))


def zero_3(work: Work, circumstances: Circumstances) -> Plan:  # noqa: ARG001
    """Return a gathering per layer in each pass, one reduce-scatter behind them, small weights behind the update.

    Gatherings run one layer ahead; the bucket of gradients holds more than any workload here.
    """
    small = sum(tensor.bytes for tensor in work.forward_tensors() if tensor.bytes <= _KEPT * VALUE_BYTES)
    gathers = []
    for place, layer in enumerate(work.layers):
        size = sum(tensor.bytes for tensor in layer.tensors if tensor.bytes > _KEPT * VALUE_BYTES)
        if size:
            gathers.append(Gather((place,), size, again=True))
    return Plan(
        messages=(Message("reduce_scatter", work.gradient_bytes, _END, _names(work.layers)),),
        gathers=tuple(gathers),
        prefetch=1,
        after_update=(Message("all_gather", small, _END),) if small else (),
    )


def fsdp(work: Work, circumstances: Circumstances) -> Plan:
    """Return a gathering per group of layers in each pass, and a reduce-scatter behind each group's backward pass.

    Over gloo nothing runs ahead: torch waits for each. On devices the next group is gathered meanwhile. The root, which
    gathers all at once where there are no groups, keeps its weights for the backward pass.
    """
    groups = _groups(work)
    rooted = len(groups) == 1
    return Plan(
        messages=tuple(
            Message("reduce_scatter", _bytes(work, group), min(group), _names(work.layers[place] for place in group))
            for group in reversed(groups)
        ),
        gathers=tuple(Gather(tuple(group), _bytes(work, group), again=not rooted) for group in groups),
        prefetch=0 if circumstances.device == "cpu" else 1,
    )


def _groups(work: Work) -> list[list[int]]:
    groups: list[list[int]] = []
    current: list[int] = []
    size = 0
    for _, block in groupby(range(len(work.layers)), key=lambda place: work.layers[place].block):
        places = list(block)
        own = _bytes(work, places) // VALUE_BYTES
        if own and size >= _SMALLEST_GROUP:
            groups.append(current)
            current, size = [], 0
        current += places
        size += own
    if size >= _SMALLEST_GROUP or not groups:
        groups.append(current)
    else:
        groups[-1] += current
    return groups


def _bytes(work: Work, group: Iterable[int]) -> int:
    return sum(work.layers[place].gradient_bytes for place in group)


def _names(layers: Iterable[LayerWork]) -> tuple[str, ...]:
    return tuple(tensor.name for layer in layers for tensor in layer.tensors)
