"""Steps as a trace that Perfetto and chrome://tracing open: one process per worker, one row per phase.

Format: Trace Event Format (Google, "Trace Event Format", 2016): complete events (``ph`` X) with times in
microseconds, and metadata events (``ph`` M) that name processes and rows.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import steptime
from steptime.analysis.ablation.accounts import covered_by
from steptime.analysis.ablation.breakdown import break_down
from steptime.analysis.ablation.form import StepBreakdown
from steptime.analysis.ablation.stages import Array, aligned, uncertainty_s
from steptime.attached.attempts import attempts_of
from steptime.catalog.choices import strategy_named
from steptime.errors import UsageError, choices_message
from steptime.phases import EXCHANGED, IN_TIME, NAMES
from steptime.results.ablation_records import TOGETHER, AblationLaunch
from steptime.results.attached_files import ProcessLines
from steptime.results.attached_lines import StepLine
from steptime.results.jsonlines import json_text
from steptime.results.record_kinds import ABLATION
from steptime.results.store import Store
from steptime.study.trial import Trial
from steptime.user_output import TRACE, write_user_file

Event = dict[str, Any]
Span = tuple[str, float, float, dict[str, Any]]
"""Name, begin and end in seconds, and what is shown when it is clicked on."""

EXCHANGE = "exchange"
"""Waiting and transfer together, where arrivals of workers are closer than their clocks can tell."""
_ROWS = ("step", *NAMES, EXCHANGE)


def export_traces(store: Store, folder: Path, only: str | None = None) -> list[Path]:
    """Write a trace of every trial that was broken down to ``folder`` as ``TRIAL.trace.json``; return the paths.

    Of the run of a user's own command there is one trace, ``attached.trace.json``.

    Of a framework that marks its phases, the trace has the marked steps of the first good ablation launch, on one
    clock; of another it has one step made up of the mean phases, as its name shows.

    Args:
        store: the results.
        folder: is made if it is not there.
        only: id of the one trial to write.

    Raises UsageError when ``only`` is not a trial of the store or nothing was profiled, StoreError as the store does.
    """
    trials = {trial.id: trial for trial in store.trials()}
    if only is None and (recorded := store.attached()):
        return [_export(store, folder / "attached.trace.json", attached_trace(recorded[1].processes))]
    if only is not None and only not in trials:
        raise UsageError(choices_message("trial", only, trials))
    paths = []
    for name in trials if only is None else [only]:
        found = trace(trials[name], store.records(ABLATION, name))
        if found is not None:
            paths.append(_export(store, folder / f"{name}.trace.json", found))
    if not paths:
        what = f"{only} has" if only else f"the trials of {store.path} have"
        message = (
            f"{what} no ablation runs that ended well, so no steps can be shown; run the study with breakdown=true"
        )
        raise UsageError(message)
    return paths


def _export(store: Store, path: Path, found: dict[str, Any]) -> Path:
    write_user_file(path, json_text(found).encode(), TRACE, store.folder_around(path))
    return path


def attached_trace(processes: Sequence[ProcessLines]) -> dict[str, Any]:
    """Return the trace of a user's own script as a JSON object: a process for each rank of each attempt.

    Of forward, update and input the record has durations, and not when they were: they are shown with their step.
    Processes are on one clock where they are of one boot of a host.
    """
    origin = min((each.begin_ns for process in processes for each in process.steps), default=0)
    attempts = attempts_of(processes)
    events: list[Event] = []
    for number, attempt in enumerate(attempts):
        for rank, process in attempt.processes.items():
            name = f"attempt {number}, rank {rank}" if len(attempts) > 1 else f"rank {rank}"
            rows = _attached_rows(process.steps, origin)
            events += _process(len(attempt.ranks) * number + rank, f"{name} on {process.process.host}", rows)
    about = {"steptime": steptime.__version__, "kind": "steps of an attached command"}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def _attached_rows(steps: Sequence[StepLine], origin: int) -> dict[str, list[Span]]:
    rows: dict[str, list[Span]] = {"step": [], "backward": [], EXCHANGE: [], "evaluation": [], "collective": []}
    for step in steps:
        args = {f"{name} ms": value * 1e-6 for name, value in {**step.regions, **step.gaps}.items()}
        rows["step"].append((f"step {step.number}", *_since(origin, step.begin_ns, step.end_ns), args))
        for begin, last, end, synchronised in step.backwards:
            computed = last if synchronised and last else end
            rows["backward"].append(("backward", *_since(origin, begin, computed), {}))
            if computed < end:
                rows[EXCHANGE].append((EXCHANGE, *_since(origin, computed, end), {}))
        if step.apart is not None:
            rows["evaluation"].append(("evaluation", *_since(origin, step.apart.begin_ns, step.apart.end_ns), {}))
        rows["collective"] += [
            (kind, *_since(origin, begin, end), {"bytes": size}) for kind, size, begin, end in step.intervals
        ]
    return {name: spans for name, spans in rows.items() if spans}


def _since(origin: int, begin: int, end: int) -> tuple[float, float]:
    return (begin - origin) * 1e-9, (end - origin) * 1e-9


def trace(trial: Trial, launches: Sequence[AblationLaunch]) -> dict[str, Any] | None:
    """Return the trace of a trial's steps as a JSON object; None without a good ablation launch."""
    good = [launch for launch in launches if launch.status == "ok" and launch.workers]
    taken_apart = break_down(trial, good, []) if good else None
    if taken_apart is None:
        return None
    marked = next((launch for launch in good if all(worker.marked for worker in launch.workers)), None)
    events = list(_marked(trial, marked) if marked else _made_up(taken_apart, trial.workers))
    about = {
        "trial": trial.id,
        "steptime": steptime.__version__,
        "kind": f"marked steps of ablation launch {marked.launch}" if marked else "one step made up of mean phases",
        "clock_uncertainty_us": 1e6 * taken_apart.clock_uncertainty_s,
    }
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def _marked(trial: Trial, launch: AblationLaunch) -> Iterator[Event]:
    workers = launch.workers
    ends = [aligned(worker, worker.marked) for worker in workers]  # of each worker: steps x (start, marks)
    covered = covered_by(workers[0].marks, exchanging="exchange" in workers[0].stages)
    pieces = [aligned(worker, [piece[2:] for piece in worker.transfers]) for worker in workers]
    origin = min(float(times.min()) for times in (*ends, *pieces) if len(times))
    arrivals = _last_arrivals(trial, launch, ends)
    apart_s = uncertainty_s(workers)
    for worker, own, moved in zip(workers, ends, pieces, strict=True):
        rows: dict[str, list[Span]] = {name: [] for name in _ROWS}
        for step, times in enumerate(own - origin):
            args = {"step": step}
            last = None if arrivals is None else arrivals[step] - origin
            rows["step"].append((f"step {step}", times[0], times[-1], args))
            for row, name, begin, end in _phase_spans(covered, times, last, apart_s):
                rows[row].append((name, begin, end, args))
        shown = {name: spans for name, spans in rows.items() if spans}
        names = [(name, size) for name, size, _, _ in worker.transfers]
        shown.update(_lanes((name, *times, {"bytes": size}) for (name, size), times in _paired(names, moved - origin)))
        yield from _process(worker.rank, f"worker {worker.rank} on {worker.host}", shown)


def _last_arrivals(trial: Trial, launch: AblationLaunch, ends: Sequence[Array]) -> list[float] | None:
    """Return when the last worker arrived at the exchange of each step; None if workers do not wait for each other."""
    marks = launch.workers[0].marks
    if len(launch.workers) < 2 or not strategy_named(trial.strategy).synchronous or "exchange" not in marks:  # noqa: PLR2004 - one waits for nothing
        return None
    exchange = marks.index("exchange")
    return [max(times) for times in zip(*(own[:, exchange] for own in ends), strict=True)]


def _phase_spans(
    covered: Sequence[tuple[str, ...]], times: Array, last: float | None, apart_s: float
) -> Iterator[tuple[str, str, float, float]]:
    """Yield row, name, begin and end of what a worker did in one step, between the ``times`` of its marks."""
    for phases, begin, end in zip(covered, times[:-1], times[1:], strict=True):
        if phases == EXCHANGED:
            yield from ((name, name, since, until) for name, since, until in _exchange(begin, end, last, apart_s))
        else:
            yield phases[0], TOGETHER.join(phases), begin, end


def _exchange(begin: float, end: float, last: float | None, apart_s: float) -> list[tuple[str, float, float]]:
    """Split an exchange at the arrival of the last worker, if that came later by more than clocks leave open."""
    if last is None:
        return [("comm_exposed", begin, end)]
    if last - begin < apart_s:
        return [(EXCHANGE, begin, end)]
    arrived = min(last, end)
    return [("sync_wait", begin, arrived), ("comm_exposed", arrived, end)]


def _paired(names: Sequence[tuple[str, int]], times: Any) -> Iterator[tuple[tuple[str, int], tuple[float, float]]]:  # noqa: ANN401 - an array
    for name, (ready, done) in zip(names, times, strict=True):
        yield name, (float(ready), float(done))


def _lanes(spans: Iterable[Span]) -> dict[str, list[Span]]:
    """Spread pieces that are under way at the same time over rows, each into the first that is free."""
    lanes: list[list[Span]] = []
    for span in sorted(spans, key=lambda each: each[1]):
        free = next((lane for lane in lanes if lane[-1][2] <= span[1]), None)
        if free is None:
            lanes.append([span])
        else:
            free.append(span)
    return {f"transfer {number}": lane for number, lane in enumerate(lanes, 1)}


def _made_up(found: StepBreakdown, workers: int) -> Iterator[Event]:
    """One step of which every phase lasts as long as it does on average, one after the other; negative ones do not."""
    at, rows = 0.0, {}
    for name in IN_TIME:
        phase = found.phases.get(name)
        if phase is None or phase.value_s <= 0.0:
            continue
        args = {"how": phase.how, "low_us": _micro(phase.low_s), "high_us": _micro(phase.high_s)}
        rows[name] = [(f"{name} (mean)", at, at + phase.value_s, args)]
        at += phase.value_s
    step: Span = ("step made up of mean phases", 0.0, at, {"mean_step_us": _micro(found.step_s.value_s)})
    who = "worker" if workers == 1 else f"mean of {workers} workers"
    yield from _process(0, f"{who}: made up of mean phases, not recorded", {"step": [step], **rows})


def _process(pid: int, name: str, rows: dict[str, list[Span]]) -> Iterator[Event]:
    yield _named("process_name", pid, 0, {"name": name})
    yield _named("process_sort_index", pid, 0, {"sort_index": pid})
    for tid, (row, spans) in enumerate(rows.items(), 1):
        yield _named("thread_name", pid, tid, {"name": row})
        yield _named("thread_sort_index", pid, tid, {"sort_index": tid})
        category = "transfer" if row.startswith("transfer") else "phase"
        reached = 0.0
        for title, begin, end, args in spans:
            # Nanoseconds are fine enough, and a span must not begin before the one in front of it has ended.
            since = max(reached, round(1e6 * begin, 3))
            reached = max(since, round(1e6 * end, 3))
            duration = round(reached - since, 3)
            yield {"name": title, "cat": category, "ph": "X", "ts": since, "dur": duration, "pid": pid, "tid": tid} | {
                "args": args
            }


def _named(kind: str, pid: int, tid: int, args: dict[str, Any]) -> Event:
    return {"name": kind, "ph": "M", "ts": 0, "dur": 0, "pid": pid, "tid": tid, "args": args}


def _micro(value_s: float | None) -> float | None:
    return None if value_s is None else round(1e6 * value_s, 3)
