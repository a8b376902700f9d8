"""What Horovod sends in a step, whatever library computes; a group of gradients goes when all of it is there."""

import typing

from steptime.libraries.horovod.communication import POLICIES as PLAIN
from steptime.worker.communication import CommunicationPlan, Policy, PolicyContext, Work, message_of

Value = typing.TypeVar("Value")


def split(values: typing.Sequence[Value], groups: int) -> typing.List[typing.Sequence[Value]]:
    """Return ``values`` in so many lists of neighbours, which differ by one in length at most; none for 0."""
    if not groups:
        return []
    ends = [len(values) * number // groups for number in range(groups + 1)]
    return [values[start:end] for start, end in zip(ends, ends[1:]) if end > start]


def grouped(work: Work, context: PolicyContext) -> CommunicationPlan:
    """Return Horovod's plan, with one message for each of the option's ``groups`` where there are any."""
    plan = PLAIN["allreduce"](work, context)
    held = split(list(work.forward_gradients()), int(context.number("groups")))
    return plan._replace(messages=tuple(message_of(group) for group in reversed(held))) if held else plan


POLICIES: typing.Mapping[str, Policy] = {"allreduce": grouped}
