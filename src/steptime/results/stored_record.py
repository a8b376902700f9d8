"""Stored records: what the lines of all files of records have in common, and the strict reader of a line.

Schema diary (``SCHEMA`` grows by one whenever an older reader would misread a file):

1. First version: one line per launch with the step ends of every worker. Since then, without misleading a reader:
   ``cluster`` of a launch, where the launcher made hosts; ``native`` of a worker in an ablation launch, what the
   framework's own timers say; ``isolation``, what kept others out of the launch's sockets; ``steptime``,
   ``schedule``, ``environment_variables``, ``site``, ``lost_hosts`` and ``machine`` of a launch; ``container`` of its
   environment and of a trial; the kinds ``loader`` and ``training``.
2. A line ends with a checksum. Lines of schema 1 are read as before, and count as unverified.

Evidence: the facts of a record that show whether it belongs to its trial.

Types of the fields of records, which are strict.

A record may come from somebody else, or from a disk that is damaged. A line is read only where every field has its
type: a number is a number and finite, and counts are not negative. Keys that this version does not know are left out,
so that the same schema may gain keys.
"""

import abc
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, make_dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import to_json

from steptime.catalog.cluster_findings import ClusterFindings
from steptime.flags import read_stored


@dataclass(slots=True)
class ClockReadings:
    """Moments of one worker on its host's monotonic clock, in the order in which they came."""

    moments: Sequence[float]
    within_s: float | None = None
    """Seconds that the process counted around them; None if it did not."""


@dataclass(slots=True)
class WorkerEvidence:
    """One worker of a launch."""

    rank: int
    host: str | None = None
    """By the name that it gives itself; None if the record lacks it."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    readings: Sequence[ClockReadings] = ()
    """One after the other."""
    steps: Sequence[int] = ()
    """Numbers of steps, batches or messages that all workers of a launch have agreed on."""
    also_read: Sequence[float] = ()
    """Further moments on this clock, in no order."""
    lasted_s: float = 0.0
    """The sum of durations that followed each other."""
    contradicted: str | None = None
    """In what the worker's clock contradicts that of the kernel; None if in nothing, or the record lacks it."""


STRICT = ConfigDict(defer_build=True, strict=True, extra="ignore", allow_inf_nan=False)
"""For ``__pydantic_config__`` of the dataclasses of records: no text where a number belongs, no number for a flag."""

Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
"""Ranks, blocks and numbers of launches and steps; tables hold them in 32 bits."""
Bytes = Annotated[int, Field(ge=0, le=2**53)]
_LARGEST = 1e30
Quantity = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST)]
"""Any measured number."""
Seconds = Annotated[float, Field(ge=-1e12, le=1e12)]
"""A time on a clock, or a difference of two, which may be negative."""
Duration = Annotated[float, Field(ge=0.0, le=1e12)]
"""Seconds that something took."""
Staleness = dict[Annotated[str, Field(pattern="^[0-9]{1,9}$")], Count]
"""How many of a worker's updates were 0, 1, 2, … updates of others late."""
Nanoseconds = Annotated[int, Field(ge=0, le=2**62)]
"""A moment on a monotonic clock, or what something took."""
Name = Annotated[str, Field(max_length=400)]
Option = bool | int | float | str
FlagCode = Annotated[str, AfterValidator(read_stored)]
"""A code of ``steptime/flags.py``, with the detail behind it; older records have the sentence."""


class StoredObject(BaseModel):
    """An object that somebody else may have written."""

    model_config = STRICT


class _Environment(StoredObject):
    name: str | None = None
    kind: str | None = None
    container: list[str] = []
    interpreter: str | None = None
    python: str | None = None
    packages: dict[str, str] = {}


class _StoredFramework(StoredObject):
    framework_version: str | None = None


def _fits(form: Any) -> AfterValidator:  # noqa: ANN401 - any type
    """Return the check that an object has the fields of ``form``, in their types; the object stays as it is."""
    adapter: TypeAdapter[Any] = TypeAdapter(form)
    last: dict[str, Any] | None = None
    repeats = form is not ClusterFindings
    """Launches of a trial repeat an object; in numbers, which a cluster has, 1 and true are equal and not alike."""

    def checked(value: dict[str, Any]) -> dict[str, Any]:
        nonlocal last
        if repeats and value == last:
            return value
        found = adapter.validate_json(to_json(value))
        if not _moderate(value):
            message = f"a number is beyond {_LARGEST:g}"
            raise ValueError(message)
        if isinstance(found, ClusterFindings) and any(
            not 0 <= end < len(found.hosts) for path in found.paths for end in (path.source, path.target)
        ):
            message = "a path leads to a host that the cluster does not have"
            raise ValueError(message)
        last = value
        return value

    return AfterValidator(checked)


def _moderate(value: Any) -> bool:  # noqa: ANN401 - any JSON value
    if isinstance(value, (dict, list)):
        return all(map(_moderate, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, (int, float)) or abs(value) <= _LARGEST


Environment = Annotated[dict[str, Any], _fits(_Environment)]
"""Name, kind, container (where there is one), interpreter, Python version and versions of the main packages of a
framework's environment."""
Facts = Annotated[dict[str, Any], _fits(_StoredFramework)]
"""What a framework reports of itself, its ``framework_version`` among it."""
FoundCluster = Annotated[dict[str, Any], _fits(ClusterFindings)]
"""The hosts and links that a launcher made, as it found them: see ``ClusterFindings`` of catalog/cluster.py."""


def first_mistake(error: ValidationError) -> str:
    """Return the key and the sentence of the first mistake that pydantic found."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else first["msg"]


SCHEMA = 2
_UNSIGNED = 1

Status = Literal["ok", "failed"]


@dataclass(frozen=True)
class StoredRecord:
    """One line of a file of records; its fields are the keys of the line."""

    __pydantic_config__ = STRICT

    kind: ClassVar[Literal["launch", "ablation", "loader", "training", "equivalence", "replay", "net"]]
    """The line's ``kind``."""
    written_before: ClassVar[Mapping[str, str]] = {}
    """Fields of a kind of its own, each by the inherited field that follows it in the line; others are at the end.

    The keys of a line keep their order, so that a file which two versions wrote can be compared line by line."""

    def to_json(self) -> dict[str, Any]:
        """Return the line's object as a line without a checksum has it."""
        values = asdict(self)
        line: dict[str, Any] = {"schema": _UNSIGNED, "kind": self.kind}
        for name, value in values.items():
            line |= {own: values[own] for own, follower in self.written_before.items() if follower == name}
            line.setdefault(name, value)
        return line


_FEWEST_MOMENTS = 3
"""Of a launch, that no other launch has read."""


@dataclass(frozen=True, kw_only=True)
class LaunchRecord(StoredRecord, abc.ABC):
    """The record of one launch of fresh processes: how it ended, and in what conditions it ran."""

    launch: Count
    """Index among the launches of this kind of a trial or setting, from 0; launches of the same index are neighbours in
    time."""
    status: str
    """``ok``, ``failed``, or how else it ended."""
    reason: str | None
    """Why it failed, in one sentence; None when it did not."""
    started_at: str
    """UTC, ISO 8601."""
    wall_s: Duration
    environment: Environment
    noise: dict[str, Quantity | None]
    """What else the machine did: see results/noise.py; null where the system does not say."""
    flags: list[FlagCode] = field(default_factory=list)
    stderr: dict[str, str] = field(default_factory=dict)
    """The last lines of each process's standard error, for a failed launch."""
    cluster: FoundCluster | None = None
    """None if the launcher made no hosts.
    A model of the launch takes alpha and bandwidth from here, never from what was asked for."""
    isolation: str | None = None
    """What kept others out of the sockets of the launch; None if nothing did, and in older records."""
    steptime: str | None = None
    """The version that ran the launch; None in records from before it was kept."""
    environment_variables: dict[str, str] | None = None
    """What changes speed and was in the environment of the processes on purpose: what the study set, and what of the
    user's shell is passed (``PASSED`` of study/environment_variables.py); None in records from before it was kept."""
    site: list[str] | None = None
    """The names of all hosts that the run could use, in order: launches on another list ran on another site. None if
    the study names no hosts, and in records from before it was kept."""
    lost_hosts: list[str] = field(default_factory=list)
    """Hosts that were not heard any more, so that the launch proves nothing and is repeated. One of
    them has died; srun forwards nothing of the others then."""
    machine: str | None = None
    """``machine_id`` of the machine that ran the launch; None if the system has none, and in older records."""

    @property
    @abc.abstractmethod
    def configuration_id(self) -> str:
        """The id of the trial or setting that was launched."""

    @abc.abstractmethod
    def evidence(self) -> Sequence[WorkerEvidence]:
        """Return what each worker reports that must fit the configuration; empty if no worker reports anything."""

    def settings(self) -> Mapping[str, Any]:
        """Return the settings of the configuration that the record repeats, by their names there."""
        return {}

    def identities(self, evidence: Sequence[WorkerEvidence]) -> Sequence[Hashable]:
        """Return what no other launch has, each: two records that share one of them are of one launch.

        One is its number and its time. The other is what its workers read from a clock that never goes back, so that a
        copy is known whatever number or trial it was given.

        Args:
            evidence: the record's own.
        """
        moments = [tuple(part.moments) for worker in evidence for part in worker.readings if part.moments]
        named = self.configuration_id, self.launch, self.started_at
        return (named, hash(tuple(moments))) if sum(map(len, moments)) >= _FEWEST_MOMENTS else (named,)


@dataclass(frozen=True, kw_only=True)
class TrialLaunch(LaunchRecord):
    """The record of one launch of a trial."""

    trial: str
    """The trial's id."""
    status: Status

    @property
    def configuration_id(self) -> str:
        return self.trial


Record = TypeVar("Record", bound=StoredRecord)
Reader = Callable[[bytes], Record]
_KIND = "kind_of_line"


def record_reader(record: type[Record], check: Callable[[Record], None]) -> Reader[Record]:
    """Return the function that reads a line of ``record`` and raises ValueError with what is wrong where.

    Args:
        record: the dataclass.
        check: raises ValueError where fields of the right types do not fit together.
    """

    @cache
    def adapter() -> TypeAdapter[Record]:
        kind = (_KIND, Annotated[str, Field(validation_alias="kind")])
        return TypeAdapter(make_dataclass(record.__name__, [kind], bases=(record,), frozen=True, kw_only=True))

    def read(line: bytes) -> Record:
        try:
            found: Record = adapter().validate_json(line)
        except ValidationError as error:
            raise ValueError(first_mistake(error)) from error
        kind = vars(found).pop(_KIND)
        if kind != record.kind:
            message = f"kind: it is a record of {kind!r}, not of {record.kind!r}"
            raise ValueError(message)
        # A record has no field for the kind of its line, which was read with the rest.
        object.__setattr__(found, "__class__", record)
        check(found)
        return found

    return read


def nothing_to_check(_: object) -> None:
    """Accept a record whose fields do not depend on each other."""
