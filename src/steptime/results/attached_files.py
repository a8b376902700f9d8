"""The files that the processes of an attached script wrote, and what of them can be."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError
from pydantic_core import from_json

from steptime.errors import StoreError
from steptime.plain_file import PlainFolder
from steptime.results.attached_lines import (
    FAILURE,
    FORMS,
    BucketsLine,
    DeviceLine,
    EndLine,
    FailureLine,
    FaultLine,
    FlopsLine,
    GradientsLine,
    GraphsLine,
    ImportedFile,
    Line,
    MemoryLine,
    NoteLine,
    OutsideLine,
    ProcessLine,
    RankLine,
    SampledLines,
    StepLine,
    SummedSteps,
    UnseenLine,
    WeightsLine,
)
from steptime.results.consistency import SetAside
from steptime.results.first_rounds import with_whole_rounds
from steptime.results.gpu_windows import RECORDS, WRITTEN, GpuWindow, NoGpus, read_windows
from steptime.results.jsonlines import read_lines
from steptime.results.peaks import StoredPeaks
from steptime.results.stored_record import FlagCode, Quantity, StoredObject, first_mistake

FORMAT = 1
FAILED = "failed-"
"""What names of files begin with that hold the exceptions that ended processes."""
_MOST_FILES = 20_000
_MOST_BYTES = 4 << 20
"""Of a line."""
_MOST_WATCHED = 64
_START = "start>"
_AT_EDGES = 65536
"""Bytes at both ends of a file that are read while its process runs."""
_TOLERANCE, _TOLERANCE_NS = 1.02, 2_000_000
"""By how much regions and gaps may exceed the step that they are parts of."""


@dataclass
class ProcessLines:
    """All that one process wrote and that could be read."""

    process: ProcessLine
    place: RankLine | None = None
    steps: list[StepLine] = field(default_factory=list)
    summed: list[SummedSteps] = field(default_factory=list)
    outside: list[OutsideLine] = field(default_factory=list)
    gradients: list[GradientsLine] = field(default_factory=list)
    buckets: BucketsLine | None = None
    devices: list[DeviceLine] = field(default_factory=list)
    memory: list[MemoryLine] = field(default_factory=list)
    sampled: list[SampledLines] = field(default_factory=list)
    flops: list[FlopsLine] = field(default_factory=list)
    weights: list[WeightsLine] = field(default_factory=list)
    graphs: list[GraphsLine] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unseen: dict[str, str] = field(default_factory=dict)
    """By phase, why its library shows no times of it."""
    faults: list[FaultLine] = field(default_factory=list)
    end: EndLine | None = None
    joined: int = 0
    """By how many its steps are fewer, since first ones were parts of others."""

    @property
    def span_ns(self) -> tuple[int, int]:
        """From when until when the process is known to have lived."""
        ends = [*(each.end_ns for each in self.steps[-1:]), *(each.end_ns for each in self.summed[-1:])]
        last = max(ends, default=self.process.begin_ns)
        return self.process.begin_ns, self.end.at_ns if self.end else last

    @property
    def device_names(self) -> list[str]:
        """The devices that it trained on, where known."""
        return [each.name for each in self.devices if each.name]

    @property
    def missing_steps(self) -> int:
        """How many of its steps are neither on record nor in a sum; of a process without an end up to its last one."""
        stretches = [(each.number, each.number) for each in self.steps]
        stretches += [(each.first, each.last) for each in self.summed]
        reached = covered = 0
        for first, last in sorted(stretches):
            covered += max(0, last + 1 - max(first, reached))
            reached = max(reached, last + 1)
        return max(reached, self.end.steps if self.end else 0) - covered - self.joined

    def join_first_rounds(self) -> None:
        """Join first steps that are parts of what is one step later on, once all are read."""
        steps = with_whole_rounds(self.steps)
        self.joined, self.steps = len(self.steps) - len(steps), steps

    def take(self, line: Line) -> None:
        """Keep a further line; raises ValueError where it does not fit those before."""
        if isinstance(line, ProcessLine):
            message = "kind: a second line of the kind process"
            raise ValueError(message)  # noqa: TRY004 - of a record
        if isinstance(line, StepLine):
            line = _without_start(line)
            _require_fitting(line, self.steps[-1] if self.steps else None)
            self.steps.append(line if _fits(line) else replace(line, regions={}, gaps={}, is_undivided=True))
        elif isinstance(line, RankLine):
            if line.rank >= line.world:
                message = f"rank: {line.rank} is not below world, {line.world}"
                raise ValueError(message)
            # A later line of the same place names the back end of the tensors' device.
            if self.place is None or (self.place.rank, self.place.world) == (line.rank, line.world):
                self.place = line
        elif isinstance(line, BucketsLine):
            self.buckets = line
        elif isinstance(line, EndLine):
            self.end = line
        elif isinstance(line, NoteLine):
            self.notes.append(line.text)
        elif isinstance(line, UnseenLine):
            self.unseen |= dict.fromkeys(line.phases, line.reason)
        else:
            self._listed(line)

    def _listed(self, line: Line) -> None:
        lists: dict[type, list[Any]] = {
            SummedSteps: self.summed,
            OutsideLine: self.outside,
            GradientsLine: self.gradients,
            DeviceLine: self.devices,
            MemoryLine: self.memory,
            SampledLines: self.sampled,
            FlopsLine: self.flops,
            WeightsLine: self.weights,
            GraphsLine: self.graphs,
            FaultLine: self.faults,
        }
        lists[type(line)].append(line)


@dataclass(frozen=True)
class AttachedFiles:
    """What the files of all processes hold, and the lines that do not fit."""

    processes: list[ProcessLines]
    seen: list[str]
    """The lines of the processes that loaded a library steptime knows, trained or not: ``PID LIBRARY ENTRY``."""
    failures: list[FailureLine]
    """Of the processes that an exception ended, the earliest first."""
    set_aside: list[SetAside]
    peaks: StoredPeaks = field(default_factory=StoredPeaks)
    """Measured for the folder."""
    gpus: list[GpuWindow | NoGpus] = field(default_factory=list)
    """What the programs that started the processes saw of the GPUs of their hosts."""


def read_attached(folder: PlainFolder, path: Path) -> AttachedFiles:
    """Read the files of a folder of records, in the order of their names.

    Raises StoreError where there are more than a job can have, and for a form of lines that a newer steptime writes.
    """
    names = sorted(each.name for each in path.iterdir()) if path.is_dir() else []
    if len(names) > _MOST_FILES:
        message = f"{path} has {len(names)} files, more than the processes of any job"
        raise StoreError(message)
    processes: list[ProcessLines] = []
    seen: list[str] = []
    failures: list[FailureLine] = []
    aside: list[SetAside] = []
    gpus: list[GpuWindow | NoGpus] = []
    for name in names:
        if name.endswith(".jsonl"):
            found = _read_process(folder, path / name, aside)
            if found is not None:
                processes.append(found)
        elif name.startswith("seen-") and name.endswith(".txt"):
            seen += folder.read(path / name).decode(errors="replace").splitlines()
        elif name.startswith(FAILED) and name.endswith(".txt"):
            failures += _failures(folder.read(path / name))
        elif name.startswith(WRITTEN) and name.endswith(".txt"):
            gpus += read_windows(folder.read(path / name))
    return AttachedFiles(processes, seen, sorted(failures, key=lambda each: each.at_ns), aside, gpus=gpus)


def _failures(text: bytes) -> Iterator[FailureLine]:
    for line in text.splitlines():
        try:
            yield FAILURE.validate_json(line)
        except ValidationError:  # cut, or not ours
            continue


def read_latest(folder: PlainFolder, path: Path) -> list[ProcessLines]:
    """Return the processes with the steps at the ends of their files, for a look while they run; damage is ignored."""
    found = []
    for each in sorted(path.glob("*.jsonl"))[:_MOST_WATCHED]:
        with os.fdopen(folder.open(each, os.O_RDONLY), "rb") as file:
            head = file.read(_AT_EDGES)
            file.seek(max(len(head), os.fstat(file.fileno()).st_size - _AT_EDGES))
            tail = file.read(_AT_EDGES)
        process: ProcessLines | None = None
        for raw in (*head.splitlines(), *tail.splitlines()):
            try:
                line = _parsed(raw, from_json(raw), each)
                if process is not None and line is not None:
                    process.take(line)
                elif isinstance(line, ProcessLine):
                    process = ProcessLines(line)
            except (ValueError, AttributeError):  # cut at an edge
                continue
        found += [process] if process is not None else []
    return found


def _read_process(folder: PlainFolder, path: Path, aside: list[SetAside]) -> ProcessLines | None:
    found: ProcessLines | None = None
    file = f"{RECORDS}/{path.name}"
    for line in read_lines(folder, path):
        problem = line.problem or ""
        if line.value is not None:
            try:
                parsed = _parsed(line.raw, line.value, path)
                if found is not None and parsed is not None:
                    found.take(parsed)
                elif isinstance(parsed, ProcessLine):
                    found = ProcessLines(parsed)
                elif parsed is not None:
                    problem = "kind: the first line of a file is not of the kind process"
            except ValueError as error:
                problem = str(error)
        if problem:
            aside.append(SetAside(file=file, line=line.number, reason="damaged", message=problem))
    if found is not None:
        found.join_first_rounds()
    return found


def _parsed(raw: bytes, value: Mapping[str, Any], path: Path) -> Line | None:
    """Return a line in its form, None for a kind that is not known; raises ValueError where it does not fit."""
    if len(raw) > _MOST_BYTES:
        message = f"it is longer than {_MOST_BYTES >> 20} MiB"
        raise ValueError(message)
    kind = value.get("kind")
    form = FORMS.get(kind) if isinstance(kind, str) else None
    if form is None:
        return None
    if kind == "process" and isinstance(made := value.get("format"), int) and made > FORMAT:
        message = f"{path} has format {made}; this steptime reads up to {FORMAT}. Use the steptime that recorded it"
        raise StoreError(message)
    try:
        line: Line = form.validate_json(raw)
    except ValidationError as error:
        raise ValueError(first_mistake(error)) from error
    return line


def _without_start(step: StepLine) -> StepLine:
    """Return a step without the gap from the start of the process on, which lies before the first step."""
    gaps = {name: seconds for name, seconds in step.gaps.items() if not name.startswith(_START)}
    return step if len(gaps) == len(step.gaps) else replace(step, gaps=gaps)


def _fits(step: StepLine) -> bool:
    """Return whether the parts of a step are within it."""
    parts = sum(step.regions.values()) + sum(step.gaps.values())
    if step.apart is not None:
        parts += step.apart.end_ns - step.apart.begin_ns
    return parts <= step.duration_ns * _TOLERANCE + _TOLERANCE_NS


def _require_fitting(step: StepLine, before: StepLine | None) -> None:
    """Raise ValueError where a step cannot be, such as one before the one before it."""
    if step.apart is not None:
        if not step.begin_ns <= step.apart.begin_ns <= step.apart.end_ns <= step.end_ns + _TOLERANCE_NS:
            message = "apart: it does not lie inside the step"
            raise ValueError(message)
        if sum(step.apart.regions.values()) > step.apart.end_ns - step.apart.begin_ns + _TOLERANCE_NS:
            message = "apart.regions: they are longer than apart"
            raise ValueError(message)
    if before is not None and (step.number <= before.number or step.begin_ns + _TOLERANCE_NS < before.end_ns):
        message = f"number, begin_ns: step {step.number} does not follow step {before.number}"
        raise ValueError(message)
    for begin, last, end, _ in step.backwards:
        if not (begin <= end and (last == 0 or begin <= last)):
            message = "backwards: a pass ends before it begins"
            raise ValueError(message)
    if any(begin > end for _, _, begin, end in step.intervals):
        message = "intervals: a collective ends before it begins"
        raise ValueError(message)


Nanoseconds = Annotated[int, Field(ge=-(2**62), le=2**62)]


class AttachedHeader(StoredObject):
    """The command and its time."""

    command: list[str]
    started_at: str
    """UTC, ISO 8601; empty if a file of another program does not have it."""
    boot: str
    """Processes with the same one share the monotonic clock, on which the command began and ended."""
    begin_ns: Nanoseconds
    end_ns: Nanoseconds | None = None
    """None while it runs, and where steptime was killed."""
    wall_minus_monotonic_ns: Nanoseconds
    """The distance of the two clocks of the host."""
    exit_code: int | None = None
    """As a shell shows it."""
    ended_early: int | None = None
    """The step before which a sweep ended it; None if it ended by itself."""
    not_attached: str | None = None
    """Why no process wrote anything."""
    noise: dict[str, Quantity | None] = Field(default_factory=dict)
    """What else the machine did: see results/noise.py."""
    flags: list[FlagCode] = Field(default_factory=list)
    """What of that a reader must know."""
    job: dict[str, Any] | None = None
    """What a command that is one member of a job has in common with the others, which write to the same folder."""
    member: str | None = None
    by_environment: bool = False
    """Whether others started the processes, by the variables alone, at a time that is not known here."""
    imported: list[ImportedFile] = Field(default_factory=list)
    """Of which the records are made; none of a run."""
