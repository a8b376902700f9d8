"""What Caffe sends in a step, as steptime's own layer over MPI does it."""

import typing

from steptime.worker.communication import CommunicationPlan, Policy, PolicyContext, Work, flat, layerwise


def reduction(work: Work, context: PolicyContext) -> CommunicationPlan:
    """Return what the option ``reduction`` asks for: sums ``after`` the backward pass, or ``layerwise`` during it."""
    rules: typing.Dict[str, Policy] = {"after": flat, "layerwise": layerwise}
    return rules[str(context.options["reduction"])](work, context)


POLICIES: typing.Mapping[str, Policy] = {"allreduce": reduction}
