"""Parameter servers: which server gets which gradient, and when new weights come back.

M. Li et al., OSDI 2014; the rules of MXNet's key-value store, of TensorFlow's servers and of the room ``pytorch``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from steptime.stepgraph.plan import Circumstances, Message, Plan, Policy
from steptime.stepgraph.policies.packing import VALUE_BYTES, together
from steptime.stepgraph.work import Tensor, Work

_BIG = 1e6
_SPREADING = 9973
"""What MXNet multiplies a key with before it takes the rest by the number of servers."""
_END = 0

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
            together([tensor], operation="push", after=_END if circumstances.device == "cpu" else None),
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
        replace(together(row, operation="push", after=_END), server=server) for server, row in enumerate(rows) if row
    )
    return Plan(messages=messages, updated_by="servers", pulls="with_push")


def tensorflow1(work: Work, circumstances: Circumstances) -> Plan:
    """Return a push per gradient as soon as it is there; all weights are pulled when the next step begins."""
    balanced = circumstances.options.get("sharding") == "balanced"
    return _pushed(work, circumstances, lightest_in_turn if balanced else in_turn)


def tensorflow(work: Work, circumstances: Circumstances) -> Plan:
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
    ("tensorflow", "ps_async"): freely(tensorflow),
}
