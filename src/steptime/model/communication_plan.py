"""What a framework exchanges in a step, in which pieces and after what: the outcome of a policy."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from steptime.model.layer_work import Work

Operation = Literal["allreduce", "reduce_scatter", "all_gather", "push", "star"]
OptionValue = str | int | float | bool
NO_LAYER = -1


@dataclass(frozen=True)
class Message:
    """One exchange among all workers, or of a worker with one server."""

    operation: Operation
    bytes: int
    """Of one worker."""
    after: int
    """The layer whose backward pass must be over; 0 is the end of the backward pass, in which layers go downwards."""
    tensors: tuple[str, ...] = ()
    server: int | None = None
    """Which server it goes to; None where there is none, or where it is cut into equal parts for all of them."""
    priority: int = 0
    """Of those that wait, the one with the highest goes first; equal ones in the order of the plan."""


@dataclass(frozen=True)
class Fusion:
    """Messages that are put together as they come, as Horovod does it."""

    threshold: int
    """Bytes; what is ready together travels together up to so many, and with 0 each by itself."""
    cycle_s: float
    """Between two looks at what is ready."""
    wake_up_s: float = 0.0
    """That each wake-up of its threads takes while computing holds their core."""


@dataclass(frozen=True)
class Gather:
    """Weights that are brought together before layers can be computed, and let go afterwards."""

    layers: tuple[int, ...]
    bytes: int
    """Of the whole, as every worker needs it."""
    again: bool
    """Whether the backward pass has to gather them again."""


@dataclass(frozen=True)
class Plan:
    """What happens in a step besides computing."""

    messages: tuple[Message, ...] = ()
    """In the order in which they are started."""
    in_flight: int = 1
    """How many exchanges make progress at once."""
    algorithm: str | None = None
    """Of all-reduces, where the framework brings its own: a key of the simulator's algorithms; None for what the
    interconnect is said to do."""
    fusion: Fusion | None = None
    gathers: tuple[Gather, ...] = ()
    """In the order of the forward pass."""
    prefetch: int = 0
    """How many gatherings run ahead of the layers that need them; 0 computes nothing meanwhile."""
    after_update: tuple[Message, ...] = ()
    """What is exchanged behind the update."""
    updated_by: Literal["workers", "servers"] = "workers"
    pulls: Literal["none", "with_push", "at_start"] = "none"
    """When new weights come from servers: in answer to each push, or at the start of the next step."""
    next_overlaps: bool = False
    """Whether the next forward pass starts with the weights that are there already."""
    synchronous: bool = True
    """Whether a step waits for all workers."""
    every: float = 1.0
    """Steps between two exchanges."""

    @property
    def bytes(self) -> int:
        """Of one worker's messages in a step, without what is gathered."""
        return sum(message.bytes for message in (*self.messages, *self.after_update))


@dataclass(frozen=True)
class Circumstances:
    """What of a trial a policy may look at."""

    workers: int = 2
    servers: int = 0
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    device: Literal["cpu", "cuda"] = "cpu"
    batch: int = 1
    """Samples per worker."""

    def number(self, name: str, default: float) -> float:
        """Return an option that is a number, or what the framework does without it."""
        return float(self.options.get(name, default))


Policy = Callable[[Work, Circumstances], Plan]
"""A rule. It must send every gradient exactly once, and be a pure function."""
