"""What TensorFlow 1 sends in a step: pushes to the servers that ``replica_device_setter`` chose for the variables."""

import typing

from steptime.worker.communication import (
    CommunicationPlan,
    Policy,
    PolicyContext,
    Sharding,
    Work,
    asynchronous,
    in_turn,
    lightest_in_turn,
    pushed_one_by_one,
)

SHARDINGS: typing.Mapping[str, Sharding] = {"round_robin": in_turn, "balanced": lightest_in_turn}
"""Which server holds which variable, by the option ``sharding``."""


def served(work: Work, context: PolicyContext) -> CommunicationPlan:
    """Return a push per gradient as soon as it is there; all weights are pulled when the next step begins."""
    return pushed_one_by_one(work, context, SHARDINGS[str(context.options["sharding"])])


POLICIES: typing.Mapping[str, Policy] = {"ps_sync": served, "ps_async": asynchronous(served)}
