"""The lines that a process of an attached script writes, by their kinds, as strict as other records.

The form of the lines is in ``steptime/attach/README.md``. The process is the user's: it may have been killed while it
wrote, be of another version, or be made up. A line that does not fit is set aside; unknown keys and kinds are left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from steptime.results.stored_record import STRICT, Bytes, Count, Name, Nanoseconds, Quantity, StoredObject

_PER_S = 1e-9
MEAN = "mean"
"""Flag of a step of an imported file that is the mean of several."""

Durations = Annotated[dict[Name, Nanoseconds], Field(max_length=2000)]
Backward = tuple[Nanoseconds, Nanoseconds, Nanoseconds, bool | None]
"""Begin, last gradient (0 if it was not seen), end, and whether DDP exchanged gradients (None if it is not DDP)."""
CollectiveInterval = tuple[Name, Bytes, Nanoseconds, Nanoseconds]
"""Kind, bytes, begin and end."""


@dataclass(frozen=True)
class Clock:
    """Two clocks of a host, read together."""

    __pydantic_config__ = STRICT

    wall_ns: Nanoseconds
    monotonic_ns: Nanoseconds


@dataclass(frozen=True)
class ProcessLine:
    """The first line of a file: which process it is."""

    __pydantic_config__ = STRICT

    format: Count
    host: Name
    pid: Count
    begin_ns: Nanoseconds
    clock: Clock
    boot: Name | None = None
    """Processes with the same one share a monotonic clock."""
    parent: Count | None = None
    entry: Name = ""
    python: Name = ""
    program: list[Annotated[str, Field(max_length=10_000)]] = field(default_factory=list)
    environment: dict[Name, Name] = field(default_factory=dict)
    niceness: Annotated[int, Field(ge=-20, le=19)] = 0


@dataclass(frozen=True)
class RankLine:
    """The place of the process among those that train together."""

    __pydantic_config__ = STRICT

    rank: Count
    world: Count
    by: Name = ""


@dataclass(frozen=True)
class OtherWork:
    """Evaluation and other work without gradient between two steps, inside the time of the step before."""

    __pydantic_config__ = STRICT

    begin_ns: Nanoseconds
    end_ns: Nanoseconds
    regions: Durations = field(default_factory=dict)
    gaps: Durations = field(default_factory=dict)


@dataclass(frozen=True)
class StepLine:
    """One step of one process."""

    __pydantic_config__ = STRICT

    number: Count
    begin_ns: Nanoseconds
    duration_ns: Nanoseconds
    micro_steps: Count = 0
    dropped: Count = 0  # backward passes beside these, whose gradients were cleared before the update
    further: Count = 0  # likewise, of a forward that had a backward pass
    left_out: Count = 0  # forward passes that no backward pass followed
    regions: Durations = field(default_factory=dict)
    gaps: Durations = field(default_factory=dict)
    apart: OtherWork | None = None
    backwards: list[Backward] = field(default_factory=list)
    collectives: dict[Name, tuple[Count, Bytes, Nanoseconds]] = field(default_factory=dict)
    intervals: list[CollectiveInterval] = field(default_factory=list)
    optimizers: list[Count] = field(default_factory=list)
    flags: list[Name] = field(default_factory=list)
    samples: Bytes | None = None  # of its batches, or of what goes forward; None if these do not show it
    requests: Count = 1  # to loaders, which brought these
    rows: Bytes | None = None  # of the arrays that went forward, where these are not as many as the samples
    asked: Bytes | None = None  # of loaders, where batches have another number of rows
    tokens: Bytes | None = None
    targets: Bytes | None = None  # tokens of a second text, if its length is another
    mask: tuple[Bytes, Bytes] | None = None  # tokens whose mask was looked at, and those of them that are real
    content: Bytes | None = None  # a checksum of the first values of these batches, where they were looked at
    elsewhere: tuple[Count, Nanoseconds] | None = None  # batches that other threads asked for, and how long that took
    collections: tuple[Count, Nanoseconds] | None = None  # of garbage: how many of 0.1 ms and more, and the longest
    cost_ns: Nanoseconds = 0
    is_undivided: bool = False  # its parts were left out, since they were longer than it

    @property
    def end_ns(self) -> int:
        return self.begin_ns + self.duration_ns

    @property
    def apart_s(self) -> float:
        """Seconds of evaluation, without the checkpoints in it."""
        if self.apart is None:
            return 0.0
        return (self.apart.end_ns - self.apart.begin_ns - self.apart.regions.get("save", 0)) * _PER_S

    @property
    def save_s(self) -> float:
        """Seconds of checkpoints, in the step and in what lies apart."""
        found = self.regions.get("save", 0) + (self.apart.regions.get("save", 0) if self.apart else 0)
        return found * _PER_S

    @property
    def active_s(self) -> float:
        """Seconds of the step without evaluation and checkpoints."""
        return max(0.0, self.duration_ns * _PER_S - self.apart_s - self.save_s)

    @property
    def holds_other_work(self) -> bool:
        """Whether an evaluation or a checkpoint lies in it."""
        return self.apart is not None or self.save_s > 0.0

    @property
    def ablation(self) -> tuple[str, str] | None:
        """Of a throw-away run, the round of the step and what it lacked; None of a step as the script has it."""
        found = [flag.split(":") for flag in self.flags if flag.startswith("ablation:") and flag.count(":") == 2]  # noqa: PLR2004
        return (found[0][1], found[0][2]) if found else None

    @property
    def all_intervals(self) -> bool:
        """Whether ``intervals`` has every collective of the step."""
        return len(self.intervals) == sum(count for count, _, _ in self.collectives.values())

    def is_in_exchange(self, call: CollectiveInterval) -> bool:
        """Whether a collective lies behind the last gradient of a synchronised pass: a hook of DDP has started it."""
        return any(
            synchronised is True and 0 < last <= call[2] and call[3] <= end
            for _, last, end, synchronised in self.backwards
        )

    @property
    def in_exchange_s(self) -> float:
        """Seconds of such collectives."""
        return sum(end - begin for _, _, begin, end in filter(self.is_in_exchange, self.intervals)) * _PER_S

    def seconds(self, *regions: str) -> float:
        """Return the seconds of some regions together."""
        return sum(self.regions.get(name, 0) for name in regions) * _PER_S


@dataclass(frozen=True)
class SummedSteps:
    """Many short steps in one line, with sums over them."""

    __pydantic_config__ = STRICT

    first: Count
    last: Count
    begin_ns: Nanoseconds
    duration_ns: Nanoseconds
    regions: Durations = field(default_factory=dict)
    apart_ns: Nanoseconds = 0

    @property
    def end_ns(self) -> int:
        return self.begin_ns + self.duration_ns


@dataclass(frozen=True)
class OutsideLine:
    """Evaluations and checkpoints of a process before its first step, or behind its last."""

    __pydantic_config__ = STRICT

    before: bool
    evaluation_ns: Nanoseconds = 0
    save_ns: Nanoseconds = 0


@dataclass(frozen=True)
class GradientsLine:
    """The gradients of one of the first backward passes, in the order in which they were ready."""

    __pydantic_config__ = STRICT

    bytes: Bytes
    ready: list[tuple[Bytes, Nanoseconds]]
    backward_ns: Nanoseconds
    roots: dict[Name, Count] = field(default_factory=dict)


@dataclass(frozen=True)
class BucketsLine:
    """The pieces in which DDP exchanges gradients."""

    __pydantic_config__ = STRICT

    bytes: list[Bytes] = field(default_factory=list)
    hook: Name | None = None
    """Through which gradients go in place of DDP's own average."""
    sent_bytes: Bytes | None = None
    """Of all buckets, what such a hook sends, where that is known."""
    backend: Name | None = None


@dataclass(frozen=True)
class DeviceLine:
    """What a step took on the device, where that is known."""

    __pydantic_config__ = STRICT

    step: Count
    regions: Durations = field(default_factory=dict)
    gaps: Durations = field(default_factory=dict)
    span_ns: Nanoseconds = 0
    step_ns: Nanoseconds = 0  # from the last event of the step before to the last of this one; 0 if unknown
    waited_ns: tuple[Nanoseconds, Nanoseconds] = (0, 0)  # least and most: all that was marked done, the next not asked
    cost_ns: Nanoseconds = 0  # of its events, to the host
    event_ns: Nanoseconds = 0  # of one event at start-up, in the first of these lines
    begin_ns: Nanoseconds = 0  # of JAX, when the device began the step
    end_ns: Nanoseconds = 0  # when it had finished the step
    name: Name = ""  # of the device, in the first of these lines


@dataclass(frozen=True)
class MemoryLine:
    """The memory of a process between two steps, in bytes, and its processor time."""

    __pydantic_config__ = STRICT

    step: Count
    at_ns: Nanoseconds
    resident: Bytes | None = None
    peak: Bytes | None = None  # that was resident
    faults: Count | None = None  # pages that it has waited for: of files that it maps, or swapped out
    swapped: Bytes | None = None
    available: Bytes | None = None
    """Left on the host, within the limits of control groups."""
    processor_ns: Nanoseconds | None = None  # of it and its children until then
    delayed_ns: Nanoseconds | None = None  # for which its first thread could have run until then; quotas count
    devices: Annotated[dict[Name, tuple[Bytes, Bytes, Bytes]], Field(max_length=64)] = field(default_factory=dict)
    """By index: most allocated, most reserved, and all."""


@dataclass(frozen=True)
class SampledLines:
    """In which lines of the script the process was, seen in samples."""

    __pydantic_config__ = STRICT

    every_ns: Nanoseconds
    places: dict[Name, dict[Annotated[str, Field(max_length=2000)], Count]]
    cost_ns: Nanoseconds = 0
    first: Count | None = None  # step of these samples
    last: Count | None = None


@dataclass(frozen=True)
class FlopsLine:
    """Arithmetic of one step."""

    __pydantic_config__ = STRICT

    step: Count
    forward: Bytes = 0
    backward: Bytes = 0
    reason: Name = ""  # why it is not known


@dataclass(frozen=True)
class WeightsLine:
    """A few of the weights behind a step, and how the process could have exchanged them."""

    __pydantic_config__ = STRICT

    step: Count  # so many steps were closed
    parameters: Count = 0
    pieces: Count = 0  # of them are not looked at, as where ranks hold a piece of each
    attention: bool = False
    """Whether a network attends, by the names of its modules or the graph of a forward."""
    frozen: bool = False  # some parameters
    routed: bool = False  # a token to a few of several experts
    elements: Bytes = 0
    """Of all parameters that multiply, so without tables of embeddings; 0 if some are not trained, or lie in pieces."""
    precisions: Annotated[list[Name], Field(max_length=16)] = field(default_factory=list)
    """In which the modules multiply, as data sheets name them; empty if that is not known."""
    device: Name = ""  # ``cpu`` or ``cuda``, of one alone
    threads: Count = 0  # of a processor
    sums: Annotated[list[float | None], Field(max_length=64)] = field(default_factory=list)
    shared: bool = False  # whether they lie in memory that processes share
    data_parallel: Count = 0  # how many DDP modules there are
    averaging: Count = 0  # ranks over which FSDP or DeepSpeed average the gradients of all networks; 0 if not known
    bypassed: Count = 0
    """Backward passes whose forward pass went around DDP."""
    channels: Annotated[list[Name], Field(max_length=64)] = field(default_factory=list)
    """Through which ranks may exchange what is not seen."""
    joining: Annotated[list[Name], Field(max_length=64)] = field(default_factory=list)  # libraries with own rules


@dataclass(frozen=True)
class FailureLine:
    """The exception that ended a process."""

    __pydantic_config__ = STRICT

    at_ns: Nanoseconds
    type: Name
    error: Annotated[str, Field(max_length=2000)]
    place: Annotated[str, Field(max_length=2000)] = ""


@dataclass(frozen=True)
class GraphsLine:
    """What torch.compile made of the script, by Dynamo's own counts."""

    __pydantic_config__ = STRICT

    frames: Count
    operations: Count
    graphs: Count
    breaks: Count
    weights: Count
    recompilations: Count = 0
    recompile_ns: Nanoseconds = 0
    guards: Annotated[list[Name], Field(max_length=64)] = field(default_factory=list)
    """That failed, and so had a frame compiled anew."""


@dataclass(frozen=True)
class NoteLine:
    """What the process could not see, for the user."""

    __pydantic_config__ = STRICT

    text: Annotated[str, Field(max_length=2000)]


@dataclass(frozen=True)
class UnseenLine:
    """Phases that a library shows no times of, but of asking; or amounts that arrays do not show; and why."""

    __pydantic_config__ = STRICT

    phases: list[Name]
    reason: Annotated[str, Field(max_length=2000)]


@dataclass(frozen=True)
class FaultLine:
    """What failed in steptime's own part of the process, which then was disabled."""

    __pydantic_config__ = STRICT

    hook: Name
    error: Annotated[str, Field(max_length=4000)]


@dataclass(frozen=True)
class EndLine:
    """The last line of a process that was not killed."""

    __pydantic_config__ = STRICT

    steps: Count
    at_ns: Nanoseconds
    processor_ns: Nanoseconds = 0
    """Of the process and its awaited children."""
    delayed_ns: Nanoseconds | None = None
    """For how long its first thread could have run and others did; None if the kernel does not say."""
    lost: Count = 0
    moved: Bytes = 0
    """By collectives since the first step, evaluations and checkpoints included."""


class ImportedFile(StoredObject):
    """A file of another program that records are made of."""

    path: str
    importer: str
    sha256: str
    figures: dict[str, str] = Field(default_factory=dict)
    """By figure, what of the file it is made of."""
    values: dict[str, Quantity] = Field(default_factory=dict)
    """Further figures, means over entries."""
    unknown: dict[str, str] = Field(default_factory=dict)
    """By figure, why it is not known."""
    notes: list[str] = Field(default_factory=list)
    """What of the file is not used, and why."""


Line = (
    ProcessLine
    | RankLine
    | StepLine
    | SummedSteps
    | OutsideLine
    | GradientsLine
    | BucketsLine
    | DeviceLine
    | MemoryLine
    | SampledLines
    | FlopsLine
    | WeightsLine
    | GraphsLine
    | NoteLine
    | UnseenLine
    | FaultLine
    | EndLine
)
FORMS: Mapping[str, TypeAdapter[Any]] = {
    "process": TypeAdapter(ProcessLine),
    "rank": TypeAdapter(RankLine),
    "step": TypeAdapter(StepLine),
    "steps": TypeAdapter(SummedSteps),
    "outside": TypeAdapter(OutsideLine),
    "gradients": TypeAdapter(GradientsLine),
    "buckets": TypeAdapter(BucketsLine),
    "device": TypeAdapter(DeviceLine),
    "memory": TypeAdapter(MemoryLine),
    "lines": TypeAdapter(SampledLines),
    "flops": TypeAdapter(FlopsLine),
    "weights": TypeAdapter(WeightsLine),
    "graphs": TypeAdapter(GraphsLine),
    "note": TypeAdapter(NoteLine),
    "unseen": TypeAdapter(UnseenLine),
    "fault": TypeAdapter(FaultLine),
    "end": TypeAdapter(EndLine),
}
"""By the key ``kind`` of a line."""
FAILURE: TypeAdapter[FailureLine] = TypeAdapter(FailureLine)
"""Of a line of ``failed-HOST.txt``."""
