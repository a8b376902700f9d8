"""What DeepSpeed sends in a step: buckets behind the backward pass, and what the stages of ZeRO add.

S. Rajbhandari et al., SC 2020, and the sources of DeepSpeed 0.19, which differ from the paper in places.
"""

import itertools
import typing

from steptime.worker.communication import (
    END_OF_BACKWARD,
    VALUE_BYTES,
    CommunicationPlan,
    Gather,
    PlannedMessage,
    Policy,
    PolicyContext,
    Work,
    flat,
    message_of,
    packs,
)

KEPT_WHOLE_VALUES = 100000
"""Stage 3 keeps parameters of up to so many values whole (``stage3_param_persistence_threshold``)."""


def buckets(work: Work, context: PolicyContext) -> CommunicationPlan:
    """Return all-reduces of ``bucket_values`` values, all behind the backward pass."""
    limits = itertools.repeat(context.number("bucket_values") * VALUE_BYTES)
    return CommunicationPlan(
        tuple(
            message_of(pack, after=END_OF_BACKWARD) for pack in packs(work.forward_gradients(), limits, may_reach=True)
        )
    )


def split_state(work: Work, context: PolicyContext) -> CommunicationPlan:
    """Return an all-reduce of gradients behind the backward pass and an all-gather of weights behind the update.

    DeepSpeed reduces buckets that belong to several workers by an all-reduce (``use_multi_rank_bucket_allreduce``), so
    that half as much again travels as without ZeRO.
    """
    weights = PlannedMessage("all_gather", work.gradient_bytes, END_OF_BACKWARD)
    return buckets(work, context)._replace(after_update=(weights,))


def split_weights(work: Work, context: PolicyContext) -> CommunicationPlan:
    """Return a gather per layer in each pass, one reduce-scatter behind them, and small weights behind the update.

    Gathers run one layer ahead; the bucket of gradients holds more than any workload has.
    """
    kept_bytes = KEPT_WHOLE_VALUES * VALUE_BYTES
    small = sum(gradient.bytes for gradient in work.forward_gradients() if gradient.bytes <= kept_bytes)
    sizes = [sum(each.bytes for each in layer.gradients if each.bytes > kept_bytes) for layer in work.layers]
    return flat(work, context, "reduce_scatter")._replace(
        gathers=tuple(Gather((place,), size, again=True) for place, size in enumerate(sizes) if size),
        prefetch=1,
        after_update=(PlannedMessage("all_gather", small, END_OF_BACKWARD),) if small else (),
    )


POLICIES: typing.Mapping[str, Policy] = {
    "allreduce": buckets,
    "zero1": split_state,
    "zero2": split_state,
    "zero3": split_weights,
}
