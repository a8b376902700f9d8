"""Figures that libraries leave in files of JSON and CSV: transformers, Lightning, ultralytics and MLPerf's logging."""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steptime.errors import FileError
from steptime.imported.imported_run import LARGEST_STEP, LONGEST_STEP_S, PARTS, ImportedSource, ImportedSteps, mean_step
from steptime.imported.source import LIMITS, ReadLimits, SourceFile, open_source, read_object

if TYPE_CHECKING:
    from steptime.results.attached_lines import StepLine

_UNDIVIDED = "the file does not divide its steps"
MLLOG = ":::MLLOG"


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
    last = next((each for each in reversed(entries) if _number(each, "train_runtime") is not None), None)
    made_of, why = "train_runtime / steps", f"{path.name} has no train_runtime: the training has not ended"
    if last is None:
        return _FileSteps([], made_of, why).source(path, "transformers", {})
    runtime, per_s = _number(last, "train_runtime") or 0.0, _number(last, "train_steps_per_second") or 0.0
    steps = round(_number(last, "step") or _number(whole, "global_step") or runtime * per_s)
    samples = _number(last, "train_samples_per_second")
    times = [(steps, steps, runtime / steps)] if steps > 0 else []
    note = "train_runtime holds evaluations, checkpoints and the first steps"
    values = {} if samples is None else {"samples_per_s": samples}
    return _FileSteps(times, made_of, f"{path.name} has no steps").source(path, "transformers", values, note)


def _rows(path: Path, limits: ReadLimits) -> Iterator[dict[str, str]]:
    with open_source(path, limits) as source:
        try:
            for row in csv.DictReader(source.lines(), skipinitialspace=True):
                yield {(name or "").strip(): value for name, value in row.items() if isinstance(value, str)}
        except csv.Error as error:
            raise FileError(path, f"not CSV: {error}") from error


def _cell(row: Mapping[str, str], name: str | None) -> float | None:
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
    ends = [seconds for row in _rows(path, limits) if (seconds := _cell(row, "time")) is not None]
    values = {"epoch_s": (ends[-1] - ends[0]) / (len(ends) - 1)} if len(ends) > 1 else {}
    why = f"{path.name} has the time of epochs, and not how many steps an epoch has"
    return _FileSteps([], "", why).source(path, "ultralytics", values)


def read_mllog(path: Path, limits: ReadLimits = LIMITS) -> ImportedSource:
    """Return the mean steps between the entries of an MLPerf log that count samples."""
    batch = 0.0
    marks: list[tuple[float, float]] = []
    with open_source(path, limits) as source:
        for entry in _mllog_entries(source):
            if entry.get("key") == "global_batch_size":
                batch = _number(entry, "value") or batch
            about = entry.get("metadata")
            at, samples = _number(entry, "time_ms"), _number(about if isinstance(about, dict) else {}, "samples_count")
            if at is not None and samples is not None and (not marks or samples > marks[-1][1]):
                marks.append((at, samples))
    times = []
    for (since, first), (until, last) in pairwise(marks):
        steps = round((last - first) / batch) if batch else 0
        if steps > 0 and until > since:
            times.append((round(last / batch), steps, (until - since) * 1e-3 / steps))
    why = f"{path.name} lacks global_batch_size, or two entries with samples_count"
    made_of = "times and samples_count of entries, evaluations between them included"
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
