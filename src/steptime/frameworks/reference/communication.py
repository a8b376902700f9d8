"""What the reference sends in a step: everything to worker 0 behind the backward pass, and the average back."""

import typing

from steptime.worker.communication import CommunicationPlan, Policy, PolicyContext, Work, flat


def star(work: Work, context: PolicyContext) -> CommunicationPlan:
    """Return one message of all gradients, which worker 0 collects, averages and answers."""
    return flat(work, context, "star")


POLICIES: typing.Mapping[str, Policy] = {"allreduce": star}
