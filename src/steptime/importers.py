"""Readers of other programs' files, one row each: what they give is what the rest of steptime works with.

A reader gives the links behind rows of a benchmark, the points of scaling curves, or the lines of a run of a user's own
script, with where they come from. A further one is a row of ``IMPORTS``, or an entry point ``steptime.importers``.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from steptime.attached.summary import attached_run
from steptime.catalog.plugins import Registry
from steptime.curves.curve import ScalingCurve
from steptime.curves.table import read_own_curves
from steptime.errors import FileError, PluginError, UsageError
from steptime.fitting.nccl_output import NcclTable, read_nccl_tests
from steptime.imported.collective_records import (
    read_binary_flight_recorder,
    read_flight_recorder,
    read_inspector,
    with_ranks_compared,
)
from steptime.imported.imported_run import ImportedRun, ImportedSource, imported_run, mark_of_file
from steptime.imported.kineto import read_kineto
from steptime.imported.log_forms import LOG_FORMS, LogForm
from steptime.imported.nsys import SQLITE, read_nsys
from steptime.imported.source import digest_of, read_head
from steptime.imported.text_log import form_of_log, read_log
from steptime.imported.tracker_files import (
    MLLOG,
    read_lightning,
    read_mlflow,
    read_mllog,
    read_tensorboard,
    read_tensorboard_table,
    read_transformers,
    read_ultralytics,
    read_wandb,
)
from steptime.results.attached_files import AttachedFiles, AttachedHeader, ProcessLines
from steptime.user_file import read_user_text

ImportedKind = Literal["links", "curves", "run"]
TAKEN_BY: dict[ImportedKind, str] = {
    "links": "steptime fit DIR --nccl-tests FILE",
    "curves": "steptime predict --curve FILE",
    "run": "steptime import FILE -o DIR",
}
"""The command that takes each kind."""
_MOST_BYTES = 16 * 1024**2
_HEAD = 65_536
"""Characters by which a file is recognised."""


@dataclass(frozen=True)
class Provenance:
    """Where imported records come from."""

    importer: str
    path: str
    sha256: str


@dataclass(frozen=True)
class ImportedRecords:
    """What a reader gives; of one kind."""

    links: tuple[NcclTable, ...] = ()
    curves: tuple[ScalingCurve, ...] = ()
    run: tuple[AttachedHeader, AttachedFiles] | None = None
    source: ImportedSource | None = None
    """Likewise a run, as readers of ``steptime.imported`` give it: several files make one."""
    notes: tuple[str, ...] = ()
    """What of the file is not used, and why."""
    provenance: Provenance | None = None
    """Filled in by ``read_imports``."""


@dataclass(frozen=True)
class Importer:
    """A reader of one kind of file."""

    name: str
    about: str
    """What it reads."""
    gives: ImportedKind
    recognises: Callable[[str], bool]
    """Whether the beginning of a file is of this form."""
    read: Callable[[Path], ImportedRecords]
    """Raises UsageError with every mistake of the file."""


def _nccl_tests(path: Path) -> ImportedRecords:
    tables = read_nccl_tests([path])
    return ImportedRecords(tuple(tables), notes=tuple(sentence for table in tables for sentence in table.passed_over))


def _own_curves(path: Path) -> ImportedRecords:
    curves = read_own_curves(path)
    notes = tuple(f"{curve.name}: {sentence}" for curve in curves for sentence in curve.notes)
    return ImportedRecords(curves=tuple(curves), notes=notes)


_NCCL = re.compile(
    r"\b(?!coll_perf\b)\w+_perf\b|nThread\s+\d+\s+nGpus|\bsize\s+count\s+type\s+redop\b|\"(?:alg_bw|out_of_place)\""
)
_CURVE = re.compile(r"^[^#\n]*\bworkers\b[^\n]*\b(?:step_time_s|throughput_samples_per_s)\b", re.MULTILINE)
_TRACE = r'"traceEvents"\s*:\s*\[|^\s*\[\s*\{[^\0]{0,2000}"ph"\s*:\s*"'


def _log_row(form: LogForm) -> Importer:
    def is_first(head: str) -> bool:
        return form_of_log(head) is form

    return Importer(form.name, form.about, "run", is_first, lambda path: ImportedRecords(source=read_log(path, form)))


def _run_row(name: str, about: str, pattern: str, read: Callable[[Path], ImportedSource]) -> Importer:
    known = re.compile(pattern)
    return Importer(
        name, about, "run", lambda head: bool(known.search(head)), lambda path: ImportedRecords(source=read(path))
    )


_ROWS = (
    Importer("nccl-tests", "output of nccl-tests", "links", lambda head: bool(_NCCL.search(head)), _nccl_tests),
    Importer("curve", "a table of a curve", "curves", lambda head: bool(_CURVE.search(head)), _own_curves),
    _run_row("kineto", "a trace of PyTorch's profiler", _TRACE, read_kineto),  # before those whose keys it has, too
    _run_row("mlperf", "a log of MLPerf", MLLOG, read_mllog),
    _run_row(
        "transformers",
        "trainer_state.json or results of transformers",
        r'^\s*\{[^\0]*"(?:log_history|train_runtime)"\s*:',
        read_transformers,
    ),
    _run_row(
        "ultralytics",
        "results.csv of ultralytics",
        r"^(?![^\n]*\bstep\b)\s*epoch,[^\n]*\btrain/(?:\w+_)?loss",
        read_ultralytics,
    ),
    _run_row(
        "wandb", "a history of W&B as CSV", r"^(?=[^\n]*\b_step\b)(?=[^\n]*\b_(?:timestamp|runtime)\b)", read_wandb
    ),
    _run_row(
        "mlflow",
        "a metric's history of MLflow",
        r"^(?:(?=[^\n]*\bkey\b)(?=[^\n]*\bstep\b)(?=[^\n]*\btimestamp\b)[^\n{]+,|\d{13} \S+ \d+\n)",
        read_mlflow,
    ),
    _run_row("tensorboard", "an event file of TensorBoard", r"^[^\n]{0,40}brain\.Event:[12]", read_tensorboard),
    _run_row(
        "tensorboard-table", "a scalar of TensorBoard as CSV", r'^"?Wall time"?,"?Step"?,', read_tensorboard_table
    ),
    _run_row(
        "lightning",
        "metrics.csv of Lightning",
        r"^(?=[^\n]*\bstep\b)(?=[^\n]*\bepoch\b)[^\n{]+,[^\n{]+",
        read_lightning,
    ),
    _run_row(
        "flight-recorder",
        "a JSON dump of PyTorch's flight recorder",
        r'^\s*\{[^\0]*"(?:pg_status|pg_config)"\s*:',
        read_flight_recorder,
    ),
    _run_row(
        "flight-recorder-binary",
        "the same in Python's binary form, as PyTorch writes it",
        "^\ufffd[\x02-\x05](?s:.)*?(?:entries|pg_config)",
        read_binary_flight_recorder,
    ),
    _run_row(
        "nccl-inspector",
        "a log of the NCCL Inspector",
        r'^\s*\{[^\0]{0,2000}"coll_exec_time_us"\s*:',
        read_inspector,
    ),
    _run_row("nsys", "an export of Nsight Systems as SQLite", f"^{SQLITE}", read_nsys),
    *map(_log_row, LOG_FORMS.values()),
)
IMPORTS: Registry[Importer] = Registry(
    "importer",
    {row.name: row for row in _ROWS},
    lambda row: isinstance(row, Importer),
    "a steptime.importers.Importer",
)


def importers_of(kind: ImportedKind) -> dict[str, Importer]:
    """Return the readers that give a kind of records, by name; a plug-in that cannot be used is left out."""
    return {name: row for name, row in _usable() if row.gives == kind}


def read_imports(paths: Sequence[Path], kind: ImportedKind) -> list[ImportedRecords]:
    """Return what files give, each with its provenance.

    Raises UsageError with every mistake of all files, also where a file is of a form that gives another kind.
    """
    records, mistakes = [], []
    for path in paths:
        try:
            records.append(_read(path, kind))
        except UsageError as error:
            mistakes += error.mistakes
    if mistakes:
        raise UsageError(mistakes)
    return records


def _read(path: Path, kind: ImportedKind) -> ImportedRecords:
    """Return what one file gives.

    What no reader recognises goes to the first one of the kind, whose mistakes name what is wrong with it.
    """
    able = importers_of(kind)
    try:
        text = read_user_text(path, _MOST_BYTES)
    except FileError:
        return next(iter(able.values())).read(path)  # which names the reason
    head = text[:_HEAD]
    row = next((row for row in able.values() if row.recognises(head)), None)
    other = None if row else next((row for _, row in _usable() if row.recognises(head)), None)
    if other:
        message = f"{path} is {other.about}; give it to {TAKEN_BY[other.gives].replace('FILE', str(path))}"
        raise UsageError(message)
    row = row or next(iter(able.values()))
    records = row.read(path)
    provenance = Provenance(row.name, str(path), hashlib.sha256(text.encode()).hexdigest())
    return replace(records, provenance=provenance)


def recognised_runs(paths: Sequence[Path]) -> list[tuple[Path, Importer]]:
    """Return the reader of each file that describes a run.

    Raises UsageError with every file that no reader takes, or that is of another kind.
    """
    rows, mistakes = [], []
    for path in paths:
        try:
            head = read_head(path)
        except FileError as error:
            mistakes.append(str(error))
            continue
        row = next((row for _, row in _usable() if row.recognises(head)), None)
        if row is None:
            known = "; ".join(f"{name}: {row.about}" for name, row in importers_of("run").items())
            mistakes.append(f"{path} is of no form that is known ({known})")
        elif row.gives != "run":
            mistakes.append(f"{path} is {row.about}; give it to {TAKEN_BY[row.gives].replace('FILE', str(path))}")
        else:
            rows.append((path, row))
    if mistakes:
        raise UsageError(mistakes)
    return rows


def read_run(rows: Sequence[tuple[Path, Importer]]) -> ImportedRun:
    """Return the run that files describe together; raises UsageError with every mistake of all files."""
    sources, digests, own, mistakes = [], [], [], []
    for path, row in rows:
        try:
            records = row.read(path)
        except (FileError, UsageError) as error:
            mistakes += error.mistakes if isinstance(error, UsageError) else [str(error)]
            continue
        if records.source is not None:
            sources.append(records.source)
            digests.append(digest_of(path))
        elif records.run is not None:
            own.append(records.run)
    if mistakes:
        raise UsageError(mistakes)
    header, files = imported_run(with_ranks_compared(sources), digests) if sources else own[0]
    others = own if sources else own[1:]
    processes = [*files.processes, *(each for _, more in others for each in more.processes)]
    return ImportedRun(header, replace(files, processes=processes))


def curve_points(imported: ImportedRun) -> Sequence[tuple[int, float, int | None]]:
    """Return workers, the mean step and the batch per worker of each training whose workers are known, ascending."""
    header, files = imported
    batches = {mark_of_file(each.importer, each.path): each.values.get("global_batch") for each in header.imported}
    trainings: dict[str, list[ProcessLines]] = {}
    for process in files.processes:
        if process.place:
            trainings.setdefault(process.process.boot or "", []).append(process)
    points = []
    for mark, own in trainings.items():
        run = attached_run(header.model_copy(update={"imported": []}), AttachedFiles(own, [], [], []))
        if run.step_s.value:
            share = (batches.get(mark) or 0.0) / run.world
            points.append((run.world, run.step_s.value, round(share) if share and share == round(share) else None))
    return sorted(points, key=lambda point: point[:2])


def _usable() -> Iterator[tuple[str, Importer]]:
    for name in IMPORTS:
        try:
            yield name, IMPORTS[name]
        except PluginError:
            continue
