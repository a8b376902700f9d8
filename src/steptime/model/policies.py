"""Which framework follows which rule, by its name and the strategy.

One worker, which has nobody to exchange anything with.

Exchanges that begin when the backward pass is over.

One exchange per gradient, started as soon as it is there.

Putting gradients together into messages, by size alone.

PyTorch's DistributedDataParallel: buckets in the order in which gradients come, sent during the backward pass.

S. Li et al., PVLDB 13 (2020) 3005, and the reducer of torch 2.13. In the first step all gradients are one bucket;
from the second on a bucket closes with the tensor that reaches its limit: 1 MiB for the first and 25 MiB for the
others, unless a size was asked for, which then holds for all.

CNTK's distributed learners; all exchange behind the backward pass.

F. Seide et al., Interspeech 2014, for one bit per value; K. Chen, Q. Huo, ICASSP 2016, for block momentum.

Horovod: every gradient is announced when it is there, and what all workers have announced is fused and summed.

A. Sergeev, M. Del Balso, arXiv 1802.05799, and the controller of Horovod 0.28: a thread looks every ``cycle_ms`` for
what all workers have, sends it in pieces of up to ``fusion_mb``, and looks again when that is done. On processors that
thread, and those that send for it, share cores with computing.

TensorFlow and JAX: gradients in packs of a fixed make-up, one collective after the other.

Parameter servers: which server gets which gradient, and when new weights come back.

M. Li et al., OSDI 2014; the rules of MXNet's key-value store, of TensorFlow's servers and of the room ``pytorch``.

Weights, gradients or the optimizer's state split over the workers: DeepSpeed's ZeRO and PyTorch's FSDP.

S. Rajbhandari et al., SC 2020; Y. Zhao et al., PVLDB 16 (2023) 3848; and what the sources of DeepSpeed 0.19 and torch
2.13 do, which is not always what the papers say.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby, repeat
from math import ceil

from steptime.model.communication_plan import Circumstances, Fusion, Gather, Message, Operation, Plan, Policy
from steptime.model.layer_work import LayerWork, Tensor, Work


def alone(work: Work, circumstances: Circumstances) -> Plan:  # noqa: ARG001 - the seam's arguments
    """Return the empty plan."""
    return Plan()


MIB = 2**20
VALUE_BYTES = 4


def filled(tensors: Iterable[Tensor], limits: Iterator[float], *, strictly: bool = False) -> Iterator[list[Tensor]]:
    """Yield neighbours that fill a pack, which closes with the tensor that reaches its limit (or crosses it)."""
    pack: list[Tensor] = []
    limit = next(limits)
    for tensor in tensors:
        pack.append(tensor)
        size = sum(each.bytes for each in pack)
        if size > limit or (size == limit and not strictly):
            yield pack
            pack, limit = [], next(limits)
    if pack:
        yield pack


def together(tensors: Iterable[Tensor], *, operation: Operation = "allreduce", after: int | None = None) -> Message:
    """Return one message of several gradients, which can go when the last of them is there, or ``after`` a layer."""
    held = tuple(tensors)
    return Message(
        operation,
        sum(tensor.bytes for tensor in held),
        min(tensor.layer for tensor in held) if after is None else after,
        tuple(tensor.name for tensor in held),
    )


_DEEPSPEED_VALUES = 5e8
_END = 0


def flat(work: Work, circumstances: Circumstances, operation: Operation = "allreduce") -> Plan:  # noqa: ARG001
    """Return one message of everything: Caffe's ``after``, ChainerMN's ``flat``."""
    return Plan(messages=(together(work.forward_tensors(), operation=operation, after=_END),))


def star(work: Work, circumstances: Circumstances) -> Plan:
    """Return one message of everything to worker 0 and back, as the reference room does it."""
    return flat(work, circumstances, "star")


def one_by_one(work: Work, circumstances: Circumstances) -> Plan:  # noqa: ARG001
    """Return a message per gradient, one after the other: ChainerMN's ``naive``."""
    return Plan(messages=tuple(together([tensor], after=_END) for tensor in work.forward_tensors()))


def chainermn(work: Work, circumstances: Circumstances) -> Plan:
    """Return what the option ``communicator`` asks for; ``auto`` is ``naive`` on CPUs.

    ``naive`` leaves sums to MPI, whose MPICH halves and doubles (R. Thakur, R. Rabenseifner, W. Gropp, 2005): three
    workers send more than four.
    """
    name = str(circumstances.options.get("communicator", "auto"))
    if name == "naive" or (name == "auto" and circumstances.device == "cpu"):
        return replace(one_by_one(work, circumstances), algorithm="halving_doubling")
    return flat(work, circumstances)


def deepspeed(work: Work, circumstances: Circumstances) -> Plan:
    """Return DeepSpeed's stage 0: buckets of ``bucket_values`` values, all behind the backward pass."""
    limit = circumstances.number("bucket_values", _DEEPSPEED_VALUES) * VALUE_BYTES
    packs = filled(work.forward_tensors(), repeat(limit), strictly=True)
    return Plan(messages=tuple(together(pack, after=_END) for pack in packs))


def layerwise(work: Work, circumstances: Circumstances) -> Plan:  # noqa: ARG001
    """Return an all-reduce per gradient, in the order of the backward pass, one after the other."""
    return Plan(messages=tuple(together([tensor]) for tensor in work.backward_tensors()))


def caffe(work: Work, circumstances: Circumstances) -> Plan:
    """Return what the option ``reduction`` asks for: ``after`` the backward pass, or ``layerwise`` beside it."""
    rule = layerwise if circumstances.options.get("reduction", "after") == "layerwise" else flat
    return rule(work, circumstances)


_FIRST = 1 * MIB
_OWN_MB = 25.0
_GLOO_THREADS = 2
"""A process group over gloo works on two collectives at once; NCCL queues them on one stream."""


def buckets(work: Work, circumstances: Circumstances) -> Plan:
    """Return one all-reduce per bucket. Of the options it reads ``bucket_mb``, whose 25 is DDP's own way."""
    asked = circumstances.number("bucket_mb", _OWN_MB)
    limits = chain([_FIRST], repeat(_OWN_MB * MIB)) if asked == _OWN_MB else repeat(asked * MIB)
    packs = filled(_as_they_come(work), limits)
    return Plan(
        messages=tuple(together(pack) for pack in packs),
        in_flight=_GLOO_THREADS if circumstances.device == "cpu" else 1,
    )


def _as_they_come(work: Work) -> Iterator[Tensor]:
    """Yield gradients as torch completes them: only a linear layer's bias comes before its weight."""
    for layer in reversed(work.layers):
        yield from reversed(layer.tensors) if layer.kind == "linear" else layer.tensors


_PACK = 32 * 2**20
"""Bytes below which gradients are copied into one buffer: what CNTK 2.7 answers to ``get_mpipack_threshold``."""
_AT_ONCE = 4
"""All are started before any is waited for; workloads have no more large gradients than this."""
_VALUE_BITS = 32
_BLOCK = 2048.0
_END_CNTK = 0


def small_together(work: Work, circumstances: Circumstances) -> Plan:  # noqa: ARG001
    """Return large gradients one by one and the others in one message, all under way at once."""
    small = [tensor for tensor in work.forward_tensors() if tensor.bytes < _PACK]
    large = [tensor for tensor in work.forward_tensors() if tensor.bytes >= _PACK]
    packs = [*([tensor] for tensor in large), *([small] if small else [])]
    return Plan(messages=tuple(together(pack, after=_END_CNTK) for pack in packs), in_flight=_AT_ONCE)


def onebit(work: Work, circumstances: Circumstances) -> Plan:
    """Return gradients of ``bits`` bits per value; the scales of their columns are left out."""
    bits = circumstances.number("bits", 1.0)
    (whole,) = flat(work, circumstances).messages
    return Plan(messages=(replace(whole, bytes=ceil(whole.bytes * bits / _VALUE_BITS)),), synchronous=True)


def block_momentum(work: Work, circumstances: Circumstances) -> Plan:
    """Return weights that are averaged once per block of ``block_size`` samples of all workers together."""
    per_step = max(circumstances.batch * circumstances.workers, 1)
    steps = max(circumstances.number("block_size", _BLOCK) / per_step, 1.0)
    return replace(flat(work, circumstances), every=steps)


_THRESHOLD_MB = 128.0
_CYCLE_MS = 1.0
_MILLI = 1e-3
_TICK_S = 4e-3
"""Of Linux as most distributions build it. A thread that wakes up waits for one where computing holds its core."""


def fusing(work: Work, circumstances: Circumstances) -> Plan:
    """Return a message per gradient, to be fused as they come. Reads ``fusion_mb`` and ``cycle_ms``."""
    return Plan(
        messages=tuple(together([tensor]) for tensor in work.backward_tensors()),
        fusion=Fusion(
            threshold=int(circumstances.number("fusion_mb", _THRESHOLD_MB) * MIB),
            cycle_s=circumstances.number("cycle_ms", _CYCLE_MS) * _MILLI,
            wake_up_s=_TICK_S if circumstances.device == "cpu" else 0.0,
        ),
    )


_TENSORFLOW_MB = 4.0
_JAX_KB = 256.0
_KIB = 2**10


def tensorflow(work: Work, circumstances: Circumstances) -> Plan:
    """Return MultiWorkerMirroredStrategy's packs, as ``pack_mb`` asks for.

    Gradients in reverse; a pack takes one more as long as it has not passed its size, and goes when its last gradient
    is there. A token makes each collective wait for the one before (TensorFlow 2.21, cross_device_ops).
    """
    size = circumstances.number("pack_mb", _TENSORFLOW_MB) * MIB
    limits = repeat(size if size > 0 else float("inf"))
    packs = filled(work.backward_tensors(), limits, strictly=True)
    return Plan(messages=tuple(together(pack) for pack in packs))


def jax(work: Work, circumstances: Circumstances) -> Plan:
    """Return the room's way: gradients of up to ``pack_kb`` in one message, larger ones alone, each when it is there.

    The pack holds gradients of all layers, so that it goes last.
    """
    limit = circumstances.number("pack_kb", _JAX_KB) * _KIB
    small = [tensor for tensor in work.backward_tensors() if tensor.bytes <= limit]
    if len(small) == 1:
        small = []
    alone = [tensor for tensor in work.backward_tensors() if tensor not in small]
    messages = [*(together([tensor]) for tensor in alone), *([together(small)] if small else [])]
    messages.sort(key=lambda message: -message.after)
    return Plan(messages=tuple(messages))


_BIG = 1e6
_SPREADING = 9973
"""What MXNet multiplies a key with before it takes the rest by the number of servers."""
_END_SERVERS = 0

Sharding = Callable[[Sequence[Tensor], int], list[int]]
"""Return the server of each gradient, in their order of declaration."""


def in_turn(tensors: Sequence[Tensor], servers: int) -> list[int]:
    """Deal weights out."""
    return [place % servers for place in range(len(tensors))]


def lightest_in_turn(tensors: Sequence[Tensor], servers: int) -> list[int]:
    """Give each to the server that holds the fewest bytes so far, in the order of declaration."""
    return _lightest(tensors, servers, range(len(tensors)))


def lightest_largest_first(tensors: Sequence[Tensor], servers: int) -> list[int]:
    """Give the largest that is left to the server that holds the fewest bytes so far."""
    return _lightest(tensors, servers, sorted(range(len(tensors)), key=lambda place: -tensors[place].bytes))


def _lightest(tensors: Sequence[Tensor], servers: int, order: Sequence[int]) -> list[int]:
    loads, chosen = [0] * servers, [0] * len(tensors)
    for place in order:
        chosen[place] = loads.index(min(loads))
        loads[chosen[place]] += tensors[place].bytes
    return chosen


def mxnet(work: Work, circumstances: Circumstances) -> Plan:
    """Return a push and a pull per gradient, as soon as it is there; layers that are used first have priority.

    On a CPU the engine has one thread, which computes first: gradients were seen to leave when the backward pass was
    over, those of the first layer first, even where others had been there 50 ms before. Arrays of ``bigarray_bound``
    values or more are cut into equal parts for all servers. The next forward pass starts with the weights that have
    come.
    """
    bound = circumstances.number("bigarray_bound", _BIG) * VALUE_BYTES
    servers = max(circumstances.servers, 1)
    keys = {tensor.name: key for key, tensor in enumerate(work.forward_tensors())}
    messages = tuple(
        replace(
            together([tensor], operation="push", after=_END_SERVERS if circumstances.device == "cpu" else None),
            server=None if tensor.bytes >= bound else keys[tensor.name] * _SPREADING % servers,
            priority=-keys[tensor.name],
        )
        for tensor in work.backward_tensors()
    )
    return Plan(messages=messages, updated_by="servers", pulls="with_push", next_overlaps=True)


def pytorch(work: Work, circumstances: Circumstances) -> Plan:
    """Return one row of values per server, all sent behind the backward pass; the answers bring the weights."""
    tensors, servers = list(work.forward_tensors()), max(circumstances.servers, 1)
    rule: Sharding = in_turn if circumstances.options.get("sharding") == "round_robin" else lightest_largest_first
    chosen = rule(tensors, servers)
    rows = [[tensor for tensor, own in zip(tensors, chosen, strict=True) if own == server] for server in range(servers)]
    messages = tuple(
        replace(together(row, operation="push", after=_END_SERVERS), server=server)
        for server, row in enumerate(rows)
        if row
    )
    return Plan(messages=messages, updated_by="servers", pulls="with_push")


def tensorflow1(work: Work, circumstances: Circumstances) -> Plan:
    """Return a push per gradient as soon as it is there; all weights are pulled when the next step begins."""
    balanced = circumstances.options.get("sharding") == "balanced"
    return _pushed(work, circumstances, lightest_in_turn if balanced else in_turn)


def tensorflow_servers(work: Work, circumstances: Circumstances) -> Plan:
    """Return the same with weights dealt out behind the counter of updates, which is first on server 0."""
    return _pushed(work, circumstances, lambda tensors, servers: [(1 + at) % servers for at in range(len(tensors))])


def _pushed(work: Work, circumstances: Circumstances, rule: Sharding) -> Plan:
    tensors = list(work.forward_tensors())
    chosen = dict(zip((tensor.name for tensor in tensors), rule(tensors, max(circumstances.servers, 1)), strict=True))
    messages: tuple[Message, ...] = tuple(
        replace(together([tensor], operation="push"), server=chosen[tensor.name]) for tensor in work.backward_tensors()
    )
    return Plan(messages=messages, updated_by="servers", pulls="at_start")


def freely(rule: Policy) -> Policy:
    """Return the same plan without waiting for other workers."""
    return lambda work, circumstances: replace(rule(work, circumstances), synchronous=False)


WITH_SERVERS: Mapping[tuple[str, str], Policy] = {
    ("mxnet", "ps_sync"): mxnet,
    ("mxnet", "ps_async"): freely(mxnet),
    ("pytorch", "ps_sync"): pytorch,
    ("pytorch", "ps_async"): freely(pytorch),
    ("tensorflow1", "ps_sync"): tensorflow1,
    ("tensorflow1", "ps_async"): freely(tensorflow1),
    ("tensorflow", "ps_async"): freely(tensorflow_servers),
}


_END_SHARDED = 0
_SMALLEST_GROUP = 1_000_000
"""Values from which neighbouring blocks are gathered by themselves, as the room ``pytorch`` groups them."""
_KEPT = 100_000
"""Values up to which stage 3 keeps a parameter whole (``stage3_param_persistence_threshold``)."""


def zero_1_2(work: Work, circumstances: Circumstances) -> Plan:
    """Return an all-reduce of gradients behind the backward pass and an all-gather of weights behind the update.

    DeepSpeed reduces buckets that belong to several workers by an all-reduce (``use_multi_rank_bucket_allreduce``), so
    that half as much again travels as without ZeRO.
    """
    whole = Message("all_gather", work.gradient_bytes, _END_SHARDED)
    return Plan(messages=deepspeed(work, circumstances).messages, after_update=(whole,))


def zero_3(work: Work, circumstances: Circumstances) -> Plan:  # noqa: ARG001
    """Return a gathering per layer in each pass, one reduce-scatter behind them, small weights behind the update.

    Gatherings run one layer ahead; the bucket of gradients holds more than any workload here.
    """
    small = sum(tensor.bytes for tensor in work.forward_tensors() if tensor.bytes <= _KEPT * VALUE_BYTES)
    gathers = []
    for place, layer in enumerate(work.layers):
        size = sum(tensor.bytes for tensor in layer.tensors if tensor.bytes > _KEPT * VALUE_BYTES)
        if size:
            gathers.append(Gather((place,), size, again=True))
    return Plan(
        messages=(Message("reduce_scatter", work.gradient_bytes, _END_SHARDED, _names(work.layers)),),
        gathers=tuple(gathers),
        prefetch=1,
        after_update=(Message("all_gather", small, _END_SHARDED),) if small else (),
    )


def fsdp(work: Work, circumstances: Circumstances) -> Plan:
    """Return a gathering per group of layers in each pass, and a reduce-scatter behind each group's backward pass.

    Over gloo nothing runs ahead: torch waits for each. On devices the next group is gathered meanwhile. The root, which
    gathers all at once where there are no groups, keeps its weights for the backward pass.
    """
    groups = _groups(work)
    rooted = len(groups) == 1
    return Plan(
        messages=tuple(
            Message("reduce_scatter", _bytes(work, group), min(group), _names(work.layers[place] for place in group))
            for group in reversed(groups)
        ),
        gathers=tuple(Gather(tuple(group), _bytes(work, group), again=not rooted) for group in groups),
        prefetch=0 if circumstances.device == "cpu" else 1,
    )


def _groups(work: Work) -> list[list[int]]:
    groups: list[list[int]] = []
    current: list[int] = []
    size = 0
    for _, block in groupby(range(len(work.layers)), key=lambda place: work.layers[place].block):
        places = list(block)
        own = _bytes(work, places) // VALUE_BYTES
        if own and size >= _SMALLEST_GROUP:
            groups.append(current)
            current, size = [], 0
        current += places
        size += own
    if size >= _SMALLEST_GROUP or not groups:
        groups.append(current)
    else:
        groups[-1] += current
    return groups


def _bytes(work: Work, group: Iterable[int]) -> int:
    return sum(work.layers[place].gradient_bytes for place in group)


def _names(layers: Iterable[LayerWork]) -> tuple[str, ...]:
    return tuple(tensor.name for layer in layers for tensor in layer.tensors)


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
