"""What readers of other programs' files give: processes with steps, as an attached run has them, and where from.

The results folder that they become.
"""

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from steptime.imported.transfers import CollectiveRecords, RankTrace, split_of_ranks
from steptime.plain_file import PlainFolder
from steptime.results.attached_files import FORMAT, AttachedFiles, AttachedHeader, ProcessLines
from steptime.results.attached_lines import (
    MEAN,
    Clock,
    ImportedFile,
    NoteLine,
    ProcessLine,
    RankLine,
    StepLine,
    UnseenLine,
)
from steptime.results.gpu_windows import RECORDS
from steptime.results.store import Store

PARTS = ("input_wait", "forward", "backward", "comm_exposed", "sync_wait", "update")
_NS = 1e9
LARGEST_STEP = 2**31 - 1
"""Of the number of a step, and of ranks."""
LONGEST_STEP_S = 1e7
"""Beyond which a file holds something else than the time of a step."""
CURVE = "curve.csv"
"""In the folder, of runs with several numbers of workers."""
_TEXT = "# Made by 'steptime import': no study, but files of other programs.\n"


@dataclass(frozen=True)
class ImportedSteps:
    """The steps of one process, or of one reader of all, in the order of time."""

    steps: Sequence[StepLine]
    rank: int = 0
    workers: int | None = None
    """That train together; None if the source does not say."""
    by: str = ""
    """What joins them."""
    host: str = ""
    begin_ns: int = 0
    unseen: Mapping[str, str] = field(default_factory=dict)
    """By part of a step, why it is not known."""
    trace: RankTrace | None = None
    """Its collectives, of a trace."""


@dataclass(frozen=True)
class ImportedSource:
    """What one file gives."""

    path: Path
    importer: str
    processes: Sequence[ImportedSteps]
    figures: Mapping[str, str]
    """By figure, what of the file it is made of."""
    values: Mapping[str, float] = field(default_factory=dict)
    """Further figures, means over entries, by name with unit."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    """By figure, why it is not known."""
    notes: Sequence[str] = ()
    began_at: str = ""
    """UTC, ISO 8601."""
    collectives: CollectiveRecords | None = None
    """Of a file that has these alone."""

    def described(self, digest: str) -> ImportedFile:
        """Return what a results folder keeps of the file."""
        return ImportedFile(
            path=str(self.path),
            importer=self.importer,
            sha256=digest,
            figures=dict(self.figures),
            values={name: float(value) for name, value in self.values.items()},
            unknown=dict(self.unknown),
            notes=list(self.notes),
        )


def mean_step(number: int, begin_ns: int, seconds: float, covers: int = 1) -> StepLine:
    """Return a step line of a mean over steps."""
    return StepLine(
        number=number, begin_ns=begin_ns, duration_ns=round(seconds * _NS), flags=[MEAN] if covers != 1 else []
    )


class ImportedRun(NamedTuple):
    """A run in the forms of an attached one."""

    header: AttachedHeader
    files: AttachedFiles


def imported_run(sources: Sequence[ImportedSource], digests: Sequence[str]) -> ImportedRun:
    """Return the run that files describe, as the rest of steptime reads runs."""
    processes = [
        _lines(source, index, steps)
        for source_index, source in enumerate(_with_transfers(sources))
        for index, steps in _numbered(source, source_index)
    ]
    header = AttachedHeader(
        command=[source.path.name for source in sources],
        started_at=next((source.began_at for source in sources if source.began_at), ""),
        boot=f"imported-{hashlib.sha256(''.join(digests).encode()).hexdigest()[:16]}",
        begin_ns=0,
        wall_minus_monotonic_ns=0,
        by_environment=True,
        not_attached=next((why for source in sources if (why := source.unknown.get("step_s"))), None),
        imported=[source.described(digest) for source, digest in zip(sources, digests, strict=True)],
    )
    return ImportedRun(header, AttachedFiles(processes, [], [], []))


def _with_transfers(sources: Sequence[ImportedSource]) -> Sequence[ImportedSource]:
    """Return sources whose exchange is divided into waiting and transfer, where traces of the ranks show it."""
    own = [(steps.trace, steps) for source in sources for steps in source.processes if steps.trace is not None]
    workers = {steps.workers for _, steps in own}
    world = workers.pop() if len(workers) == 1 else None
    traces = {steps.rank: trace for trace, steps in own}
    if world is None or world < 2 or len(traces) < 2 or len(traces) < len(own):  # noqa: PLR2004 - ranks that exchange
        return sources
    divided = split_of_ranks(traces, world)
    return [replace(source, processes=[_divided(steps, divided) for steps in source.processes]) for source in sources]


def _divided(steps: ImportedSteps, divided: Mapping[int, Sequence[tuple[float, float]]] | str) -> ImportedSteps:
    if isinstance(divided, str):
        return replace(steps, unseen={**steps.unseen, **dict.fromkeys(("comm_exposed", "sync_wait"), divided)})
    lines = []
    for line, (waiting, transfer) in zip(steps.steps, divided[steps.rank], strict=True):
        parts = {"waiting": round(waiting * _NS), "transfer": round(transfer * _NS)}
        regions = {name: lasted for name, lasted in {**line.regions, **parts}.items() if name != "collective"}
        lines.append(replace(line, regions={name: lasted for name, lasted in regions.items() if lasted > 0}))
    return replace(steps, steps=lines)


def _numbered(source: ImportedSource, source_index: int) -> Iterable[tuple[int, ImportedSteps]]:
    """Yield processes with a number that no process of another file has."""
    return ((source_index * 1_000_000 + steps.rank, steps) for steps in source.processes)


def mark_of_file(importer: str, path: str) -> str:
    """Return the mark of the processes of a file, whose name others may have in other folders."""
    return f"{importer}-{hashlib.sha256(path.encode()).hexdigest()[:12]}"


def _lines(source: ImportedSource, pid: int, steps: ImportedSteps) -> ProcessLines:
    clock = Clock(wall_ns=0, monotonic_ns=0)
    process = ProcessLine(
        format=FORMAT,
        host=steps.host,
        pid=pid,
        begin_ns=steps.begin_ns,
        clock=clock,
        boot=mark_of_file(source.importer, str(source.path)),
        program=[source.path.name],
    )
    lines = ProcessLines(process)
    if steps.workers is not None:
        lines.take(RankLine(steps.rank, steps.workers, steps.by))
    for note in source.notes:
        lines.take(NoteLine(note))
    for reason in dict.fromkeys(steps.unseen.values()):
        lines.take(UnseenLine([part for part, why in steps.unseen.items() if why == reason], reason))
    for step in steps.steps:
        lines.take(step)
    return lines


def records_of(lines: ProcessLines) -> Iterable[dict[str, Any]]:
    """Yield the lines of a process as objects, as its file has them."""
    kinds = {
        ProcessLine: "process", RankLine: "rank", NoteLine: "note", UnseenLine: "unseen", StepLine: "step"
    }  # fmt: skip
    place = [lines.place] if lines.place else []
    notes = [NoteLine(text) for text in lines.notes]
    unseen = [UnseenLine([phase], reason) for phase, reason in lines.unseen.items()]
    written: list[ProcessLine | RankLine | NoteLine | UnseenLine | StepLine]
    written = [lines.process, *place, *notes, *unseen, *lines.steps]
    for line in written:
        yield {"kind": kinds[type(line)], **asdict(line)}


def write_imported(folder: Path, run: ImportedRun, points: Sequence[tuple[int, float, int | None]]) -> Path | None:
    """Write a results folder that reads like one of an attached run; return its curve, None without several sizes.

    Args:
        folder: to make.
        run: what files describe.
        points: workers, the mean step and the batch per worker of its trainings.

    Raises StoreError where the folder holds something or cannot be written.
    """
    question = f"Where does the time of {', '.join(run.header.command[:3])} go?"
    store = Store.create(folder, study_text=_TEXT, study_json={"name": folder.absolute().name, "question": question})
    within = PlainFolder(folder)
    for number, process in enumerate(run.files.processes):
        lines = "".join(f"{json.dumps(line)}\n" for line in records_of(process))
        within.write(folder / RECORDS / f"imported-{number}.jsonl", lines.encode())
    with store.lock():
        store.put("attached", run.header.model_dump(mode="json"))
    if len({workers for workers, _, _ in points}) < 2:  # noqa: PLR2004 - a curve
        return None
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["workers", "step_time_s", "batch_per_worker", "throughput_samples_per_s"])
    table.writerows(
        (workers, f"{seconds:.9g}", batch or "", f"{workers * batch / seconds:.9g}" if batch else "")
        for workers, seconds, batch in points
    )
    within.write(folder / CURVE, text.getvalue().encode())
    return folder / CURVE
