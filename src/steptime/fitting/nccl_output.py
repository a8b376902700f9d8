"""Reading what nccl-tests and rccl-tests print or write as JSON: every table of all-reduces, and what is passed over.

A file may hold several runs, of other operations too, with what launchers and NCCL's log put before and into lines.
https://github.com/NVIDIA/nccl-tests, ``doc/PERFORMANCE.md``: of n bytes in t seconds among P ranks, ``algbw`` is n/t
and ``busbw`` is ``2(P-1)/P n/t``, the bytes per second over each link of a ring.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from steptime.errors import FileError, UsageError
from steptime.fitting.nccl_row import CALL_TIMES, LARGEST, Columns, NcclRow, checked_time, columns_in, measured
from steptime.units import PrintedNumber, format_count
from steptime.user_file import read_user_text

_MOST_BYTES = 16 * 1024**2
_LONGEST_LINE = 2000
"""Characters of a line that are looked at; the lines of nccl-tests have at most 200 behind a launcher's prefix."""
_RANK = re.compile(r"Rank\s+(\d{1,7})\s(?:\s*Group\s+(\d{1,7})\s)?.*?\bon\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*)")
_DEVICES = re.compile(r"nThread\s+(\d{1,5})\s+nGpus\s+(\d{1,5})")
_OPERATION = re.compile(r"\b([a-z]\w*)_perf\b")
_BEGINS = re.compile(r"nThread\s|Using devices|Collective test starting")
_FAILED = re.compile(r"Out of bounds values\s*:\s*(\d+)\s+FAILED")
_ROW = re.compile(r"(?<![\w.])(\d+)\s+(\d+)\s+([a-z]\w+)\s+(sum|prod|max|min|avg|mulsum|none)\s+(\S.*)$")
_UNREDUCED = re.compile(r"(?<![\w.])(\d+)\s+(\d+)\s+([a-z]\w+)((?:\s+-?[\d.]\S*){3,}.*)$")
"""A row of an operation that reduces nothing, in old versions without a word for it."""
_INTERRUPTED = re.compile(r"NCCL (?:INFO|WARN)|:\d+:\d+ \[\d+\]")
_ALL_REDUCE = "all_reduce"
_PIPES = 4
"""So many bars make a line one of a Markdown table."""
_ROUNDING = 0.02
_FOREIGN = {
    r"OSU\b.*\bTest\b": "it is the output of OSU's micro-benchmarks, which name neither ranks nor hosts",
    r"(?m)^\W*payload\s*\|\s*(?:busbw|algbw)": "it is a table of payloads, which names neither ranks nor times",
}
"""Output of other benchmarks, by words that no other has, and what it lacks."""
_MOST_RANKS = 1_000_000
_SHOWN = 60


@dataclass(frozen=True)
class NcclTable:
    """What one run of ``all_reduce_perf`` measured."""

    name: str
    """Of its file, with the number of the table if the file has several."""
    ranks: int
    hosts: int
    device: str | None
    rows: tuple[NcclRow, ...]
    """By size."""
    passed_over: tuple[str, ...] = ()
    """What else the file has and is not used, in sentences; of the file's first table."""

    def bus_rate(self, row: NcclRow) -> float:
        """Return the ``busbw`` of a row, bytes per second."""
        return 2 * (self.ranks - 1) / self.ranks * row.size / row.seconds


def read_nccl_tests(paths: Sequence[Path]) -> list[NcclTable]:
    """Return the tables of files; raises UsageError with every line that is wrong."""
    found: list[NcclTable] = []
    wrong: list[str] = []
    for path in paths:
        try:
            found += parse_nccl_tests(read_user_text(path, _MOST_BYTES), str(path))
        except FileError as error:
            wrong.append(f"--nccl-tests: {path} cannot be read ({error.reason})")
        except UsageError as error:
            wrong += error.mistakes
    if wrong:
        raise UsageError(wrong)
    return found


def parse_nccl_tests(text: str, name: str) -> list[NcclTable]:
    """Return the tables of all-reduces in a text.

    Rows of 0 bytes and of another operation, rows that are cut or interrupted, and tables whose values were wrong are
    passed over; the first table names what was.

    Raises UsageError with every line that is wrong, or if no table is left.
    """
    found = _FoundBeside(name)
    runs = _runs_of_json(text, found) if text.lstrip("\ufeff \t\r\n").startswith("{") else _runs_of_lines(text, found)
    tables = [table for run in runs for table in run.tables(found)]
    if not tables and not found.wrong:
        if lacking := next((lacks for form, lacks in _FOREIGN.items() if re.search(form, text)), None):
            found.wrong.append(f"{found.place}: {lacking}; run all_reduce_perf of nccl-tests, or steptime net")
        elif found.passed_over:
            found.wrong += found.passed_over
        else:
            found.wrong.append(
                f"{found.place}: it has no row of a table; paste what all_reduce_perf printed, with its lines "
                "'SIZE COUNT TYPE REDOP TIME ALGBW BUSBW'"
            )
    if found.wrong:
        raise UsageError(list(dict.fromkeys(found.wrong)))
    if len(tables) > 1:
        tables = [replace(table, name=f"{name}, table {number}") for number, table in enumerate(tables, 1)]
    return [replace(tables[0], passed_over=tuple(dict.fromkeys(found.passed_over))), *tables[1:]]


@dataclass
class _FoundBeside:
    """What was found in a file beside its tables."""

    name: str
    wrong: list[str] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)

    @property
    def place(self) -> str:
        return f"--nccl-tests: {self.name}"


@dataclass(frozen=True)
class _RowOfRun:
    """One row, with what must be equal for two rows to be of one table."""

    line: int
    kind: tuple[str, str]
    """Reduction and type."""
    row: NcclRow
    bus_ratio: float | None
    """``busbw`` over ``algbw``; None if both are too small to tell."""
    wrong_values: bool


class _ListedRank(NamedTuple):
    """A line of the list of devices."""

    rank: int
    host: str
    device: str
    group: int = 0
    """Of the communicators into which NCCL_TESTS_SPLIT divides ranks."""


@dataclass
class _NcclRun:
    """One run, or several whose lines are mixed because they were started together without MPI."""

    operation: str | None = None
    per_process: int = 1
    ranks: list[_ListedRank] = field(default_factory=list)
    columns: Columns | None = None
    """By the header of its rows; None if the header was left out."""
    rows: list[_RowOfRun] = field(default_factory=list)
    failed: bool = False
    passed_rows: int = 0
    """Rows of another operation."""

    def tables(self, found: _FoundBeside) -> Iterator[NcclTable]:
        """Yield the tables of all-reduces; what is passed over or wrong is added to ``found``."""
        if self.passed_rows:
            kind = (
                f"of {self.operation}_perf" if self.operation else "that reduce nothing (all_gather_perf or the like)"
            )
            found.passed_over.append(f"{found.place}: {self.passed_rows} rows {kind} are not used; all_reduce_perf is")
        if not self.rows:
            return
        if self.failed or any(each.wrong_values for each in self.rows):
            found.passed_over.append(
                f"{found.place}, line {self.rows[0].line}: the table has wrong values (#wrong, or 'Out of bounds "
                "values: FAILED'), so that its times prove nothing; it is not used"
            )
            return
        groups = self._groups(found)
        for number, listed in enumerate(groups):
            ranks = _of_one_communicator(listed, found)
            rows = self._rows_of(number, len(groups), found)
            table = _table(found, ranks, rows, self.per_process) if ranks is not None else None
            if table is not None:
                yield table

    def _groups(self, found: _FoundBeside) -> list[list[_ListedRank]]:
        """Return the ranks of each of the mixed runs: every one is alone on its host."""
        if max(Counter(each.rank for each in self.ranks).values(), default=1) == 1:
            return [self.ranks]
        if all(each.rank == 0 for each in self.ranks):
            found.wrong.append(
                f"{found.place}: each of {len(self.ranks)} processes ran alone, as rank 0, as mpirun starts them if "
                "nccl-tests was built without MPI=1; build it with MPI=1"
            )
            return []
        by_host: dict[str, list[_ListedRank]] = {}
        for each in self.ranks:
            by_host.setdefault(each.host, []).append(each)
        for ranks in by_host.values():
            if sorted(each.rank for each in ranks) != list(range(len(ranks))):
                found.wrong.append(
                    f"{found.place}: the lines of several runs are mixed; give each run a file of its own, or build "
                    "nccl-tests with MPI=1 if one mpirun started all of them"
                )
                return []
        found.passed_over.append(
            f"{found.place}: ranks are listed more than once: {len(by_host)} runs of one host each, as mpirun starts "
            "them if nccl-tests was built without MPI=1, and no run over all hosts"
        )
        return list(by_host.values())

    def _rows_of(self, number: int, runs: int, found: _FoundBeside) -> list[_RowOfRun]:
        """Return the rows of one run, of one reduction and type: sums where there are some."""
        kinds = list(dict.fromkeys(each.kind for each in self.rows))
        chosen = next((kind for kind in kinds if kind[0] == "sum"), kinds[0])
        others = [" of ".join(kind) for kind in kinds if kind != chosen]
        if others:
            found.passed_over.append(
                f"{found.place}: rows of {', '.join(others)} are not used; {' of '.join(chosen)} are"
            )
        seen: Counter[int] = Counter()
        rows = []
        for each in (each for each in self.rows if each.kind == chosen):
            if seen[each.row.size] % runs == number:
                rows.append(each)
            seen[each.row.size] += 1
        return rows


def _runs_of_lines(text: str, found: _FoundBeside) -> list[_NcclRun]:
    runs = [_NcclRun()]
    for number, whole in enumerate(text.splitlines(), 1):
        line = whole[:_LONGEST_LINE]
        if line.count("|") >= _PIPES:
            line = line.replace("|", " ")
        device = _RANK.search(line)
        if (_BEGINS.search(line) or (device and int(device[1]) == 0)) and (runs[-1].rows or runs[-1].passed_rows):
            runs.append(_NcclRun())
        run = runs[-1]
        if device:
            run.ranks.append(_ListedRank(int(device[1]), device[3], device[4].strip(), int(device[2] or 0)))
        else:
            _read_line(run, line, number, found)
    return runs


def _read_line(run: _NcclRun, line: str, number: int, found: _FoundBeside) -> None:
    """Add what a line has that lists no device."""
    if operation := _OPERATION.search(line):
        if not (run.rows or run.passed_rows):
            run.operation = operation[1]
    elif columns := columns_in(line):
        run.columns = columns
    elif failed := _FAILED.search(line):
        run.failed = run.failed or int(failed[1]) > 0
    elif row := _ROW.search(line):
        _add_row(run, row, number, found)
    elif _UNREDUCED.search(line):
        run.passed_rows += 1
    if devices := _DEVICES.search(line):
        run.per_process = int(devices[1]) * int(devices[2])


def _add_row(run: _NcclRun, row: re.Match[str], number: int, found: _FoundBeside) -> None:
    size_text, _, kind, reduction, rest = row.groups()
    if run.operation not in (None, _ALL_REDUCE) or reduction == "none":
        run.passed_rows += 1
        return
    place = f"{found.place}, line {number}"
    if _INTERRUPTED.search(row.string):
        found.passed_over.append(f"{place}: the row is interrupted by NCCL's log and not used")
        return
    mistake = run.columns.mistake if run.columns else None
    if mistake or len(size_text) > len(f"{LARGEST:.0f}"):
        too_long = f"{place}: {size_text[:_SHOWN]}… is not a number of bytes"
        found.wrong.append(f"{found.place}: {mistake}" if mistake else too_long)
        return
    size = int(size_text)
    if size == 0:
        return  # the smallest sizes of a run have less than one element for each rank
    try:
        taken = measured(size, rest.split(), run.columns)
    except ValueError as error:
        found.wrong.append(f"{place}: {error}")
        return
    if taken is None:
        found.passed_over.append(f"{place}: the row ends before its time and rates, and is not used")
        return
    run.rows.append(_RowOfRun(number, (reduction, kind), taken.row, taken.bus_ratio, taken.wrong_values))


def _runs_of_json(text: str, found: _FoundBeside) -> list[_NcclRun]:
    """Return the run that ``-J`` wrote, by the keys of ``src/util.cu``."""
    try:
        whole = json.loads(text.lstrip("\ufeff"))
        run = _NcclRun(
            operation=next((name[1] for word in whole.get("args", ()) if (name := _OPERATION.search(word))), None)
        )
        config = whole.get("config", {})
        run.per_process = int(config.get("nthreads", 1)) * int(config.get("ngpus", 1))
        run.ranks = [
            _ListedRank(int(each["rank"]), each["hostname"], each["device_info"], int(each.get("group", 0)))
            for each in whole.get("devices", ())
        ]
        if not run.ranks and "ranks" in config:
            run.ranks = [_ListedRank(rank, "", "") for rank in range(min(int(config["ranks"]), _MOST_RANKS))]
        run.failed = int(whole.get("out_of_bounds", {}).get("count", 0)) > 0
        for number, each in enumerate(whole["results"], 1):
            _add_result(run, each, number, found)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        found.wrong.append(
            f"{found.place}: it is not JSON of nccl-tests ({type(error).__name__}: {str(error)[:_SHOWN]})"
        )
        return []
    return [run]


def _add_result(run: _NcclRun, result: dict[str, Any], number: int, found: _FoundBeside) -> None:
    size = int(result["size"])
    if run.operation not in (None, _ALL_REDUCE):
        run.passed_rows += 1
        return
    parts = [part for name in ("out_of_place", "in_place") if (part := result.get(name))]
    if size == 0 or not parts:
        return
    if any("cpu_time" in part for part in parts):
        found.wrong.append(f"{found.place}: {CALL_TIMES}")
        return
    try:
        numbers = [[PrintedNumber(float(part[name])) for name in ("time", "alg_bw")] for part in parts]
        buses = [bus if isinstance(bus := part.get("bus_bw"), int | float) else math.nan for part in parts]
        pairs = [
            checked_time(size, time, rate, PrintedNumber(bus)) for (time, rate), bus in zip(numbers, buses, strict=True)
        ]
    except ValueError as error:
        found.wrong.append(f"{found.place}, result {number}: {error}")
        return
    row = NcclRow(size, pairs[0][0], pairs[1][0] if len(pairs) > 1 else None)
    wrong = any((part.get("nwrong") or 0) > 0 for part in parts)
    run.rows.append(_RowOfRun(number, (str(result["redop"]), str(result["type"])), row, pairs[-1][1], wrong))


def _of_one_communicator(ranks: list[_ListedRank], found: _FoundBeside) -> list[_ListedRank] | None:
    """Return the ranks of one of the groups that NCCL_TESTS_SPLIT makes, numbered anew; None of unequal ones."""
    groups: dict[int, list[_ListedRank]] = {}
    for each in ranks:
        groups.setdefault(each.group, []).append(each)
    if len(groups) < 2:  # noqa: PLR2004 - all ranks are of one communicator
        return ranks
    shapes = {(len(own), len({each.host for each in own})) for own in groups.values()}
    if len(shapes) > 1:
        sizes = ", ".join(f"{size} ranks on {format_count(hosts, 'host')}" for size, hosts in sorted(shapes))
        found.wrong.append(f"{found.place}: its groups (NCCL_TESTS_SPLIT) differ: {sizes}; give each a run of its own")
        return None
    [(size, hosts)] = shapes
    found.passed_over.append(
        f"{found.place}: {len(groups)} groups of {size} ranks on {format_count(hosts, 'host')} ran at once "
        "(NCCL_TESTS_SPLIT); the times are of one beside the others"
    )
    return [each._replace(rank=number) for number, each in enumerate(next(iter(groups.values())))]


def _table(
    found: _FoundBeside, ranks: Sequence[_ListedRank], rows: Sequence[_RowOfRun], per_process: int
) -> NcclTable | None:
    """Return the table of a run; None if its ranks are wrong, which is added to ``found``."""
    count = _count(found, ranks, [each.bus_ratio for each in rows if each.bus_ratio], per_process)
    if count is None:
        return None
    names = {each.host for each in ranks if each.host}
    hosts = len(names) or (max(count // per_process, 1) if per_process > 1 else 1)
    device = next((each.device for each in ranks if each.device), None)
    return NcclTable(
        found.name, count, hosts, device, tuple(sorted((each.row for each in rows), key=lambda row: row.size))
    )


def _count(found: _FoundBeside, ranks: Sequence[_ListedRank], ratios: Sequence[float], per_process: int) -> int | None:
    """Return how many ranks took part: by the list of devices, or by busbw over algbw, ``2(P-1)/P``."""
    ratio = float(np.median(ratios)) if ratios else None
    if ranks:
        count = max(each.rank for each in ranks) + 1
    elif ratio is not None and ratio < 2.0:  # noqa: PLR2004 - of infinitely many ranks
        count = round(2 / (2 - ratio))
    else:
        count = per_process
    if count < 2:  # noqa: PLR2004 - one rank exchanges nothing
        found.wrong.append(
            f"{found.place}: a table of one rank does not measure a link; run all_reduce_perf on 2 or more"
        )
        return None
    if ratio is not None and abs(ratio / (2 * (count - 1) / count) - 1) > _ROUNDING:
        expected = 2 * (count - 1) / count
        others = {"all_gather_perf, reduce_scatter_perf or alltoall_perf": expected / 2, "reduce_perf": 1.0}
        own = [name for name, other in others.items() if abs(ratio / other - 1) <= _ROUNDING]
        why = f"it is of {own[0]}; run all_reduce_perf" if own else "the list of devices is of another table"
        found.wrong.append(
            f"{found.place}: busbw is {ratio:.3f} times algbw, but {count} ranks make it {expected:.3f} for "
            f"all-reduces; {why}"
        )
        return None
    return count
