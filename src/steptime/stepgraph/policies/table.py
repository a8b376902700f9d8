"""Which framework follows which rule, by its name and the strategy."""

from collections.abc import Mapping

from steptime.stepgraph.plan import Policy
from steptime.stepgraph.policies.alone import alone
from steptime.stepgraph.policies.buckets import buckets
from steptime.stepgraph.policies.cntk import block_momentum, onebit, small_together
from steptime.stepgraph.policies.flat import chainermn, deepspeed, flat, star
from steptime.stepgraph.policies.horovod import fusing
from steptime.stepgraph.policies.layerwise import caffe
from steptime.stepgraph.policies.packs import jax, tensorflow
from steptime.stepgraph.policies.servers import WITH_SERVERS, freely, pytorch
from steptime.stepgraph.policies.sharded import fsdp, zero_1_2, zero_3

POLICIES: Mapping[tuple[str, str], Policy] = {
    ("pytorch", "allreduce"): buckets,
    ("pytorch", "fsdp"): fsdp,
    ("horovod_pytorch", "allreduce"): fusing,
    ("horovod_tensorflow", "allreduce"): fusing,
    ("horovod_mxnet", "allreduce"): fusing,
    ("tensorflow", "allreduce"): tensorflow,
    ("jax", "allreduce"): jax,
    ("deepspeed", "allreduce"): deepspeed,
    ("deepspeed", "zero1"): zero_1_2,
    ("deepspeed", "zero2"): zero_1_2,
    ("deepspeed", "zero3"): zero_3,
    ("caffe", "allreduce"): caffe,
    ("chainer", "allreduce"): chainermn,
    ("cntk", "allreduce"): small_together,
    ("cntk", "onebit"): onebit,
    ("cntk", "block_momentum"): block_momentum,
    ("reference", "allreduce"): star,
    **WITH_SERVERS,
}

BY_STRATEGY: Mapping[str, Policy] = {
    "single": alone,
    "allreduce": flat,
    "fsdp": fsdp,
    "zero1": zero_1_2,
    "zero2": zero_1_2,
    "zero3": zero_3,
    "onebit": onebit,
    "block_momentum": block_momentum,
    "ps_sync": pytorch,
    "ps_async": freely(pytorch),
}
"""For frameworks that are not in the table, whose ways nobody has written down: the plainest way of each strategy."""


def policy_of(framework: str, strategy: str) -> Policy:
    """Return the rule of a framework's strategy, or the plainest one of the strategy.

    Raises KeyError for a strategy without any.
    """
    return POLICIES.get((framework, strategy)) or BY_STRATEGY[strategy]
