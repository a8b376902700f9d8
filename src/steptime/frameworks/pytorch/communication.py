"""What PyTorch sends in a step: DistributedDataParallel's buckets, FSDP2's groups, the rows of parameter servers.

S. Li et al., PVLDB 13 (2020) 3005, and the reducer of torch 2.13; Y. Zhao et al., PVLDB 16 (2023) 3848, and what the
sources of torch 2.13 do. The grouping of layers for FSDP and the parameter servers are this adapter's own.
"""

import functools
import itertools
import operator
import typing

from steptime.worker.communication import (
    MIB,
    VALUE_BYTES,
    CommunicationPlan,
    Gradient,
    Policy,
    PolicyContext,
    Sharding,
    Work,
    asynchronous,
    in_turn,
    lightest_largest_first,
    message_of,
    packs,
    pushed_rows,
    sharded_in_groups,
)

DDP_BUCKET_MB = 25.0
"""DDP's own bucket size, in MiB."""
DDP_FIRST_BUCKET_MB = 1.0
"""With its own size DDP closes the first bucket here already, so that sending starts early."""
GLOO_IN_FLIGHT = 2
"""A process group over gloo works on two collectives at once; NCCL queues them on one stream."""
SHARDINGS: typing.Mapping[str, Sharding] = {
    "balanced": lightest_largest_first,
    "round_robin": in_turn,
}
"""Which server holds which weights, by the option ``sharding``."""


def bucket_cap_mb(asked_mb: float) -> typing.Optional[float]:
    """Return the size to ask DDP for: None for DDP's own, since its small first bucket goes with no size asked for."""
    return None if asked_mb == DDP_BUCKET_MB else asked_mb


def buckets(work: Work, context: PolicyContext) -> CommunicationPlan:
    """Return one all-reduce per bucket, during the backward pass, in the order in which gradients are completed.

    In the first step all gradients are one bucket; the plan is that of the second step and later ones.
    """
    asked_mb = bucket_cap_mb(context.number("bucket_mb"))
    first_mb, other_mb = (DDP_FIRST_BUCKET_MB, DDP_BUCKET_MB) if asked_mb is None else (asked_mb, asked_mb)
    limits = itertools.chain([first_mb * MIB], itertools.repeat(other_mb * MIB))
    return CommunicationPlan(
        messages=tuple(message_of(pack) for pack in packs(_in_order_of_completion(work), limits)),
        in_flight=GLOO_IN_FLIGHT if context.device == "cpu" else 1,
    )


def _in_order_of_completion(work: Work) -> typing.Iterator[Gradient]:
    """Yield gradients as torch completes them: only a linear layer's bias comes before its weight."""
    for layer in reversed(work.layers):
        yield from reversed(layer.gradients) if layer.kind == "linear" else layer.gradients


def fully_sharded(work: Work, context: PolicyContext) -> CommunicationPlan:
    """Return a gather per group of layers in each pass, and a reduce-scatter behind each group's backward pass.

    Over gloo torch waits for each gather; on devices the next group is gathered meanwhile. The root, which gathers
    all at once where there are no groups, keeps its weights for the backward pass.
    """
    blocks = [
        [place for place, _ in layers]
        for _, layers in itertools.groupby(enumerate(work.layers), key=lambda placed: placed[1].block)
    ]
    values = [sum(work.layers[place].gradient_bytes for place in block) // VALUE_BYTES for block in blocks]
    smallest = int(context.number("group_values"))
    groups = [[place for block in group for place in blocks[block]] for group in sharding_groups(values, smallest)]
    ahead = max(1, int(context.number("prefetch")))
    plan = sharded_in_groups(work, groups, context)._replace(prefetch=0 if context.device == "cpu" else ahead)
    resharding = str(context.options["reshard_after_forward"])
    if resharding == "no" or (resharding == "default" and len(groups) == 1):
        plan = plan._replace(gathers=tuple(gather._replace(again=False) for gather in plan.gathers))
    return plan


def sharding_groups(values: typing.Sequence[int], smallest: int) -> typing.List[typing.List[int]]:
    """Return lists of neighbouring blocks, each list with parameters enough to be gathered by itself.

    A group starts with a block that has parameters, because what follows without any may overwrite its input, which
    FSDP forbids at the entry of a group. A rest at the end that is too small joins the group before it.

    Args:
        values: how many parameters each block has, in the order of the forward pass.
        smallest: parameters from which neighbouring blocks are a group.
    """
    groups: typing.List[typing.List[int]] = []
    current: typing.List[int] = []
    size = 0
    for block, own in enumerate(values):
        if own and size >= smallest:
            groups.append(current)
            current, size = [], 0
        current.append(block)
        size += own
    if size >= smallest or not groups:
        groups.append(current)
    else:
        groups[-1] += current
    return groups


def server_rows(work: Work, context: PolicyContext) -> CommunicationPlan:
    """Return one row of values per server, all sent behind the backward pass; the answers bring the weights."""
    return pushed_rows(work, context, SHARDINGS[str(context.options["sharding"])])


POLICIES: typing.Mapping[str, Policy] = {
    "allreduce": buckets,
    "fsdp": fully_sharded,
    "ps_sync": server_rows,
    "ps_async": asynchronous(server_rows),
}


_OF_IMAGES = 4
"""Dimensions of a convolution's weights."""


class ServerShards(object):
    """The weights of a network in one row of values per server.

    ``names``
        For every server, the parameters that it holds, in their order in the row.
    ``sizes``
        For every server, how many values it holds.
    """

    def __init__(self, layers: typing.List[typing.Any], servers: int, sharding: str, innermost: bool) -> None:
        """Share the parameters of ``layers`` out.

        Args:
            layers: of the workload.
            servers: how many there are; one that gets nothing holds an empty row.
            sharding: ``balanced`` gives the largest parameter that is left to the server that holds least;
                ``round_robin`` deals them out in the order of the layers.
            innermost: whether the weights of convolutions lie with their channels innermost.
        """
        parameters = [parameter for layer in layers for parameter in layer["parameters"]]
        self._shapes = {parameter["name"]: list(parameter["shape"]) for parameter in parameters}
        self._innermost = innermost
        order = [parameter["name"] for parameter in parameters]
        chosen = SHARDINGS[sharding]([self._size(name) for name in order], servers)
        self.names = [[name for name, own in zip(order, chosen) if own == server] for server in range(servers)]
        self.sizes = [sum(map(self._size, held)) for held in self.names]

    def views(self, server: int, row: typing.Any) -> typing.Dict[str, typing.Any]:
        """Return ``{name: tensor}`` of the parameters that lie in ``row``, in their own shapes; nothing is copied."""
        parts = row.split([self._size(name) for name in self.names[server]]) if self.names[server] else ()
        return {name: self._shaped(part, self._shapes[name]) for name, part in zip(self.names[server], parts)}

    def _shaped(self, part: typing.Any, shape: typing.Sequence[int]) -> typing.Any:
        if self._innermost and len(shape) == _OF_IMAGES:
            outputs, inputs, height, width = shape
            return part.view(outputs, height, width, inputs).permute(0, 3, 1, 2)
        return part.view(shape)

    def _size(self, name: str) -> int:
        return functools.reduce(operator.mul, self._shapes[name], 1)
