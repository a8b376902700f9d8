"""Records of collectives alone: dumps of PyTorch's flight recorder, and logs of the NCCL Inspector.

Neither has steps. A flight recorder shows how far each rank has come in each process group, and so who is behind; the
Inspector how long each collective took on each rank, of which the least over ranks is transfer and the rest waiting.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

from typing_extensions import TypeIs

from steptime.errors import FileError, UsageError
from steptime.imported.binary_dump import read_binary_object
from steptime.imported.imported_run import LARGEST_STEP, ImportedSource, ImportedSteps
from steptime.imported.source import LIMITS, ReadLimits, SourceFile, open_source, read_object
from steptime.imported.transfers import CollectiveRecords
from steptime.units import format_bytes

_FILE_RANK = re.compile(r"(?:rank|dump|trace|fr)?[-_.]?(\d{1,7})(?:\.\w+)*$")
_NO_STEPS = "{name} has collectives alone, and no steps"
_MOST_SHOWN = 4
"""Process groups in notes."""


def read_flight_recorder(path: Path, limits: ReadLimits = LIMITS) -> ImportedSource:
    """Return what a JSON dump of PyTorch's flight recorder has of one rank.

    Raises FileError where it cannot be read, and UsageError where it is not an object of JSON.
    """
    return _of_dump(path, read_object(path, limits))


def read_binary_flight_recorder(path: Path, limits: ReadLimits = LIMITS) -> ImportedSource:
    """Return the same of a dump in Python's binary form, as PyTorch writes it; raises as ``read_binary_object``."""
    return _of_dump(path, read_binary_object(path, limits))


def _of_dump(path: Path, dump: Mapping[str, Any]) -> ImportedSource:
    entries = [entry for entry in _list(dump.get("entries")) if isinstance(entry, dict)]
    rank, workers = _rank_of(path), _world(dump.get("pg_config"))
    enqueued, notes = _enqueued(entries, dump.get("pg_status"))
    notes = [f"rank {rank}: {note}" for note in notes]
    seconds = [lasted * 1e-3 for entry in entries if _is_time(lasted := entry.get("duration_ms"))]
    unknown = {"step_s": _NO_STEPS.format(name=path.name)}
    unknown |= {} if seconds else {"communication_s": "no entry has a duration; set TORCH_NCCL_ENABLE_TIMING=1"}
    values = {"recorded_collectives": float(len(entries)), **({"communication_s": sum(seconds)} if seconds else {})}
    return ImportedSource(
        path,
        "flight-recorder",
        [ImportedSteps([], rank if workers is None or rank < workers else 0, workers)],
        {"recorded_collectives": "entries", **({"communication_s": "duration_ms of entries"} if seconds else {})},
        values,
        unknown,
        notes,
        collectives=CollectiveRecords(rank, enqueued),
    )


def _enqueued(entries: Sequence[Mapping[str, Any]], status: Any) -> tuple[dict[str, int], list[str]]:  # noqa: ANN401 - whatever a file has
    """Return how many collectives were enqueued by process group, and notes on those that were not completed.

    Messages between two ranks count by rank: of groups with such nothing is compared.
    """
    if not entries:
        return {}, ["its flight recorder has no collective on record"]
    single = {_group_of(entry) for entry in entries if entry.get("is_p2p")}
    known = status if isinstance(status, dict) else {}
    enqueued: dict[str, int] = {}
    unfinished = []
    for pg_id, name in {_whole(entry.get("pg_id")): _group_of(entry) for entry in entries}.items():
        of_group = known.get(str(pg_id))
        of_group = of_group if isinstance(of_group, dict) else {}
        numbers = [_whole(entry.get("collective_seq_id")) or 0 for entry in entries if _group_of(entry) == name]
        count = max([_whole(of_group.get("last_enqueued_collective")) or 0, *numbers])
        completed = _whole(of_group.get("last_completed_collective"))
        if completed is not None and 0 <= completed < count:
            unfinished.append(f"{count - completed} of {name} from number {completed + 1}")
        if name not in single:
            enqueued[name] = count
    shown = ", ".join(unfinished[:_MOST_SHOWN])
    return enqueued, [f"enqueued and not completed: {shown}"] if unfinished else []


def read_inspector(path: Path, limits: ReadLimits = LIMITS) -> ImportedSource:
    """Return what a log of the NCCL Inspector has of one process; raises as ``read_flight_recorder`` does."""
    seconds: dict[tuple[str, int], float] = {}
    moved: dict[str, list[float]] = {}
    rank, workers, host = 0, 0, ""
    with open_source(path, limits) as source:
        for entry in _objects(source):
            header, own, about = (entry.get(key) for key in ("header", "coll_perf", "metadata"))
            if not isinstance(header, dict) or not isinstance(own, dict):
                continue
            number, lasted = _whole(own.get("coll_sn")), own.get("coll_exec_time_us")
            if number is None or not _is_time(lasted):
                continue
            seconds[f"{header.get('id')} {own.get('coll')}", number] = lasted * 1e-6
            if _is_time(rate := own.get("coll_busbw_gbs")):
                moved.setdefault(str(own.get("coll")), []).append(rate * 1e9)
            if (count := _whole(header.get("n_ranks")) or 0) > workers:  # the largest communicator is of all
                rank, workers = _whole(header.get("rank")) or 0, count
            host = str(about.get("hostname", host)) if isinstance(about, dict) else host
    if not seconds or not 0 <= rank < workers <= LARGEST_STEP:
        message = f"{path} is a log of the NCCL Inspector without a collective of a rank (coll_exec_time_us)"
        raise UsageError(message)
    values = {"recorded_collectives": float(len(seconds)), "communication_s": sum(seconds.values())}
    values |= {f"{kind}_bus_bytes_per_s": sum(rates) / len(rates) for kind, rates in sorted(moved.items())}
    return ImportedSource(
        path,
        "nccl-inspector",
        [ImportedSteps([], rank, workers, host=host)],
        {"communication_s": "coll_exec_time_us"},
        values,
        {"step_s": _NO_STEPS.format(name=path.name)},
        collectives=CollectiveRecords(rank, {}, seconds),
    )


def with_ranks_compared(sources: Sequence[ImportedSource]) -> list[ImportedSource]:
    """Return sources with what records of several ranks show together: who is behind, and what is waiting."""
    records = [source.collectives for source in sources if source.collectives is not None]
    if len(records) < 2 or len({own.rank for own in records}) < len(records):  # noqa: PLR2004 - ranks to compare
        return list(sources)
    behind = list(_behind(records))
    least: dict[tuple[str, int], list[float]] = {}
    for own in records:
        for key, lasted in own.seconds.items():
            least.setdefault(key, []).append(lasted)
    shared = {key: min(times) for key, times in least.items() if len(times) > 1}
    compared = []
    for source in sources:
        own_s = source.collectives.seconds if source.collectives is not None else {}
        transfer = sum(shared[key] for key in own_s if key in shared)
        waiting = sum(lasted - shared[key] for key, lasted in own_s.items() if key in shared)
        values = {"transfer_s": transfer, "waiting_s": waiting} if transfer else {}
        made_of = dict.fromkeys(values, "least time of each collective over the ranks on record, and the rest")
        notes = [*source.notes, *behind] if source is sources[0] else source.notes
        compared.append(
            replace(source, values={**source.values, **values}, figures={**source.figures, **made_of}, notes=notes)
        )
    return compared


def _behind(records: Sequence[CollectiveRecords]) -> Iterator[str]:
    """Yield in which process groups some ranks have enqueued fewer collectives than others."""
    names = dict.fromkeys(name for own in records for name in own.enqueued)
    lines = []
    for name in names:
        counts = {own.rank: own.enqueued[name] for own in records if name in own.enqueued}
        if len(set(counts.values())) > 1:
            least, most = min(counts.values()), max(counts.values())
            ranks = ", ".join(str(rank) for rank, count in sorted(counts.items()) if count == least)
            lines.append((most - least, f"{name}: rank {ranks} enqueued {least} collectives, others up to {most}"))
    yield from (line for _, line in sorted(lines, reverse=True)[:_MOST_SHOWN])


def _group_of(entry: Mapping[str, Any]) -> str:
    group = entry.get("process_group")
    return " ".join(map(str, group[:2])) if isinstance(group, (list, tuple)) else str(group)


def _rank_of(path: Path) -> int:
    known = _FILE_RANK.search(path.name)
    return int(known[1]) if known else 0


def _world(configuration: Any) -> int | None:  # noqa: ANN401 - whatever a file has
    """Return how many ranks the largest process group has."""
    groups = configuration.values() if isinstance(configuration, dict) else ()
    sizes = [str(group.get("ranks", "")).count(",") + 1 for group in groups if isinstance(group, dict)]
    return max(sizes, default=None)


def _objects(source: SourceFile) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a file, one a line or over several lines."""
    pending = ""
    for line in source.lines():
        pending += line
        if line == "}" or (line.startswith("{") and line.endswith("}")):
            try:
                value = json.loads(pending)
            except (ValueError, RecursionError):
                pending = "" if line.startswith("{") else pending
                continue
            pending = ""
            if isinstance(value, dict):
                yield value
        if len(pending) > source.limits.line:
            raise FileError(source.path, f"an object is longer than {format_bytes(source.limits.line)}")


def _list(value: Any) -> Sequence[Any]:  # noqa: ANN401 - whatever a file has
    return value if isinstance(value, list) else []


def _whole(value: Any) -> int | None:  # noqa: ANN401 - whatever a file has
    """Return a count, which dumps write as a number or as text."""
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) < 19:  # noqa: PLR2004 - 64 bits
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else None


def _is_time(value: Any) -> TypeIs[float]:  # noqa: ANN401 - whatever a file has
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e12 and isfinite(value)  # noqa: PLR2004 - hours
