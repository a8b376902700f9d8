"""What MXNet's key-value store sends in a step: a push and a pull per gradient.

M. Li et al., OSDI 2014, and the sources of MXNet 1.9.
"""

import typing

from steptime.worker.communication import (
    END_OF_BACKWARD,
    VALUE_BYTES,
    CommunicationPlan,
    Policy,
    PolicyContext,
    Work,
    asynchronous,
    message_of,
)

KEY_MULTIPLIER = 9973
"""MXNet multiplies a key with this before it takes the remainder by the number of servers."""


def priority_of(key: int) -> int:
    """Return the priority of a parameter's exchange, by its position: layers that are used first go first."""
    return -key


def pushed(work: Work, context: PolicyContext) -> CommunicationPlan:
    """Return a push and a pull per gradient, as soon as it is there; layers that are used first have priority.

    On a CPU the engine has one thread, which computes first: gradients were seen to leave when the backward pass was
    over, those of the first layer first, even where others had been there 50 ms before. Arrays of ``bigarray_bound``
    values or more are cut into equal parts for all servers. The next forward pass starts with the weights that have
    come.
    """
    bound = context.number("bigarray_bound") * VALUE_BYTES
    servers = max(context.servers, 1)
    after = END_OF_BACKWARD if context.device == "cpu" else None
    keys = {gradient.name: key for key, gradient in enumerate(work.forward_gradients())}
    messages = tuple(
        message_of([gradient], "push", after)._replace(
            server=None if gradient.bytes >= bound else keys[gradient.name] * KEY_MULTIPLIER % servers,
            priority=priority_of(keys[gradient.name]),
        )
        for gradient in work.backward_gradients()
    )
    return CommunicationPlan(messages, updated_by="servers", pulls="with_push", next_overlaps=True)


POLICIES: typing.Mapping[str, Policy] = {"ps_sync": pushed, "ps_async": asynchronous(pushed)}
