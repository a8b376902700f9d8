"""What TensorFlow sends in a step: MultiWorkerMirroredStrategy's packs, ParameterServerStrategy's pushes."""

import itertools
import typing

from steptime.worker.communication import (
    MIB,
    CommunicationPlan,
    Policy,
    PolicyContext,
    Work,
    asynchronous,
    message_of,
    packs,
    pushed_one_by_one,
)


def bytes_per_pack(pack_mb: float) -> int:
    """Return what ``CommunicationOptions`` is asked for, from MiB; 0 puts all gradients into one pack."""
    return int(pack_mb * MIB)


def packed(work: Work, context: PolicyContext) -> CommunicationPlan:
    """Return MultiWorkerMirroredStrategy's packs, of ``pack_mb``.

    Gradients in reverse; a pack takes one more as long as it has not passed its size, and goes when its last gradient
    is there. A token makes each collective wait for the one before (TensorFlow 2.21, cross_device_ops).
    """
    limits = itertools.repeat(bytes_per_pack(context.number("pack_mb")) or float("inf"))
    return CommunicationPlan(
        tuple(message_of(pack) for pack in packs(work.backward_gradients(), limits, may_reach=True))
    )


def served(work: Work, context: PolicyContext) -> CommunicationPlan:
    """Return a push per gradient; weights are dealt out behind the counter of updates, which is first on server 0."""
    return pushed_one_by_one(
        work, context, lambda sizes, servers: [(1 + place) % servers for place in range(len(sizes))]
    )


POLICIES: typing.Mapping[str, Policy] = {"allreduce": packed, "ps_async": asynchronous(served)}
