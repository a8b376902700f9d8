"""What CNTK's distributed learners send in a step; all of them exchange behind the backward pass.

CNTK 2.7; F. Seide et al., Interspeech 2014, for few bits per value; K. Chen, Q. Huo, ICASSP 2016, for block momentum.
"""

import typing

from steptime.worker.communication import CommunicationPlan, Policy, PolicyContext, Work
from steptime.worker.policies import END_OF_BACKWARD, averaged_in_blocks, message_of, quantized

PACK_BYTES = 32 * 2**20
"""Gradients below this size are copied into one buffer; CNTK 2.7 returns it from ``get_mpipack_threshold``."""
IN_FLIGHT = 4
"""CNTK starts all messages before it waits for any; workloads have no more large gradients than this."""


def small_together(work: Work, context: PolicyContext) -> CommunicationPlan:  # noqa: ARG001 - a policy's arguments
    """Return large gradients one by one and the others in one message, all under way at once."""
    small = [gradient for gradient in work.forward_gradients() if gradient.bytes < PACK_BYTES]
    large = [[gradient] for gradient in work.forward_gradients() if gradient.bytes >= PACK_BYTES]
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
