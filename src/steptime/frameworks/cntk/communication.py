"""What CNTK's distributed learners send in a step; all of them exchange behind the backward pass.

CNTK 2.7; F. Seide et al., Interspeech 2014, for few bits per value; K. Chen, Q. Huo, ICASSP 2016, for block momentum.
"""

import typing

from steptime.worker.communication import (
    END_OF_BACKWARD,
    MIB,
    CommunicationPlan,
    Policy,
    PolicyContext,
    Work,
    averaged_in_blocks,
    message_of,
    quantized,
)

IN_FLIGHT = 4
"""CNTK starts all messages before it waits for any; workloads have no more large gradients than this."""


def small_together(work: Work, context: PolicyContext) -> CommunicationPlan:
    """Return gradients of ``pack_mb`` MiB or more one by one and the others in one message, all under way at once."""
    pack_bytes = context.number("pack_mb") * MIB
    small = [gradient for gradient in work.forward_gradients() if gradient.bytes < pack_bytes]
    large = [[gradient] for gradient in work.forward_gradients() if gradient.bytes >= pack_bytes]
    held = large + ([small] if small else [])
    return CommunicationPlan(tuple(message_of(each, after=END_OF_BACKWARD) for each in held), in_flight=IN_FLIGHT)


def few_bits(work: Work, context: PolicyContext) -> CommunicationPlan:
    """Return gradients of ``bits`` bits per value."""
    return quantized(work, context, context.number("bits"))


def blocks(work: Work, context: PolicyContext) -> CommunicationPlan:
    """Return weights that are averaged once per block of ``block_size`` samples of all workers together."""
    return averaged_in_blocks(work, context, context.number("block_size"))


POLICIES: typing.Mapping[str, Policy] = {
    "allreduce": small_together,
    "onebit": few_bits,
    "block_momentum": blocks,
}
