"""Exports of Nsight Systems as SQLite: each device of each process as a rank, read by the tables that are there.

Steps are NVTX ranges with a number (``ProfilerStep#3``, ``step 3``, ``iteration: 3``), else from one optimizer's step
to the next. Without either, shares of the time from the first to the last kernel are all that is known.
"""

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from steptime.errors import FileError, UsageError
from steptime.imported.imported_run import ImportedSource, ImportedSteps
from steptime.imported.source import LIMITS, ReadLimits, open_source
from steptime.imported.trace_steps import (
    AUTOGRAD,
    COMMUNICATES,
    MARKS,
    DividedSteps,
    TraceParts,
    divided_steps,
    divided_windows,
)
from steptime.imported.transfers import TracedCollectives

SQLITE = "SQLite format 3\0"
_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_COPIES = ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")
_LAUNCHES = "CUPTI_ACTIVITY_KIND_RUNTIME"
_RANGES = "NVTX_EVENTS"
_STRINGS = "StringIds"
_STEP = re.compile(
    r"(?:ProfilerStep#|(?:train(?:ing)?[ _-]?)?(?:step|iter(?:ation)?)[ _:#=-]*)(\d{1,9})\s*$", re.IGNORECASE
)
_SEQUENCE = re.compile(r", seq = \d")
_OF_PROCESS = ~0xFFFFFF
"""The bits of a thread's id that name its process."""
_US = 1e-3
_AT_ONCE = 50_000
_MOST_STRINGS = 5_000_000
_MOST_DEVICES = 4096
Place = tuple[int, int]
"""Process and device."""


def read_nsys(path: Path, limits: ReadLimits = LIMITS) -> ImportedSource:
    """Return the steps of each device of an export.

    Raises FileError where it cannot be read, and UsageError where it has no kernel.
    """
    with open_source(path, limits) as source:
        source.read(len(SQLITE))
    try:
        with closing(_opened(path)) as database:
            return _read(path, database)
    except (sqlite3.Error, OverflowError) as error:
        raise FileError(path, f"it is not a whole SQLite file of Nsight Systems ({error}); export it again") from error


def _opened(path: Path) -> sqlite3.Connection:
    """Open a database such that nothing is written beside it, and nothing in it is run."""
    database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    for pragma in ("query_only = ON", "trusted_schema = OFF", "cell_size_check = ON", "cache_size = -65536"):
        database.execute(f"PRAGMA {pragma}")
    database.text_factory = lambda raw: raw.decode(errors="replace")
    return database


def _read(path: Path, database: sqlite3.Connection) -> ImportedSource:
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    columns = {
        name: _columns(database, name) for name in (_KERNELS, *_COPIES, _LAUNCHES, _RANGES, _STRINGS) if name in tables
    }
    if not {"start", "end"} <= columns.get(_KERNELS, set()):
        message = f"{path} has no kernels ({_KERNELS}); record them: nsys profile --trace=cuda,nvtx"
        raise UsageError(message)
    strings = _strings(database) if {"id", "value"} <= columns.get(_STRINGS, set()) else {}
    parts: dict[Place, TraceParts] = {}
    _take_kernels(database, columns[_KERNELS], strings, parts)
    for table in _COPIES:
        if {"start", "end"} <= columns.get(table, set()):
            for process, device, _, begin, end, _ in _rows(database, table, columns[table]):
                if (process, device) in parts:
                    parts[process, device].add("copy", begin, end)
    if not parts:
        message = f"{path} has no kernel on record ({_KERNELS} is empty)"
        raise UsageError(message)
    _take_launches(database, columns, parts)
    _take_ranges(database, columns, strings, parts)
    return _source(path, [parts[place] for place in sorted(parts)], len({process for process, _ in parts}))


def _columns(database: sqlite3.Connection, table: str) -> set[str]:
    return {str(row[1]) for row in database.execute(f'PRAGMA table_info("{table}")')}


def _strings(database: sqlite3.Connection) -> Mapping[int, str]:
    return dict(database.execute(f"SELECT id, value FROM {_STRINGS} LIMIT {_MOST_STRINGS}"))  # noqa: S608 - of ours


def _rows(
    database: sqlite3.Connection, table: str, columns: set[str], name: str = "NULL"
) -> Iterator[tuple[int, int, int | None, float, float, Any]]:
    """Yield process, device, correlation, begin and end in microseconds, and a further column."""
    process, device, correlation = (
        column if column in columns else default
        for column, default in (("globalPid", "0"), ("deviceId", "0"), ("correlationId", "NULL"))
    )
    names = f'{process}, {device}, {correlation}, start, "end", {name}'
    cursor = database.execute(f"SELECT {names} FROM {table}")  # noqa: S608 - names of ours
    while rows := cursor.fetchmany(_AT_ONCE):
        for own, place, number, start, stop, further in rows:
            if isinstance(start, int) and isinstance(stop, int) and stop >= start:
                yield own or 0, place or 0, number, start * _US, stop * _US, further


def _take_kernels(
    database: sqlite3.Connection, columns: set[str], strings: Mapping[int, str], parts: dict[Place, TraceParts]
) -> None:
    name = next((column for column in ("shortName", "demangledName", "mangledName") if column in columns), "NULL")
    for process, device, number, begin, end, known in _rows(database, _KERNELS, columns, name):
        if (process, device) not in parts and len(parts) >= _MOST_DEVICES:
            continue
        own = parts.setdefault((process, device), TraceParts())
        kernel = strings.get(known, "") if isinstance(known, int) else str(known or "")
        role = "communicate" if COMMUNICATES.search(kernel) else "compute"
        own.add(role, begin, end)
        if role == "communicate":
            own.collectives.setdefault(role, TracedCollectives()).add(kernel, begin, end, {})
        if isinstance(number, int):
            own.kernels.extend((number, begin, end, role == "compute"))


def _take_launches(
    database: sqlite3.Connection, columns: Mapping[str, set[str]], parts: Mapping[Place, TraceParts]
) -> None:
    if not {"start", "end", "correlationId", "globalTid"} <= columns.get(_LAUNCHES, set()):
        return
    processes = _devices_of_processes(parts)
    cursor = database.execute(f"SELECT globalTid, correlationId, start FROM {_LAUNCHES}")  # noqa: S608 - names of ours
    while rows := cursor.fetchmany(_AT_ONCE):
        for thread, number, start in rows:
            if isinstance(thread, int) and isinstance(number, int) and isinstance(start, int):
                for own in _devices_of_thread(thread, processes):
                    own.launches.extend((number, start * _US))


def _take_ranges(
    database: sqlite3.Connection,
    columns: Mapping[str, set[str]],
    strings: Mapping[int, str],
    parts: Mapping[Place, TraceParts],
) -> None:
    """Keep the steps and marks of the processes, from the ranges that programs name."""
    known = columns.get(_RANGES, set())
    if not {"start", "end", "globalTid"} <= known:
        return
    processes = _devices_of_processes(parts)
    texts = ", ".join(column if column in known else "NULL" for column in ("text", "textId"))
    wanted = f'SELECT globalTid, start, "end", {texts} FROM {_RANGES} WHERE "end" IS NOT NULL'  # noqa: S608 - of ours
    cursor = database.execute(wanted)
    while rows := cursor.fetchmany(_AT_ONCE):
        for thread, start, stop, words, words_id in rows:
            name = words if isinstance(words, str) else strings.get(words_id, "")
            if name and isinstance(thread, int) and isinstance(start, int) and isinstance(stop, int):
                for own in _devices_of_thread(thread, processes):
                    _take_range(own, name, start * _US, stop * _US)


def _take_range(own: TraceParts, name: str, begin: float, end: float) -> None:
    if known := _STEP.match(name):
        own.steps[int(known[1])] = (begin, end)
    elif name.startswith(AUTOGRAD):
        own.add("processor backward", begin, end)
    elif role := next((role for start, role in MARKS.items() if name.startswith(start)), ""):
        own.add(role, begin, end)
    elif _SEQUENCE.search(name):
        own.add("processor forward", begin, end)


def _devices_of_processes(parts: Mapping[Place, TraceParts]) -> Mapping[int, Sequence[TraceParts]]:
    processes: dict[int, list[TraceParts]] = {}
    for (process, _), own in parts.items():
        processes.setdefault(process, []).append(own)
    return processes


def _devices_of_thread(thread: int, processes: Mapping[int, Sequence[TraceParts]]) -> Sequence[TraceParts]:
    """Return the devices of a thread's process; of an older export, which names no processes, all."""
    return processes.get(thread & _OF_PROCESS, ()) or processes.get(0, ())


def _source(path: Path, ranks: Sequence[TraceParts], processes: int) -> ImportedSource:
    divided = [divided_steps(own) for own in ranks]
    workers = len(ranks)
    notes = []
    if workers > 1:
        kind = "devices" if processes == 1 else "devices of processes"
        notes.append(f"{workers} {kind} are on record and taken for all ranks, in the order of their numbers")
    steps = [_steps_of_rank(own, rank, workers) for rank, own in enumerate(divided) if own is not None]
    reason = f"{path.name} has no NVTX range with a step's number; mark them: nvtx.range(f'step {{n}}') of torch.cuda"
    hidden = [own.hidden_s for own in divided if own is not None]
    return ImportedSource(
        path,
        "nsys",
        steps or [ImportedSteps([], rank, workers) for rank in range(workers)],
        {"step_s": "NVTX ranges", "parts": "unions of intervals"}
        if steps
        else {"shares": "the time from the first to the last kernel"},
        {"hidden_communication_s": sum(hidden) / len(hidden)} if hidden else _shares(ranks),
        {} if steps else {"step_s": reason},
        notes,
    )


def _steps_of_rank(own: DividedSteps, rank: int, workers: int) -> ImportedSteps:
    return ImportedSteps(own.lines, rank, workers, unseen=own.unseen, trace=own.trace)


def _shares(ranks: Sequence[TraceParts]) -> dict[str, float]:
    """Return how much of the time devices compute, communicate and copy, means over them."""
    sums: dict[str, float] = {}
    for own in ranks:
        span = own.device_span
        if span is None or span[1] <= span[0]:
            continue
        [parts] = divided_windows(own, [span], {})
        shares = {
            "computing_share": parts["compute"],
            "exposed_communication_share": parts["collective"],
            "hidden_communication_share": parts["hidden"],
            "copies_share": parts["copy"],
        }
        for name, lasted in shares.items():
            sums[name] = sums.get(name, 0.0) + lasted / (span[1] - span[0]) / len(ranks)
    return sums
