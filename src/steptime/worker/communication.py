"""What a communication policy reads and returns: the gradients of a workload, and the plan of their exchange in a step.

A policy is a pure function ``(Work, PolicyContext) -> CommunicationPlan``. A framework offers its own as ``POLICIES``,
``{strategy: policy}``, in its ``communication.py``, which the framework's adapter and the predictor both read.

Communication policies that belong to no framework, and the parts that frameworks' own policies are made of.

``PLAINEST`` holds textbook policies, for frameworks without policies of their own.
"""

import math
import types
import typing


class Gradient(typing.NamedTuple):
    """The gradient of one parameter."""

    name: str
    layer: int
    """Position of the parameter's layer in the order of the forward pass."""
    bytes: int


class LayerWork(typing.NamedTuple):
    """One layer; arithmetic and traffic are per sample."""

    name: str
    kind: str
    forward_flops: float
    backward_flops: float
    traffic: float
    """Bytes of activations that a forward pass reads and writes."""
    gradients: typing.Tuple[Gradient, ...] = ()
    """In the order in which the layer declares its parameters."""
    block: int = 0
    """Layers of one number lie between two points where a single array carries everything forward."""

    @property
    def gradient_bytes(self) -> int:
        """Bytes of all gradients of the layer, which are as many as those of its weights."""
        return sum(gradient.bytes for gradient in self.gradients)


class Work(typing.NamedTuple):
    """What one worker computes in a step, and the gradients that the computation leaves."""

    name: str
    layers: typing.Tuple[LayerWork, ...]
    """In the order of the forward pass."""

    @property
    def gradient_bytes(self) -> int:
        """Bytes that one worker contributes to the exchange of a step."""
        return sum(layer.gradient_bytes for layer in self.layers)

    def backward_gradients(self) -> typing.Iterator[Gradient]:
        """Yield gradients in the order in which the backward pass completes them: the reverse of their declaration."""
        for layer in reversed(self.layers):
            yield from reversed(layer.gradients)

    def forward_gradients(self) -> typing.Iterator[Gradient]:
        """Yield gradients in the order of declaration."""
        for layer in self.layers:
            yield from layer.gradients


class PlannedMessage(typing.NamedTuple):
    """One exchange among all workers, or of a worker with one server."""

    operation: str
    """``allreduce``, ``reduce_scatter``, ``all_gather``, ``push``, or ``star`` (everything to worker 0 and back)."""
    bytes: int
    """Of one worker."""
    after: int
    """The layer whose backward pass must be over; 0 is the end of the backward pass, in which layers go downwards."""
    gradient_names: typing.Tuple[str, ...] = ()
    """Of the gradients in the message; none where weights travel."""
    server: typing.Optional[int] = None
    """The server that gets the message; None without servers, or where all servers get equal parts."""
    priority: int = 0
    """Of waiting messages the one with the highest priority goes first; equal ones go in the order of the plan."""


class Fusion(typing.NamedTuple):
    """How messages are put together as they become ready."""

    threshold: int
    """Bytes; what is ready together travels together up to so many, and with 0 each by itself."""
    cycle_s: float
    """Between two looks at what is ready."""


class Gather(typing.NamedTuple):
    """Weights that are brought together before layers can be computed, and let go afterwards."""

    layers: typing.Tuple[int, ...]
    bytes: int
    """Of the whole weights, as every worker needs them."""
    again: bool
    """Whether the backward pass has to gather them again."""
    operation: str = "all_gather"


class CommunicationPlan(typing.NamedTuple):
    """What happens in a step besides computing."""

    messages: typing.Tuple[PlannedMessage, ...] = ()
    """In the order in which they are started."""
    in_flight: int = 1
    """How many exchanges make progress at once."""
    algorithm: typing.Optional[str] = None
    """Of all-reduces, where the framework brings its own: a name of the predictor's table of collectives; None for the
    algorithm of the interconnect."""
    fusion: typing.Optional[Fusion] = None
    gathers: typing.Tuple[Gather, ...] = ()
    """In the order of the forward pass."""
    prefetch: int = 0
    """How many gathers run ahead of the layers that need them; with 0 nothing is computed during a gather."""
    after_update: typing.Tuple[PlannedMessage, ...] = ()
    """What is exchanged behind the update."""
    updated_by: str = "workers"
    """``workers`` or ``servers``."""
    pulls: str = "none"
    """When new weights come from servers: ``none``, ``with_push`` (in answer to each push) or ``at_start`` (of the next
    step)."""
    next_overlaps: bool = False
    """Whether the next forward pass starts with the weights that are there already."""
    synchronous: bool = True
    """Whether a step waits for all workers."""
    every: float = 1.0
    """Steps between two exchanges."""

    @property
    def bytes(self) -> int:
        """Of one worker's messages in a step, without gathers."""
        return sum(message.bytes for message in self.messages + self.after_update)


OptionValue = typing.Union[str, int, float, bool]


class PolicyContext(typing.NamedTuple):
    """The settings of a trial that a policy may read."""

    workers: int = 2
    servers: int = 0
    options: typing.Mapping[str, OptionValue] = types.MappingProxyType({})
    """The framework's options; those that the trial leaves out have the manifest's defaults."""
    device: str = "cpu"
    """``cpu`` or ``cuda``."""
    batch: int = 1
    """Samples per worker."""

    def number(self, option: str) -> float:
        """Return the value of an option that is a number.

        Raises KeyError for an option that neither the trial sets nor the framework's manifest declares.
        """
        if option not in self.options:
            raise KeyError(
                "a communication policy reads the option %r, which is not set (options: %s); declare it in the "
                "framework's framework.toml" % (option, ", ".join(sorted(self.options)) or "none")
            )
        return float(self.options[option])


Policy = typing.Callable[[Work, PolicyContext], CommunicationPlan]
"""A rule of one strategy. It sends every gradient exactly once, and is a pure function."""


KIB, MIB = 2**10, 2**20
VALUE_BYTES = 4
"""Gradients travel as 32-bit numbers."""
END_OF_BACKWARD = 0
"""``PlannedMessage.after`` of what waits for the whole backward pass."""


# Messages out of gradients.


def packs(
    gradients: typing.Iterable[Gradient], limits: typing.Iterable[float], *, may_reach: bool = False
) -> typing.Iterator[typing.List[Gradient]]:
    """Yield neighbouring gradients that fill a pack.

    Args:
        gradients: in the order in which they are packed.
        limits: bytes of one pack after the other, without end. A pack closes with the gradient that reaches its limit.
        may_reach: whether a pack stays open at its limit, and closes with the gradient that crosses it.
    """
    remaining_limits = iter(limits)
    pack: typing.List[Gradient] = []
    size, limit = 0, next(remaining_limits)
    for gradient in gradients:
        pack.append(gradient)
        size += gradient.bytes
        if size > limit or (size == limit and not may_reach):
            yield pack
            pack, size, limit = [], 0, next(remaining_limits)
    if pack:
        yield pack


def message_of(
    gradients: typing.Iterable[Gradient], operation: str = "allreduce", after: typing.Optional[int] = None
) -> PlannedMessage:
    """Return one message of several gradients, which can go after the layer ``after``, or the last gradient."""
    held = tuple(gradients)
    return PlannedMessage(
        operation,
        sum(gradient.bytes for gradient in held),
        min(gradient.layer for gradient in held) if after is None else after,
        tuple(gradient.name for gradient in held),
    )


# Exchanges among workers.


def no_exchange(work: Work, context: PolicyContext) -> CommunicationPlan:  # noqa: ARG001 - a policy's arguments
    """Return the plan of one worker alone."""
    return CommunicationPlan()


def flat(work: Work, context: PolicyContext, operation: str = "allreduce") -> CommunicationPlan:  # noqa: ARG001
    """Return one message of all gradients behind the backward pass."""
    return CommunicationPlan((message_of(work.forward_gradients(), operation, END_OF_BACKWARD),))


def one_by_one(work: Work, context: PolicyContext) -> CommunicationPlan:  # noqa: ARG001
    """Return a message per gradient, one after the other behind the backward pass."""
    return CommunicationPlan(
        tuple(message_of([gradient], after=END_OF_BACKWARD) for gradient in work.forward_gradients())
    )


def layerwise(work: Work, context: PolicyContext) -> CommunicationPlan:  # noqa: ARG001
    """Return a message per gradient during the backward pass, in its order, one after the other."""
    return CommunicationPlan(tuple(message_of([gradient]) for gradient in work.backward_gradients()))


def quantized(work: Work, context: PolicyContext, bits: float = 1.0) -> CommunicationPlan:
    """Return one message of ``bits`` bits per value behind the backward pass; scales of columns are left out.

    F. Seide et al., 1-bit stochastic gradient descent, Interspeech 2014.
    """
    (whole,) = flat(work, context).messages
    return CommunicationPlan((whole._replace(bytes=math.ceil(whole.bytes * bits / (8 * VALUE_BYTES))),))


def averaged_in_blocks(
    work: Work, context: PolicyContext, block_samples: typing.Optional[float] = None
) -> CommunicationPlan:
    """Return one message of all weights after each block of ``block_samples`` samples of all workers together.

    Without a size a block is one step. K. Chen, Q. Huo, blockwise model-update filtering, ICASSP 2016.
    """
    step_samples = max(context.batch * context.workers, 1)
    steps = max((step_samples if block_samples is None else block_samples) / step_samples, 1.0)
    return flat(work, context)._replace(every=steps)


def scattered_by(context: PolicyContext) -> str:
    """Return the operation that leaves each worker its share of a sum.

    On processors it is gloo's, which reduces the whole on every worker (torch 2.13), for twice as many bytes.
    """
    return "allreduce" if context.device == "cpu" else "reduce_scatter"


def sharded_in_groups(
    work: Work, groups: typing.Sequence[typing.Sequence[int]], context: PolicyContext
) -> CommunicationPlan:
    """Return a gather per group of layers in each pass, and a reduce-scatter behind each group's backward pass.

    Args:
        work: of the workload.
        groups: positions of layers, in the order of the forward pass.
        context: of the trial.
    """
    held = [[gradient for place in group for gradient in work.layers[place].gradients] for group in groups]
    return CommunicationPlan(
        messages=tuple(
            message_of(gradients, scattered_by(context), after=min(group))
            for group, gradients in reversed(list(zip(groups, held)))
        ),
        gathers=tuple(
            Gather(tuple(group), sum(gradient.bytes for gradient in gradients), again=True)
            for group, gradients in zip(groups, held)
        ),
    )


# Exchanges with parameter servers.

Sharding = typing.Callable[[typing.Sequence[int], int], typing.List[int]]
"""Return the server of each array, from the arrays' sizes in the order of declaration and the number of servers."""


class ServerLoads(object):
    """How much each server holds so far."""

    def __init__(self, servers: int) -> None:
        self._loads = [0] * servers

    def add_to_lightest(self, size: int) -> int:
        """Give ``size`` to the server that holds least, and return that server."""
        server = self._loads.index(min(self._loads))
        self._loads[server] += size
        return server


def in_turn(sizes: typing.Sequence[int], servers: int) -> typing.List[int]:
    """Deal arrays out."""
    return [place % servers for place in range(len(sizes))]


def lightest_in_turn(sizes: typing.Sequence[int], servers: int) -> typing.List[int]:
    """Give each array to the server that holds least so far, in the order of declaration."""
    loads = ServerLoads(servers)
    return [loads.add_to_lightest(size) for size in sizes]


def lightest_largest_first(sizes: typing.Sequence[int], servers: int) -> typing.List[int]:
    """Give the largest array that is left to the server that holds least so far."""
    loads = ServerLoads(servers)
    chosen = {}
    for place in sorted(range(len(sizes)), key=lambda place: -sizes[place]):
        chosen[place] = loads.add_to_lightest(sizes[place])
    return [chosen[place] for place in range(len(sizes))]


def pushed_rows(work: Work, context: PolicyContext, sharding: Sharding = lightest_largest_first) -> CommunicationPlan:
    """Return one push per server behind the backward pass, which the server answers with the new weights."""
    gradients, servers = list(work.forward_gradients()), max(context.servers, 1)
    chosen = sharding([gradient.bytes for gradient in gradients], servers)
    rows = [[gradient for gradient, own in zip(gradients, chosen) if own == server] for server in range(servers)]
    return CommunicationPlan(
        messages=tuple(
            message_of(row, "push", END_OF_BACKWARD)._replace(server=server) for server, row in enumerate(rows) if row
        ),
        updated_by="servers",
        pulls="with_push",
    )


def pushed_one_by_one(work: Work, context: PolicyContext, sharding: Sharding = in_turn) -> CommunicationPlan:
    """Return a push per gradient during the backward pass; all weights are pulled when the next step begins."""
    gradients = list(work.forward_gradients())
    chosen = sharding([gradient.bytes for gradient in gradients], max(context.servers, 1))
    server_of = {gradient.name: server for gradient, server in zip(gradients, chosen)}
    return CommunicationPlan(
        messages=tuple(
            message_of([gradient], "push")._replace(server=server_of[gradient.name])
            for gradient in work.backward_gradients()
        ),
        updated_by="servers",
        pulls="at_start",
    )


def asynchronous(policy: Policy) -> Policy:
    """Return ``policy`` without waiting for other workers."""
    return lambda work, context: policy(work, context)._replace(synchronous=False)


PLAINEST: typing.Mapping[str, Policy] = {
    "single": no_exchange,
    "allreduce": flat,
    "ps_sync": pushed_rows,
    "ps_async": asynchronous(pushed_rows),
}
"""The plainest policy of each strategy that no framework has to itself."""
