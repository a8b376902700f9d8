"""Tables of nccl-tests: what ``all_reduce_perf`` prints, read from a file and fitted to links of two kinds.

https://github.com/NVIDIA/nccl-tests, ``doc/PERFORMANCE.md``: of n bytes in t seconds among P ranks, ``algbw`` is n/t
and ``busbw`` is ``2(P-1)/P n/t``, the bytes per second over each link of a ring.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares  # type: ignore[import-untyped]  # scipy ships no types

from steptime.errors import FileError, UsageError
from steptime.model.collectives import Link
from steptime.model.link_catalogue import LINKS, inner_link_of
from steptime.model.nccl import NcclLinks, nccl_cost
from steptime.predict.links import ANY_FRAMEWORK
from steptime.predict.posterior import Array
from steptime.predict.profile import NetLink
from steptime.user_file import read_user_text

_MOST_BYTES = 16 * 1024**2
_RANK = re.compile(r"Rank\s+(\d+)\s.*?\bon\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*)")
_DEVICES = re.compile(r"nThread\s+(\d+)\s+nGpus\s+(\d+)")
_OPERATION = re.compile(r"\b(all_gather|reduce_scatter|broadcast|reduce|sendrecv|alltoall|gather|scatter)_perf\b")
_ROW = re.compile(
    r"(?P<size>\d+)\s+(?P<count>\d+)\s+(?P<type>[a-z]\w+)\s+(?:sum|prod|max|min|avg)\s+(?:-?\d+\s+)?(?P<rest>\S.*)$"
)
_MICRO, _GIGA = 1e-6, 1e9
_ROUNDING = 0.02
_PRINTED = 0.006
"""GB/s by which two decimals are off."""


@dataclass(frozen=True)
class NcclRow:
    """An all-reduce of one size; seconds."""

    size: int
    """Bytes of each rank."""
    out_of_place_s: float
    in_place_s: float | None

    @property
    def seconds(self) -> float:
        """The mean of both, which differ by chance: an all-reduce in place moves the same bytes."""
        return self.out_of_place_s if self.in_place_s is None else (self.out_of_place_s + self.in_place_s) / 2


@dataclass(frozen=True)
class NcclTable:
    """What one run of ``all_reduce_perf`` printed."""

    name: str
    ranks: int
    hosts: int
    device: str | None
    rows: tuple[NcclRow, ...]

    def bus_rate(self, row: NcclRow) -> float:
        """Return the ``busbw`` of a row, bytes per second."""
        return 2 * (self.ranks - 1) / self.ranks * row.size / row.seconds


def read_nccl_tests(paths: Sequence[Path]) -> list[NcclTable]:
    """Return the tables of files, one each; raises UsageError with every line that is wrong."""
    found, wrong = [], []
    for path in paths:
        try:
            found.append(parse_nccl_tests(read_user_text(path, _MOST_BYTES), str(path)))
        except FileError as error:
            wrong.append(f"--nccl-tests: {path} cannot be read ({error.reason})")
        except UsageError as error:
            wrong += error.mistakes
    if wrong:
        raise UsageError(wrong)
    return found


def parse_nccl_tests(text: str, name: str) -> NcclTable:
    """Return the table in the output of ``all_reduce_perf``, whatever a launcher has put before its lines.

    Raises UsageError with every line that is wrong.
    """
    wrong: list[str] = []
    ranks: dict[int, tuple[str, str]] = {}
    rows: list[NcclRow] = []
    ratios: list[float] = []
    per_process = 1
    for number, line in enumerate(text.splitlines(), 1):
        place = f"--nccl-tests: {name}, line {number}"
        if (other := _OPERATION.search(line)) and not rows:
            wrong.append(f"{place}: this is {other[1]}_perf; give the output of all_reduce_perf")
        elif device := _RANK.search(line):
            ranks[int(device[1])] = (device[2], device[3].strip())
        elif devices := _DEVICES.search(line):
            per_process = int(devices[1]) * int(devices[2])
        elif row := _ROW.search(line):
            try:
                read, ratio = _row(row)
            except ValueError as error:
                wrong.append(f"{place}: {error}")
                continue
            rows.append(read)
            ratios += [ratio] if ratio else []
    if not rows and not wrong:
        wrong.append(
            f"--nccl-tests: {name} has no row of a table; paste what all_reduce_perf printed, with its lines "
            "'SIZE COUNT TYPE REDOP TIME ALGBW BUSBW'"
        )
    if wrong:
        raise UsageError(wrong)
    count = _ranks(name, ranks, ratios, per_process)
    hosts = len({host for host, _ in ranks.values()}) or max(count // per_process, 1) if per_process > 1 or ranks else 1
    gpu = next((kind for _, kind in ranks.values() if kind), None)
    return NcclTable(name, count, hosts, gpu, tuple(sorted(rows, key=lambda row: row.size)))


def _row(row: re.Match[str]) -> tuple[NcclRow, float | None]:
    """Return a row and the ratio of its ``busbw`` to its ``algbw``; None if both are too small to tell."""
    size = int(row["size"])
    words = row["rest"].split()
    groups = [words[:3], words[4:7]]
    times: list[float] = []
    ratio = None
    for group in groups:
        if not group or len(group) < 3:  # noqa: PLR2004 - time, algbw and busbw
            continue
        try:
            time_us, algorithm, bus = (float(word) for word in group)
        except ValueError:
            message = f"{' '.join(group)!r} is not a time in microseconds with two rates in GB/s"
            raise ValueError(message) from None
        if time_us <= 0.0 or size <= 0:
            message = f"{size} bytes in {time_us:g} microseconds cannot be"
            raise ValueError(message)
        expected = size / (time_us * _MICRO) / _GIGA
        if abs(algorithm - expected) > _ROUNDING * expected + _PRINTED:
            message = f"{size} bytes in {time_us:g} microseconds are {expected:.2f} GB/s, not {algorithm:g}"
            raise ValueError(message)
        times.append(time_us * _MICRO)
        ratio = bus / algorithm if algorithm >= 1.0 else None
    if not times:
        message = "a row needs a time, algbw and busbw"
        raise ValueError(message)
    return NcclRow(size, times[0], times[1] if len(times) > 1 else None), ratio


def _ranks(name: str, ranks: dict[int, tuple[str, str]], ratios: Sequence[float], per_process: int) -> int:
    """Return how many ranks took part: by the list of devices, or by busbw over algbw, ``2(P-1)/P``."""
    ratio = float(np.median(ratios)) if ratios else None
    if ranks:
        count = max(ranks) + 1
    elif ratio is not None and ratio < 2.0:  # noqa: PLR2004 - of infinitely many ranks
        count = round(2 / (2 - ratio))
    else:
        count = per_process
    if count < 2:  # noqa: PLR2004 - one rank exchanges nothing
        message = f"--nccl-tests: {name}: a table of one rank does not measure a link; run all_reduce_perf on 2 or more"
        raise UsageError([message])
    if ratio is not None and abs(ratio / (2 * (count - 1) / count) - 1) > _ROUNDING:
        message = (
            f"--nccl-tests: {name}: busbw is {ratio:.3f} times algbw, but {count} ranks make it "
            f"{2 * (count - 1) / count:.3f}; the list of devices belongs to another table"
        )
        raise UsageError([message])
    return count


@dataclass(frozen=True)
class FittedTable:
    """A table beside the model of its links."""

    table: NcclTable
    modelled_s: Array
    """(rows,)"""
    link: NetLink

    def to_json(self) -> dict[str, Any]:
        """Return what ``steptime fit --json`` prints of a table."""
        return {
            "file": self.table.name,
            "ranks": self.table.ranks,
            "hosts": self.table.hosts,
            "rate_bytes_per_s": self.link.rate,
            "latency_s": self.link.latency_s,
            "sizes": [
                {
                    "bytes": row.size,
                    "time_s": row.seconds,
                    "modelled_s": float(modelled),
                    "bus_bytes_per_s": self.table.bus_rate(row),
                }
                for row, modelled in zip(self.table.rows, self.modelled_s, strict=True)
            ],
        }


def fit_tables(tables: Sequence[NcclTable], device: str | None = None) -> list[FittedTable]:
    """Return the links behind tables: inside a host of those of one host, between hosts of the others.

    Args:
        tables: of any numbers of ranks and hosts; those of one host say what the others have inside.
        device: the name that the driver gives the devices, where a table does not say it.
    """
    inside = [table for table in tables if table.hosts == 1]
    found = []
    inner = inner_link_of(next((table.device for table in tables if table.device), device)).link
    if inside:
        inner = _fitted(inside, inner)
        found += [_result(table, inner, None) for table in inside]
    between = [table for table in tables if table.hosts > 1]
    if between:
        outer = _fitted(between, LINKS["infiniband-hdr"].link, inner)
        found += [_result(table, inner, outer) for table in between]
    return sorted(found, key=lambda each: (each.table.hosts, each.table.ranks))


def modelled(table: NcclTable, inner: Link, outer: Link | None) -> Array:
    """Return NCCL's seconds of each row of a table; ``outer`` is of all cards of a host together."""
    links = NcclLinks(inner, outer or Link(np.inf), table.ranks, table.hosts)
    start, transfer = nccl_cost("allreduce", np.array([row.size for row in table.rows], float), links)
    found: Array = np.ravel(start + transfer)
    return found


def _fitted(tables: Sequence[NcclTable], believed: Link, inner: Link | None = None) -> Link:
    """Return the link whose latency and rate explain tables best, by the logarithms of their seconds."""

    def link(logs: Array) -> Link:
        return Link(
            float(np.asarray(believed.rate) * np.exp(logs[0])),
            float(np.asarray(believed.latency) * np.exp(logs[1])),
            medium=believed.medium,
            switch_share=believed.switch_share,
        )

    measured = [np.array([row.seconds for row in table.rows]) for table in tables]

    def errors(logs: Array) -> Array:
        tried = link(logs)
        found = [modelled(table, inner, tried) if inner else modelled(table, tried, None) for table in tables]
        return np.concatenate([np.log(one / each) for one, each in zip(found, measured, strict=True)])

    best = least_squares(errors, np.zeros(2), loss="soft_l1", f_scale=0.1, x_scale=0.3, diff_step=1e-2)
    return link(best.x)


def _result(table: NcclTable, inner: Link, outer: Link | None) -> FittedTable:
    seconds = modelled(table, inner, outer)
    measured = np.array([row.seconds for row in table.rows])
    used = outer or inner
    share = seconds / measured
    return FittedTable(
        table,
        seconds,
        NetLink(
            framework=ANY_FRAMEWORK,
            back_end="nccl-tests",
            operation="allreduce",
            launcher="nccl-tests",
            workers=table.ranks,
            servers=0,
            between_hosts=table.hosts > 1,
            nominal_rate=None,
            delay_s=0.0,
            latency_s=float(np.asarray(used.latency)),
            rate=float(np.asarray(used.rate)),
            alpha_s=None,
            worst_error=float(np.sqrt(np.mean(np.log(share) ** 2))),
            medium=used.medium,
            switch_share=float(np.asarray(used.switch_share)),
            efficiency=[(float(row.size), float(each)) for row, each in zip(table.rows, share, strict=True)],
        ),
    )
