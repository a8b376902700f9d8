"""What DataParallel of PaddlePaddle sends in a step: buckets of neighbouring gradients, during the backward pass.

The assignment of parameters to buckets is that of ``core.eager_assign_group_by_size`` and ``DataParallel.init_reducer``
of Paddle 3.3: parameters are packed in the order of the layers, the first bucket is the small one, and buckets are sent
in the opposite order, each when all of its gradients are there.
"""

import itertools
import typing

from steptime.worker.communication import MIB, CommunicationPlan, Policy, PolicyContext, Work, message_of, packs


def buckets(work: Work, context: PolicyContext) -> CommunicationPlan:
    """Return one all-reduce per bucket, from the last layers to the first; over gloo one after the other."""
    limits = itertools.chain(
        [context.number("last_bucket_mb") * MIB], itertools.repeat(context.number("bucket_mb") * MIB)
    )
    packed = list(packs(work.forward_gradients(), limits))
    return CommunicationPlan(messages=tuple(message_of(pack) for pack in reversed(packed)))


POLICIES: typing.Mapping[str, Policy] = {"allreduce": buckets}
