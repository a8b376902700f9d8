"""Which framework follows which rule, by its name and the strategy."""

from collections.abc import Mapping

from steptime.stepgraph.plan import Policy
from steptime.stepgraph.policies.alone import alone
from steptime.stepgraph.policies.buckets import buckets
from steptime.stepgraph.policies.flat import chainermn, deepspeed, flat, small_together, star
from steptime.stepgraph.policies.horovod import fusing

POLICIES: Mapping[tuple[str, str], Policy] = {
    ("pytorch", "allreduce"): buckets,
    ("horovod_pytorch", "allreduce"): fusing,
    ("horovod_tensorflow", "allreduce"): fusing,
    ("horovod_mxnet", "allreduce"): fusing,
    ("deepspeed", "allreduce"): deepspeed,
    ("caffe", "allreduce"): flat,
    ("chainer", "allreduce"): chainermn,
    ("cntk", "allreduce"): small_together,
    ("reference", "allreduce"): star,
}

BY_STRATEGY: Mapping[str, Policy] = {
    "single": alone,
    "allreduce": flat,
}
"""For frameworks that are not in the table, whose ways nobody has written down."""


def policy_of(framework: str, strategy: str) -> Policy:
    """Return the rule of a framework's strategy, or the plainest one of the strategy.

    Raises KeyError for a strategy without any.
    """
    return POLICIES.get((framework, strategy), BY_STRATEGY[strategy])
