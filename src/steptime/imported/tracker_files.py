"""Figures that libraries and trackers leave in files.

In JSON and CSV those of transformers, Lightning, ultralytics and MLPerf's logging. Of histories of metrics a step takes
the time between two entries by their steps: W&B's and MLflow's as CSV, TensorBoard's as CSV and as event files.
None needs the tracker's library: an event file is a row of records, each with its length, whose first fields are the
time and the step.
"""

import csv
import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steptime.errors import FileError
from steptime.imported.imported_run import LARGEST_STEP, LONGEST_STEP_S, PARTS, ImportedSource, ImportedSteps, mean_step
from steptime.imported.source import LIMITS, ReadLimits, SourceFile, open_source, read_object
from steptime.units import format_bytes, format_count

if TYPE_CHECKING:
    from steptime.results.attached_lines import StepLine

_UNDIVIDED = "the file does not divide its steps"
MLLOG = ":::MLLOG"
Moment = tuple[int, float]
"""A step, and when it was logged in seconds."""
_NOTE = "time between entries holds evaluations, checkpoints and pauses, and entries are means over several steps"
_WHY = "{name} has no two entries whose step and time grow"
_HEADER, _FOOTER = 12, 4
"""Bytes around a record: its length with a checksum, and a checksum."""
_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5
_MOST_TAGS = 10_000
_MS = 1e-3
_SAME, _ROUNDED = 0.01, 5e-4
"""Steps by a rate may be off by a share, and by the rounding of the rate."""


@dataclass(frozen=True)
class _FileSteps:
    """Steps of a file: the number of each, of how many it is the mean, and seconds."""

    times: Sequence[tuple[int, int, float]]
    made_of: str
    """The figures of the file."""
    why_not: str
    """Why there are none, where there are none."""

    def source(self, path: Path, importer: str, values: Mapping[str, float], *notes: str) -> ImportedSource:
        """Return what the file gives, with further figures."""
        steps: list[StepLine] = []
        for number, covers, seconds in self.times:
            follows = not steps or number > steps[-1].number
            if 0 <= number <= LARGEST_STEP and 0.0 < seconds <= LONGEST_STEP_S and follows:
                steps.append(mean_step(number, steps[-1].end_ns if steps else 0, seconds, covers))
        unknown = {"workers": f"{path.name} does not have how many workers train"}
        if not steps:
            return ImportedSource(path, importer, [], {}, values, {**unknown, "step_s": self.why_not}, notes)
        process = ImportedSteps(steps, unseen=dict.fromkeys(PARTS, _UNDIVIDED))
        return ImportedSource(path, importer, [process], {"step_s": self.made_of}, values, unknown, notes)


def _number(values: Mapping[str, Any], *names: str) -> float | None:
    """Return the first of some figures that is a number."""
    for name in names:
        value = values.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e15:  # noqa: PLR2004 - not a huge one
            return float(value)
    return None


def read_transformers(path: Path, limits: ReadLimits = LIMITS) -> ImportedSource:
    """Return the mean step of ``trainer_state.json``, ``all_results.json`` or ``train_results.json``."""
    whole = read_object(path, limits)
    history = whole.get("log_history")
    entries = [each for each in history if isinstance(each, dict)] if isinstance(history, list) else [whole]
    ends = [index for index, each in enumerate(entries) if _number(each, "train_runtime") is not None]
    made_of, why = "train_runtime / steps", f"{path.name} has no train_runtime: the training has not ended"
    if not ends:
        return _FileSteps([], made_of, why).source(path, "transformers", {})
    last = entries[ends[-1]]
    runtime, per_s = _number(last, "train_runtime") or 0.0, _number(last, "train_steps_per_second") or 0.0
    steps = round(_number(last, "step") or _number(whole, "global_step") or runtime * per_s)
    samples = _number(last, "train_samples_per_second")
    evaluations = _evaluations_s(entries[: ends[-1]])
    beside = sum(evaluations) if 0.0 < sum(evaluations) < runtime else 0.0
    if beside:
        made_of = f"(train_runtime - eval_runtime of {format_count(len(evaluations), 'evaluation')}) / steps"
    times = [(steps, steps, (runtime - beside) / steps)] if steps > 0 else []
    notes = ["train_runtime holds checkpoints and the first steps, and of a resumed training not all steps"]
    if not beside:
        notes.append("evaluations in train_runtime are not known, which count as steps here")
    planned = round(runtime * per_s)
    if abs(planned - steps) > max(1.0, _SAME * planned) + runtime * _ROUNDED:
        notes.append(f"rates of the Trainer are not used: they are of {planned} steps, and the training has {steps}")
        samples = None
    values = {} if samples is None else {"samples_per_s": samples}
    return _FileSteps(times, made_of, f"{path.name} has no steps").source(path, "transformers", values, *notes)


def _evaluations_s(entries: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return how long each evaluation of a Trainer's history took."""
    keys = ((entry, key) for entry in entries for key in entry)
    of_each = [_number(entry, key) for entry, key in keys if key.startswith("eval_") and key.endswith("_runtime")]
    return [seconds for seconds in of_each if seconds]


def _rows(path: Path, limits: ReadLimits) -> Iterator[dict[str, str]]:
    """Yield the rows of a CSV file by the names of its header; raises FileError where it cannot be read."""
    with open_source(path, limits) as source:
        try:
            for row in csv.DictReader(source.lines(), skipinitialspace=True):
                yield {(name or "").strip(): value for name, value in row.items() if isinstance(value, str)}
        except csv.Error as error:
            raise FileError(path, f"not CSV: {error}") from error


def _cell(row: Mapping[str, str], name: str | None) -> float | None:
    """Return a number of a row; None if there is none."""
    try:
        value = float(row.get(name or "", ""))
    except ValueError:
        return None
    return value if abs(value) < 1e15 else None  # noqa: PLR2004 - not a huge one, nor none


def read_lightning(path: Path, limits: ReadLimits = LIMITS) -> ImportedSource:
    """Return the steps of Lightning's ``metrics.csv``, from the seconds that its ThroughputMonitor logs."""
    times: list[tuple[int, int, float]] = []
    before: tuple[float, float] | None = None
    for row in _rows(path, limits):
        name = next((each for each in ("train|time", "train/time", "train_time", "time") if each in row), None)
        step, seconds = _cell(row, "step"), _cell(row, name)
        if step is None or seconds is None:
            continue
        if before and step > before[0] and seconds > before[1]:
            count = int(step - before[0])
            times.append((int(step), count, (seconds - before[1]) / count))
        before = (step, seconds)
    why = f"{path.name} has no times; Lightning's ThroughputMonitor logs them as train|time"
    return _FileSteps(times, "differences of train|time", why).source(path, "lightning", {})


def read_ultralytics(path: Path, limits: ReadLimits = LIMITS) -> ImportedSource:
    """Return the seconds of an epoch of ultralytics' ``results.csv``, which has no steps."""
    ends = [_cell(row, "time") for row in _rows(path, limits)]
    grown = [after - before for before, after in pairwise(ends) if before is not None and after is not None]
    epochs = [seconds for seconds in grown if seconds > 0.0]  # the time begins anew where a training is resumed
    values = {"epoch_s": sum(epochs) / len(epochs)} if epochs else {}
    why = f"{path.name} has {'the time of epochs' if values else 'no times'}, and not how many steps an epoch has"
    return _FileSteps([], "", why).source(path, "ultralytics", values)


def read_mllog(path: Path, limits: ReadLimits = LIMITS) -> ImportedSource:
    """Return the mean steps between the entries of an MLPerf log that count samples."""
    batch = 0.0
    marks: list[tuple[float, float, float]] = []
    """The first and the last time at which so many samples were counted: an evaluation lies between."""
    with open_source(path, limits) as source:
        for entry in _mllog_entries(source):
            if entry.get("key") == "global_batch_size":
                batch = _number(entry, "value") or batch
            about = entry.get("metadata")
            at, samples = _number(entry, "time_ms"), _number(about if isinstance(about, dict) else {}, "samples_count")
            if at is None or samples is None:
                continue
            if marks and samples == marks[-1][2]:
                marks[-1] = (marks[-1][0], at, samples)
            elif not marks or samples > marks[-1][2]:
                marks.append((at, at, samples))
    times = []
    for (_, since, first), (until, _, last) in pairwise(marks):
        steps = round((last - first) / batch) if batch else 0
        if steps > 0 and until > since:
            times.append((round(last / batch), steps, (until - since) * _MS / steps))
    why = f"{path.name} lacks global_batch_size, or two entries with samples_count"
    made_of = "times and samples_count of entries, without what lies between two of one samples_count (evaluations)"
    return _FileSteps(times, made_of, why).source(path, "mlperf", {"global_batch": batch} if batch else {})


def _mllog_entries(source: SourceFile) -> Iterator[Mapping[str, Any]]:
    for line in source.lines():
        if MLLOG in line:
            try:
                entry = json.loads(line.partition(MLLOG)[2])
            except (ValueError, RecursionError):
                continue
            if isinstance(entry, dict):
                yield entry


def read_wandb(path: Path, limits: ReadLimits = LIMITS) -> ImportedSource:
    """Return the steps of a history of W&B, ``run.history().to_csv()``; raises FileError where it cannot be read."""
    rows = _rows(path, limits)
    moments = ((_cell(row, "_step"), _cell(row, "_runtime" if "_runtime" in row else "_timestamp")) for row in rows)
    return _history(path, "wandb", {"_step": _known(moments)}, "_runtime or _timestamp by _step")


def read_mlflow(path: Path, limits: ReadLimits = LIMITS) -> ImportedSource:
    """Return the steps of a metric of MLflow: a CSV with key, step and timestamp, or a file of its file store."""
    by_key: dict[str, list[tuple[float | None, float | None]]] = {}
    with open_source(path, limits) as source:
        first = next(source.lines(), "")
    if "," in first:
        for row in _rows(path, limits):
            if len(by_key) < _MOST_TAGS or row.get("key", "") in by_key:
                by_key.setdefault(row.get("key", ""), []).append((_cell(row, "step"), _cell(row, "timestamp")))
    else:
        with open_source(path, limits) as source:
            for line in source.lines():
                at, _, rest = line.partition(" ")
                words = {"at": at, "step": rest.rpartition(" ")[2]}
                by_key.setdefault(path.name, []).append((_cell(words, "step"), _cell(words, "at")))
    known = {key: [(step, at * _MS) for step, at in _known(moments)] for key, moments in by_key.items()}
    return _history(path, "mlflow", known, "timestamps by step")


def read_tensorboard_table(path: Path, limits: ReadLimits = LIMITS) -> ImportedSource:
    """Return the steps of a scalar that TensorBoard wrote as CSV."""
    moments = ((_cell(row, "Step"), _cell(row, "Wall time")) for row in _rows(path, limits))
    return _history(path, "tensorboard", {"Step": _known(moments)}, "Wall time by Step")


def read_tensorboard(path: Path, limits: ReadLimits = LIMITS) -> ImportedSource:
    """Return the steps of an event file of TensorBoard, by its scalar with most entries; raises as ``read_wandb``."""
    moments: dict[str, list[Moment]] = {}
    with open_source(path, limits) as source:
        for record in _records(source):
            at, step, tags = _event(record)
            if at is not None and 0 <= step <= LARGEST_STEP:
                for tag in tags:
                    if tag in moments or len(moments) < _MOST_TAGS:
                        moments.setdefault(tag, []).append((step, at))
    return _history(path, "tensorboard", moments, "wall_time by step")


def _history(path: Path, importer: str, moments: Mapping[str, Iterable[Moment]], made_of: str) -> ImportedSource:
    lists = {name: list(own) for name, own in moments.items()}
    name = max(lists, key=lambda key: len(lists[key]), default="")
    times: list[tuple[int, int, float]] = []
    before: Moment | None = None
    for step, at in lists.get(name, ()):
        if before is not None and step > before[0] and at > before[1]:
            times.append((step, step - before[0], (at - before[1]) / (step - before[0])))
        before = (step, at)
    of_entry = f"{made_of}, of {name}" if len(lists) > 1 else made_of
    return _FileSteps(times, of_entry, _WHY.format(name=path.name)).source(path, importer, {}, _NOTE)


def _known(moments: Iterable[tuple[float | None, float | None]]) -> list[Moment]:
    return [
        (int(step), at)
        for step, at in moments
        if step is not None and at is not None and 0 <= step <= LARGEST_STEP
    ]  # fmt: skip


def _records(source: SourceFile) -> Iterator[bytes]:
    """Yield the records of an event file; one that is still being written ends it."""
    while len(header := source.read(_HEADER)) == _HEADER:
        (size,) = struct.unpack_from("<Q", header)
        if size > source.limits.line:
            why = f"a record is longer than {format_bytes(source.limits.line)}: it is damaged; copy it again"
            raise FileError(source.path, why)
        record = source.read(size + _FOOTER)
        if len(record) < size + _FOOTER:
            return
        yield record[:size]


def _event(record: bytes) -> tuple[float | None, int, list[str]]:
    """Return the time, the step and the tags of the scalars of an event."""
    at, step, tags = None, 0, []
    for number, value in _fields(record):
        if number == 1 and isinstance(value, float):
            at = value
        elif number == 2 and isinstance(value, int):  # noqa: PLR2004 - of Event
            step = value
        elif number == 5 and isinstance(value, bytes):  # noqa: PLR2004 - of Event
            for inner, summary in _fields(value):
                if inner == 1 and isinstance(summary, bytes):
                    texts = [text for part, text in _fields(summary) if part == 1 and isinstance(text, bytes)]
                    tags += [text.decode(errors="replace") for text in texts[:1]]
    return at, step, tags


def _fields(data: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """Yield the fields of a message of Protocol Buffers, as far as they are whole."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield number, value
        elif kind == _DOUBLE and at + 8 <= len(data):
            yield number, struct.unpack_from("<d", data, at)[0]
            at += 8
        elif kind == _BYTES:
            size, at = _varint(data, at)
            if at + size > len(data):
                return
            yield number, data[at : at + size]
            at += size
        elif kind == _FLOAT:
            at += 4
        else:
            return


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(10):
        if at >= len(data):
            return value, at + 1
        value |= (data[at] & 0x7F) << 7 * place
        at += 1
        if data[at - 1] < 0x80:  # noqa: PLR2004 - the last of a number
            break
    return value, at
