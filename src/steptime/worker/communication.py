"""What a communication policy reads and returns: the gradients of a workload, and the plan of their exchange in a step.

A policy is a pure function ``(Work, PolicyContext) -> CommunicationPlan``. A framework offers its own as ``POLICIES``,
``{strategy: policy}``, in its ``communication.py``, which the framework's adapter and the predictor both read.
"""

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
