"""Tables of measured scaling curves: from a CSV file to curves, or to all mistakes with their lines and columns.

Evidence about published curves needs every column. A user's own curve needs the number of workers and a step time or
throughput; every other column makes its prediction better.
"""

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite
from pathlib import Path
from statistics import geometric_mean
from typing import TypeVar, get_args

from steptime.catalog.choices import STRATEGIES
from steptime.errors import FileError, choices_message
from steptime.plain_file import read_user_text
from steptime.predict.curve.curve import FIT, HOLDOUT, EvidenceError, Point, ScalingCurve, Setup
from steptime.predict.curve.facts import Exchange, Messages, stack_names

Value = TypeVar("Value")

COLUMNS = (
    "curve", "source", "framework", "strategy", "workload", "data", "precision", "accelerator", "workers_per_host",
    "intra_host_link", "transport", "inter_host_gbps", "nics_per_host", "parameter_servers", "batch_per_worker",
    "workers", "throughput_samples_per_s", "role",
)  # fmt: skip
"""Every column that a table of evidence must have.

There may also be ``stack``, ``parameters``, ``exchange``, ``messages``, ``value_bytes``, ``sharded_over`` and
``accumulation``; further columns are ignored.
"""

OWN_CURVE = {"source": "own", "strategy": "allreduce", "role": FIT}
"""Values of columns that the table of a user's own curve leaves out or empty."""
_TIMES = ("step_time_s", "throughput_samples_per_s")
_NUMBERS = frozenset({
    *_TIMES, "workers", "workers_per_host", "inter_host_gbps", "nics_per_host", "parameter_servers",
    "batch_per_worker", "parameters", "value_bytes", "sharded_over", "accumulation",
})  # fmt: skip
_SCALES = {"k": 1e3, "K": 1e3, "M": 1e6}
_OTHER_NAMES = {
    "workers": ("gpus", "ranks", "devices", "processes", "num_workers", "world_size", "n"),
    "throughput_samples_per_s": ("images_per_sec", "images_per_second", "samples_per_sec", "throughput", "images/sec"),
    "batch_per_worker": ("batch_size", "batch", "global_batch", "local_batch"),
}
"""What other tables call the columns, to be asked for: some mean a device's, some all devices' together."""
_FLAT = 1.3
"""Where twice the workers or more together are not faster than this, the throughput may be that of one of them."""

STRATEGY_NAMES = {
    name: strategy.name
    for strategy in STRATEGIES.values()
    if strategy.curve_model
    for name in (strategy.name, *strategy.aliases)
}
"""The strategy that each name in a table stands for."""

_GBIT = 1e9 / 8
_MOST_BYTES = 4 * 1024**2
_MANY = 20
"""So many mistakes are listed; a table with more has one cause."""


def read_own_curves(path: Path) -> list[ScalingCurve]:
    """Return the curves of a user's own CSV, which needs few columns.

    ``workers`` and one of ``step_time_s`` and ``throughput_samples_per_s`` with ``batch_per_worker`` must be there;
    ``OWN_CURVE`` describes what other columns mean where they are left out.

    Raises:
        EvidenceError: the file cannot be read, lacks columns or has wrong values; all mistakes with their lines.
    """
    header, rows = _read_rows(path)
    needed = ["workers", *([] if "step_time_s" in header else ["throughput_samples_per_s", "batch_per_worker"])]
    missing = [column for column in needed if column not in header]
    if missing:
        near = {column: next((name for name in _OTHER_NAMES[column] if name in header), None) for column in missing}
        asked = [f"rename {name!r} to {column}, if that is what it is" for column, name in near.items() if name]
        message = (
            f"{path}, line 1: the table lacks the columns {', '.join(missing)}; a scaling curve needs workers, and "
            "either step_time_s or throughput_samples_per_s (of all workers) with batch_per_worker"
        )
        raise EvidenceError("; ".join([message, *asked]))
    defaults = {**OWN_CURVE, "curve": path.stem}
    filled = [(line, {**row, **{key: row.get(key) or value for key, value in defaults.items()}}) for line, row in rows]
    curves = _curves_of(path, filled, merge=True)
    if "step_time_s" not in header and (flat := [each for each in curves if _is_flat(each)]):
        raise EvidenceError([
            f"{path}, curve {each.name}: {each.fit[-1].workers} workers have at most {_FLAT} times the throughput of "
            f"{each.fit[0].workers}; if throughput_samples_per_s is that of one worker, multiply it by workers, and if "
            "it is that of all, give step_time_s instead"
            for each in flat
        ])  # fmt: skip
    return curves


def _is_flat(curve: ScalingCurve) -> bool:
    """Return whether the throughput of all workers hardly grows with their number."""
    first, last = curve.fit[0], curve.fit[-1]
    return last.workers >= 2 * first.workers and last.workers / last.step_time < _FLAT * first.workers / first.step_time


def read_curves(path: Path) -> list[ScalingCurve]:
    """Return the curves of a CSV in the order of their first rows.

    Raises:
        EvidenceError: the file cannot be read, lacks columns or has wrong values; all mistakes with their lines.
    """
    header, rows = _read_rows(path)
    missing = [column for column in COLUMNS if column not in header]
    if missing:
        message = f"{path}: the table lacks the columns {', '.join(missing)}; it must have {', '.join(COLUMNS)}"
        raise EvidenceError(message)
    return _curves_of(path, rows)


_Rows = list[tuple[int, dict[str, str]]]
"""Line numbers and values by column."""


def _read_rows(path: Path) -> tuple[list[str], _Rows]:
    """Return the names of columns in small letters and the rows, with numbers as Python reads them.

    Spreadsheets and data frames write blank rows, comments, an index without a name, semicolons or tabs, decimal commas
    and separated thousands.
    """
    try:
        text = read_user_text(path, _MOST_BYTES).replace("\r\n", "\n").replace("\r", "\n")
        # Comments become blank lines, so that the numbers of lines stay.
        lines = ["" if line.lstrip().startswith("#") else line for line in text.split("\n")]
        before = next((number for number, line in enumerate(lines) if line.strip()), 0)
        reader = csv.DictReader(io.StringIO("\n".join(lines[before:]), newline=""), delimiter=_delimiter(lines[before]))
        header = [name.strip().lower().replace(" ", "_") for name in reader.fieldnames or ()]
        reader.fieldnames = header
        read = [
            (before + reader.line_num, {key: (value or "").strip() for key, value in row.items() if key})
            for row in reader
        ]
    except (FileError, csv.Error) as error:
        reason = error.reason if isinstance(error, FileError) else error
        message = f"{path}: cannot be read as a CSV table: {reason}"
        raise EvidenceError(message) from error
    twice = sorted({column for column in (*COLUMNS, *_TIMES) if header.count(column) > 1})
    if twice:
        message = f"{path}: the table has the columns {', '.join(twice)} more than once; keep one of each"
        raise EvidenceError(message)
    rows = [(line, row) for line, row in read if any(row.values())]
    if not rows and header:
        message = f"{path}: the table has no rows; every measured point is one"
        raise EvidenceError(message)
    decimal = _decimal_mark([row.get(column, "") for _, row in rows for column in _NUMBERS])
    plain = [(line, {key: _plain(value, decimal) if key in _NUMBERS else value for key, value in row.items()})
             for line, row in rows]  # fmt: skip
    return header, plain


def _delimiter(header: str) -> str:
    """Return what separates columns: of comma, semicolon and tab the one that is in the header most often."""
    return max(",;\t", key=header.count)


def _decimal_mark(cells: Sequence[str]) -> str | None:
    """Return the decimal mark that numbers of a table show; None if they show none, or both.

    A number with both marks shows it, and one with a mark that cannot separate thousands.
    """
    shown = set()
    for cell in cells:
        for decimal, other in (".,", ",."):
            whole = rf"\d{{1,3}}(?:\{other}\d{{3}})+"
            many = rf"\d{{1,3}}(?:\{other}\d{{3}}){{2,}}"
            ending = rf"\d+\{decimal}(?!\d{{3}}$)\d+|\d{{4,}}\{decimal}\d+|0\{decimal}\d+"
            if re.fullmatch(rf"{whole}\{decimal}\d+|{many}|{ending}", cell):
                shown.add(decimal)
    return shown.pop() if len(shown) == 1 else None


def _plain(cell: str, decimal: str | None) -> str:
    """Return a number as Python reads it; what is ambiguous stays, to be named.

    Without a decimal mark that the table shows, ``2,380`` may be 2380 or 2.38.
    """
    text = re.sub(r"(?<=\d)[ \u00a0\u202f'_](?=\d{3})", "", cell)
    if decimal == ",":
        text = text.replace(".", "").replace(",", ".")
    elif decimal == "." and re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", text):
        text = text.replace(",", "")
    if scaled := re.fullmatch(r"(\d+(?:\.\d+)?)([kKM])", text):
        return f"{float(scaled[1]) * _SCALES[scaled[2]]:.15g}"
    return re.sub(r"^(\d+)\.0+$", r"\1", text)


def _curves_of(path: Path, rows: _Rows, *, merge: bool = False) -> list[ScalingCurve]:
    mistakes: list[str] = []
    read = [row for line, values in rows if (row := _CurveRow(f"{path}, line {line}", values, mistakes).point())]
    curves = _group_by_curve(path, read, mistakes, merge=merge) if not mistakes else []
    if mistakes:
        rest = len(mistakes) - _MANY
        raise EvidenceError([*mistakes[:_MANY], *([f"… and {rest} more"] if rest > 0 else [])])
    return curves


class _CurveRow:
    """One line being read; what is wrong goes to ``mistakes``."""

    def __init__(self, place: str, values: Mapping[str, str], mistakes: list[str]) -> None:
        self.place, self.values, self.mistakes = place, values, mistakes

    def point(self) -> tuple[str, str, Setup, Point] | None:
        """Return curve, role, set-up and point, or None if something is wrong."""
        before = len(self.mistakes)
        name, source = self._name("curve"), self._name("source")
        strategy = self._choice("strategy", tuple(STRATEGY_NAMES))
        role = self._choice("role", (FIT, HOLDOUT))
        count = self._number("workers", int, 1)
        seconds, batch = self._step_time(count)
        per_host = self._optional("workers_per_host", int, 1)
        rate = self._optional("inter_host_gbps", float, 0.0, above=True)
        cards = self._optional("nics_per_host", int, 1)
        servers = self._optional("parameter_servers", int, 0)
        stack = self._choice("stack", stack_names()) if self._text("stack") else ""
        parameters = self._optional("parameters", int, 1)
        exchange = self._choice("exchange", get_args(Exchange)) if self._text("exchange") else ""
        messages = self._choice("messages", get_args(Messages)) if self._text("messages") else ""
        value_bytes = self._optional("value_bytes", int, 1)
        sharded_over = self._sharded_over(strategy)
        accumulation = self._optional("accumulation", int, 1)
        if len(self.mistakes) > before or count is None or seconds is None:
            return None
        setup = Setup(
            source=source,
            framework=self._text("framework"),
            strategy=STRATEGY_NAMES[strategy],
            workload=self._text("workload"),
            precision=self._text("precision"),
            accelerator=self._text("accelerator"),
            data=self._text("data"),
            batch_per_worker=batch,
            workers_per_host=per_host,
            intra_host_link=self._text("intra_host_link"),
            transport=self._text("transport"),
            inter_host_rate=None if rate is None else rate * _GBIT,
            cards_per_host=cards,
            stack=stack,
            parameters=parameters,
            exchange=exchange,
            messages=messages,
            value_bytes=value_bytes,
            sharded_over=sharded_over,
            accumulation=accumulation or 1,
        )
        return name, role, setup, Point(count, servers, seconds)

    def _step_time(self, count: int | None) -> tuple[float | None, int | None]:
        """Return the seconds of a step and the batch per worker, which may be unknown where the seconds are given."""
        if self._text("step_time_s"):
            return self._number("step_time_s", float, 0.0, above=True), self._optional("batch_per_worker", int, 1)
        batch = self._number("batch_per_worker", int, 1)
        throughput = self._number("throughput_samples_per_s", float, 0.0, above=True)
        if throughput is not None and not isfinite((batch or 1) * (count or 1) / throughput):
            self._wrong("throughput_samples_per_s", f"is {throughput}; no step takes that long")
        if batch is None or count is None or throughput is None:
            return None, batch
        return batch * count / throughput, batch

    def _sharded_over(self, strategy: str) -> int | None:
        """Return over how many workers weights are split, which a strategy must do."""
        found = self._optional("sharded_over", int, 1)
        known = STRATEGIES.get(STRATEGY_NAMES.get(strategy, ""))
        if found is not None and known and "weights" not in known.shards:
            splitting = " or ".join(each.name for each in STRATEGIES.values() if "weights" in each.shards)
            self._wrong("sharded_over", f"is {found}, but {strategy} does not split weights; leave it empty, or name "
                        f"the strategy {splitting}")  # fmt: skip
        return found

    def _text(self, column: str) -> str:
        return self.values.get(column, "").strip()

    def _name(self, column: str) -> str:
        text = self._text(column)
        if not text:
            self._wrong(column, "is empty; every point belongs to a named one")
        return text

    def _choice(self, column: str, choices: tuple[str, ...]) -> str:
        text = self._text(column)
        if text not in choices:
            self.mistakes.append(f"{self.place}: {choices_message(column, text, choices)}")
        return text

    def _optional(
        self, column: str, kind: Callable[[str], Value], least: float, *, above: bool = False
    ) -> Value | None:
        return self._number(column, kind, least, above=above) if self._text(column) else None

    def _number(self, column: str, kind: Callable[[str], Value], least: float, *, above: bool = False) -> Value | None:
        text = self._text(column)
        try:
            value = kind(text)
            size = float(text)
        except ValueError:
            self._wrong(column, f"is {text!r}; write a {'whole ' if kind is int else ''}number")
            return None
        if not isfinite(size) or size < least or (above and size == least) or size == inf:
            self._wrong(column, f"is {text}; it must be {'more than' if above else 'at least'} {least:g} and finite")
            return None
        return value

    def _wrong(self, column: str, what: str) -> None:
        self.mistakes.append(f"{self.place}: {column} {what}")


def _merged(members: list[tuple[str, Setup, Point]]) -> tuple[list[tuple[str, Setup, Point]], list[str]]:
    """Return members with one point for each number of workers and role, and a sentence for each that had several."""
    grouped: dict[tuple[int, str], list[tuple[str, Setup, Point]]] = {}
    for member in members:
        grouped.setdefault((member[2].workers, member[0]), []).append(member)
    found, sentences = [], []
    for (workers, role), same in grouped.items():
        seconds = [point.step_time for _, _, point in same]
        found.append((role, same[0][1], replace(same[0][2], step_time=geometric_mean(seconds))))
        if len(same) > 1:
            spread = max(seconds) / min(seconds)
            times = f"{len(same)} times, {spread:.3g} times apart"
            sentences.append(f"{workers} workers were measured {times}; their geometric mean counts")
    return found, sentences


def _group_by_curve(
    path: Path, rows: list[tuple[str, str, Setup, Point]], mistakes: list[str], *, merge: bool
) -> list[ScalingCurve]:
    grouped: dict[str, list[tuple[str, Setup, Point]]] = {}
    for name, role, setup, point in rows:
        grouped.setdefault(name, []).append((role, setup, point))
    curves = []
    for name, rows_of_curve in grouped.items():
        place = f"{path}, curve {name}"
        setups = {setup for _, setup, _ in rows_of_curve}
        if len(setups) > 1:
            columns = [key for key in vars(next(iter(setups))) if len({getattr(one, key) for one in setups}) > 1]
            mistakes.append(f"{place}: its rows differ in {', '.join(columns)}; rows of a curve differ in workers only")
        members, repeated = _merged(rows_of_curve) if merge else (rows_of_curve, [])
        counts = [point.workers for _, _, point in members]
        twice = sorted({count for count in counts if counts.count(count) > 1})
        if twice:
            mistakes.append(f"{place}: {', '.join(map(str, twice))} workers are there more than once; keep one row")
        elif len(counts) == 1:
            mistakes.append(f"{place}: it has a single worker count; measure at least one more, or leave it out")
        if not any(role == FIT for role, _, _ in members):
            mistakes.append(f"{place}: no row has the role {FIT}; nothing could be fitted")
        ordered = sorted(members, key=lambda member: member[2].workers)
        curves.append(
            ScalingCurve(
                name=name,
                setup=members[0][1],
                fit=tuple(point for role, _, point in ordered if role == FIT),
                holdout=tuple(point for role, _, point in ordered if role == HOLDOUT),
                repeated=tuple(repeated),
            )
        )
    return curves
