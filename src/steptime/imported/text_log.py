"""Text logs of trainings as steps, by the rows of ``log_forms``."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isfinite, prod
from pathlib import Path

import numpy as np

from steptime.errors import UsageError
from steptime.imported.imported_run import LARGEST_STEP, LONGEST_STEP_S, PARTS, ImportedSource, ImportedSteps, mean_step
from steptime.imported.log_forms import LOG_FORMS, TIMERS, UNITS, WAYS, LogForm
from steptime.imported.slow_ranks import SlowRanks
from steptime.imported.source import LIMITS, ReadLimits, open_source
from steptime.results.attached_lines import StepLine

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?")
_WHOLE = re.compile(r"\d+")
_MOST_FACTS = 10_000
"""Characters of a line that is looked at for a fact."""
_UNDIVIDED = "the log does not divide its steps"


@dataclass
class _ReadEntries:
    """What was read so far."""

    form: LogForm
    facts: dict[str, float] = field(default_factory=dict)
    runs: list[list[dict[str, float]]] = field(default_factory=lambda: [[]])
    """Entries; a step number that does not grow begins a further run of the training."""
    first_at: str = ""
    ambiguous: bool = False
    slow_ranks: SlowRanks = field(default_factory=SlowRanks)
    timers: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Of each, the sum of its seconds and how often it was printed."""

    def take(self, line: str) -> None:
        """Read a line."""
        if self.form.mark in line:
            if self.form.leaves_out is None or self.form.leaves_out not in line:
                self._take_entry(line)
            return
        line = line[:_MOST_FACTS]
        self.slow_ranks.take(line)
        if self.form.timers and TIMERS in line:
            self._take_timers(line)
        if self.form.ambiguous and self.form.ambiguous[0] in line:
            self.ambiguous = True
        for pattern in self.form.facts:
            if known := pattern.search(line):
                self.facts.update(_numbers(known))

    def _take_entry(self, line: str) -> None:
        values: dict[str, float] = {}
        for pattern in self.form.fields:
            if known := pattern.search(line):
                values = {**_numbers(known), **values}
        if "step" not in values or not 0 <= values["step"] <= LARGEST_STEP:
            return
        if (at := _TIME.search(line)) is not None:
            moment = _moment(at)
            values["at_s"] = moment.timestamp() if moment else float("nan")
            self.first_at = self.first_at or (moment.isoformat() if moment else "")
        run = self.runs[-1]
        if run and values.get("printed_by") != run[0].get("printed_by"):
            return  # another rank prints the same
        if run and values["step"] == run[-1]["step"]:
            return
        if run and values["step"] < run[-1]["step"]:
            run = []
            self.runs.append(run)
        run.append({**self.facts, **values})

    def _take_timers(self, line: str) -> None:
        for pattern in self.form.timers:
            if known := pattern.search(line):
                for name, milliseconds in _numbers(known).items():
                    seconds, count = self.timers.get(name, (0.0, 0))
                    self.timers[name] = (seconds + milliseconds * UNITS["ms"], count + 1)

    @property
    def workers(self) -> int | None:
        """How many train together, by what the log has."""
        known = self.facts.get("workers")
        if known is None and {"global_batch", "local_batch"} <= self.facts.keys() and self.form.covers == "all":
            known = self.facts["global_batch"] / self.facts["local_batch"] if self.facts["local_batch"] else None
        whole = known is not None and 1 <= known <= LARGEST_STEP and known == round(known)
        return round(known) if known is not None and whole else None


def _numbers(known: re.Match[str]) -> dict[str, float]:
    values = {}
    for name, text in known.groupdict().items():
        if text is None:
            continue
        if name in {"mesh", "degrees"}:  # of each kind of parallelism
            values["workers"] = float(prod(int(size) for size in _WHOLE.findall(text)))
            continue
        value = float(text.replace(",", ""))
        if isfinite(value):
            values["s" if name == "ms" else name] = value * UNITS.get(name, 1.0)
    return values


def _moment(known: re.Match[str]) -> datetime | None:
    *parts, fraction = known.groups()
    year, month, day, hour, minute, second = map(int, parts)
    try:
        return datetime(year, month, day, hour, minute, second, int((fraction or "0").ljust(6, "0")), UTC)
    except ValueError:
        return None


def form_of_log(head: str) -> LogForm | None:
    """Return the form of a log by its beginning; None if it has no entry of any."""
    for form in LOG_FORMS.values():
        if form.mark in head:
            for line in head.splitlines():
                if form.mark in line and form.fields[0].search(_COLOUR.sub("", line)) is not None:
                    return form
    return None


def read_log(path: Path, form: LogForm, limits: ReadLimits = LIMITS) -> ImportedSource:
    """Return what a log has of its training.

    Raises FileError where it cannot be read, and UsageError where it has no entry.
    """
    read = _ReadEntries(form)
    with open_source(path, limits) as source:
        for line in source.lines():
            read.take(_COLOUR.sub("", line) if "\x1b" in line else line)
    if not read.runs[0]:
        message = f"{path} is {form.about}, and has no line with {form.mark!r} and the number of a step"
        raise UsageError(message)
    way, reason = _way(read)
    runs = [list(_steps(read, run, way)) for run in read.runs] if way else []
    workers, begin_ns, processes = read.workers, 0, []
    for steps in runs:
        if steps:
            moved = [_moved(step, begin_ns) for step in steps]
            unseen = dict.fromkeys(PARTS, _UNDIVIDED)
            processes.append(ImportedSteps(moved, 0, workers, begin_ns=begin_ns, unseen=unseen))
            begin_ns = moved[-1].end_ns
    if way and not processes:
        reason = f"{path.name} has too few entries for it"
    unknown = {} if processes else {"step_s": reason}
    if workers is None:
        unknown["workers"] = f"{path.name} does not have how many workers train"
    means = any(step.flags for process in processes for step in process.steps)
    notes = [
        *read.slow_ranks.sentences(),
        *form.notes,
        *(["entries are means over several steps: single steps vary more"] if means else []),
    ]
    figures = {"step_s": WAYS[way].source} if processes and way else {}
    figures |= dict.fromkeys(read.timers, "timers of the log, means of its lines")
    return ImportedSource(
        path, form.name, processes, figures, _means(read), unknown, notes, began_at=read.first_at
    )  # fmt: skip


def _moved(step: StepLine, begin_ns: int) -> StepLine:
    return StepLine(step.number, step.begin_ns + begin_ns, step.duration_ns, flags=step.flags)


def _way(read: _ReadEntries) -> tuple[str | None, str]:
    """Return the name of the way to the time of a step, or None and why there is none."""
    if read.ambiguous and read.form.ambiguous:
        return None, read.form.ambiguous[1]
    entries = max(read.runs, key=len)
    last = entries[-1]
    known = last.keys() | ({"since_s", "steps"} if "at_s" in last and len(entries) > 1 else set())
    way = next((name for name in read.form.ways if known >= set(WAYS[name].needs)), None)
    if way is not None:
        return way, ""
    lacking = {name for each in read.form.ways for name in WAYS[each].needs} - known - {"since_s", "steps", "s"}
    return None, f"the log does not have {', '.join(sorted(lacking)) or 'times'}, which the time of a step needs"


def _steps(read: _ReadEntries, run: Sequence[dict[str, float]], way: str) -> Iterator[StepLine]:
    """Yield the entries of a run as steps, one behind the other."""
    at_ns = 0
    covers = read.form.covers
    taken = run[-1:] if covers == "all" else run
    gap = int(run[1]["step"] - run[0]["step"]) if len(run) > 1 else 1
    before: dict[str, float] | None = None
    for entry in taken:
        steps = int(entry["step"] - before["step"]) if before else min(gap, int(entry["step"]) or 1)
        values = {**entry, "steps": steps}
        if before and "at_s" in entry and "at_s" in before:
            values["since_s"] = entry["at_s"] - before["at_s"]
        before = entry
        if not set(WAYS[way].needs) <= values.keys():
            continue
        try:
            seconds = WAYS[way].seconds(values)
        except ZeroDivisionError:
            continue
        if not 0.0 < seconds <= LONGEST_STEP_S:
            continue
        count = {"one": 1, "since": steps, "several": 0, "all": int(entry["step"])}[covers]
        count = steps if way == "lines" else count
        step = mean_step(int(entry["step"]), at_ns, seconds, count)
        yield step
        at_ns = step.end_ns


def _means(read: _ReadEntries) -> dict[str, float]:
    """Return what else entries have, as means."""
    names = ("global_batch", "samples_per_s", "worker_samples_per_s", "worker_tokens_per_s", "tflops")
    entries = [entry for run in read.runs for entry in run]
    by_name = {name: [entry[name] for entry in entries if name in entry] for name in names}
    timed = {name: total / count for name, (total, count) in read.timers.items()}
    return {**{name: float(np.mean(values)) for name, values in by_name.items() if values}, **timed}
