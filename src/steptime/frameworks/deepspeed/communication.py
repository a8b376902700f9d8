"""What DeepSpeed sends in a step: buckets behind the backward pass, and what the stages of ZeRO add.

S. Rajbhandari et al., SC 2020, and the steps of DeepSpeed 0.19.8 as torch's profiler counts them
(``benchmarks/collectives/deepspeed.csv``), which differ from the paper. The norm of gradients, one number, is left out.
"""

import itertools
import typing

from steptime.worker.communication import (
    END_OF_BACKWARD,
    VALUE_BYTES,
    CommunicationPlan,
    Gather,
    Gradient,
    PlannedMessage,
    Policy,
    PolicyContext,
    Work,
    message_of,
    packs,
    scattered_by,
)

KEPT_WHOLE_VALUES = 100000
"""Stage 3 keeps parameters of up to so many values whole (``stage3_param_persistence_threshold``)."""


REDUCED_AT_ONCE = 500000000
"""Values that stage 0 reduces together, whatever the option is (``MEMORY_OPT_ALLREDUCE_SIZE``)."""
PREFETCHED_VALUES = 50000000
"""Of weights that stage 3 gathers together, ahead of the forward pass (``stage3_prefetch_bucket_size``)."""


def whole_state(work: Work, context: PolicyContext) -> CommunicationPlan:  # noqa: ARG001 - a policy's arguments
    """Return all-reduces of ``REDUCED_AT_ONCE`` values, all behind the backward pass."""
    limits = itertools.repeat(REDUCED_AT_ONCE * VALUE_BYTES)
    return CommunicationPlan(
        tuple(
            message_of(pack, after=END_OF_BACKWARD) for pack in packs(work.forward_gradients(), limits, may_reach=True)
        )
    )


def buckets(work: Work, context: PolicyContext, operation: str) -> typing.Tuple[PlannedMessage, ...]:
    """Return messages of at most ``bucket_values`` values, or of one larger gradient, as the backward pass goes.

    On processors none hides behind it: the engine sends a full bucket within it, and waits.
    """
    limit = context.number("bucket_values") * VALUE_BYTES
    filled: typing.List[typing.List[Gradient]] = []
    size = 0
    for gradient in work.backward_gradients():
        if not filled or size + gradient.bytes > limit:
            filled.append([])
            size = 0
        filled[-1].append(gradient)
        size += gradient.bytes
    return tuple(message_of(pack, operation, END_OF_BACKWARD) for pack in filled)


def split_state(work: Work, context: PolicyContext) -> CommunicationPlan:
    """Return an all-reduce of gradients behind the backward pass and an all-gather of weights behind the update.

    DeepSpeed reduces buckets that belong to several workers by an all-reduce (``use_multi_rank_bucket_allreduce``), so
    that half as much again travels as without ZeRO.
    """
    weights = PlannedMessage("all_gather", work.gradient_bytes, END_OF_BACKWARD)
    return CommunicationPlan(buckets(work, context, "allreduce"), after_update=(weights,))


def split_weights(work: Work, context: PolicyContext) -> CommunicationPlan:
    """Return gathers ahead of the forward pass, reduce-scatters, and a gather of each small array behind the update.

    The hook of the whole network gathers the weights of as many layers as ``PREFETCHED_VALUES`` has room for, together,
    and further ones run ahead. The backward pass finds them there: what is used again within 10**9 values is kept.
    """
    kept_bytes = KEPT_WHOLE_VALUES * VALUE_BYTES
    large = [gradient for gradient in work.forward_gradients() if gradient.bytes > kept_bytes]
    small = [gradient for gradient in work.forward_gradients() if gradient.bytes <= kept_bytes]
    return CommunicationPlan(
        buckets(work, context, scattered_by(context)),
        gathers=tuple(
            Gather(tuple(sorted({each.layer for each in pack})), sum(each.bytes for each in pack), again=False)
            for pack in packs(large, itertools.repeat(PREFETCHED_VALUES * VALUE_BYTES))
        ),
        prefetch=1,
        after_update=tuple(PlannedMessage("all_gather", each.bytes, END_OF_BACKWARD) for each in small),
    )


POLICIES: typing.Mapping[str, Policy] = {
    "allreduce": whole_state,
    "zero1": split_state,
    "zero2": split_state,
    "zero3": split_weights,
}
