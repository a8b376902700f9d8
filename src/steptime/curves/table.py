"""Tables of measured scaling curves: from a CSV file to curves, or to all mistakes with their lines and columns.

Evidence about published curves needs every column. A user's own curve needs the number of workers and a step time or
throughput; every other column makes its prediction better.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite
from pathlib import Path
from statistics import geometric_mean
from typing import TypeVar, get_args

from steptime.catalog.choices import STRATEGIES, SYNTHETIC
from steptime.curves.contradictions import (
    above_store,
    disagreeing_rows,
    disagreement,
    jumps,
    long_steps,
    one_batch,
    one_throughput,
)
from steptime.curves.curve import FIT, HOLDOUT, EvidenceError, Point, ScalingCurve, Setup
from steptime.curves.facts import Exchange, Messages, stack_names
from steptime.curves.input_ceiling import STORES
from steptime.curves.rows import Rows, read_rows, some_of
from steptime.errors import choices_message
from steptime.units import parse_duration

Value = TypeVar("Value")

COLUMNS = (
    "curve", "source", "framework", "strategy", "workload", "data", "precision", "accelerator", "workers_per_host",
    "intra_host_link", "transport", "inter_host_gbps", "nics_per_host", "parameter_servers", "batch_per_worker",
    "workers", "throughput_samples_per_s", "role",
)  # fmt: skip
"""Every column that a table of evidence must have.

There may also be ``stack``, ``parameters``, ``exchange``, ``messages``, ``value_bytes``, ``sharded_over``,
``accumulation``, ``input_store`` and ``input_samples_per_s``; further columns are ignored.
"""

OWN_CURVE = {"source": "own", "strategy": "allreduce", "role": FIT}
"""Values of columns that the table of a user's own curve leaves out or empty."""
_ENDS = ((min, 0.5), (max, -0.5))
"""Of batches of all workers, which those of a worker leave open that are rounded."""
_TIMES = ("step_time_s", "throughput_samples_per_s")
_NUMBERS = frozenset({
    *_TIMES, "workers", "workers_per_host", "inter_host_gbps", "nics_per_host", "parameter_servers",
    "batch_per_worker", "parameters", "value_bytes", "sharded_over", "accumulation",
    "input_samples_per_s",
})  # fmt: skip
_OTHER_NAMES = {
    "workers": ("gpus", "ranks", "devices", "processes", "num_workers", "world_size", "n"),
    "throughput_samples_per_s": (
        "images_per_sec",
        "images_per_second",
        "samples_per_sec",
        "throughput",
        "images/sec",
        "images/s",
        "img/sec",
        "img/s",
        "samples/s",
        "samples/sec",
        "imgs_per_sec",
    ),  # as logs have them
    "batch_per_worker": ("batch_size", "batch", "global_batch", "local_batch"),
}
_OTHER_UNITS = {
    **dict.fromkeys(
        ("step_time_ms", "ms", "ms/step", "time/step", "time_ms", "iteration_ms", "ms_per_step", "latency_ms"),
        "divided by 1000",
    ),
    **dict.fromkeys(("step_time", "time", "time_s", "seconds", "s_per_step", "iteration_time", "s/it"), "in seconds"),
    **dict.fromkeys(("it/s", "steps_per_s", "steps_per_sec", "iterations_per_s"), "1 / it"),
    **dict.fromkeys(("epoch_time", "epoch_time_s", "epoch_time_sec"), "divided by the steps of an epoch"),
}
"""What other tables call the columns, to be asked for: some mean a device's, some all devices' together."""
STRATEGY_NAMES = {
    name: strategy.name
    for strategy in STRATEGIES.values()
    if strategy.curve_model
    for name in (strategy.name, *strategy.aliases)
}
"""The strategy that each name in a table stands for."""

_GBIT = 1e9 / 8


def read_own_curves(path: Path) -> list[ScalingCurve]:
    """Return the curves of a user's own CSV, which needs few columns.

    ``workers`` and one of ``step_time_s`` and ``throughput_samples_per_s`` with ``batch_per_worker`` must be there;
    ``OWN_CURVE`` describes what other columns mean where they are left out.

    Raises:
        EvidenceError: the file cannot be read, lacks columns or has wrong values; all mistakes with their lines.
    """
    header, rows = read_rows(path, (*COLUMNS, *_TIMES), _NUMBERS)
    needed = ["workers", *([] if "step_time_s" in header else ["throughput_samples_per_s", "batch_per_worker"])]
    missing = [column for column in needed if column not in header]
    if missing:
        message = (
            f"{path}, line 1: the table lacks the columns {', '.join(missing)}; a scaling curve needs workers, and "
            "either step_time_s or throughput_samples_per_s (of all workers) with batch_per_worker"
        )
        raise EvidenceError("; ".join([message, *_near_columns(header, missing)]))
    defaults = {**OWN_CURVE, "curve": path.stem}
    filled = [(line, {**row, **{key: row.get(key) or value for key, value in defaults.items()}}) for line, row in rows]
    curves = _curves_of(path, filled, merge=True)
    mistakes = [
        f"{path}, curve {curve.name}: {sentence}"
        for curve in curves
        for sentence in (
            disagreeing_rows(_with_two_times(filled, curve.name)),
            *jumps(curve),
            one_batch(curve) if "step_time_s" in header else one_throughput(curve),
        )
        if sentence
    ]
    if mistakes:
        raise EvidenceError(some_of(mistakes))
    asked = [long_steps({line: row for line, row in filled if row["curve"] == curve.name}) for curve in curves]
    return [replace(curve, notes=(*curve.notes, *own)) for curve, own in zip(curves, asked, strict=True)]


def _near_columns(header: Sequence[str], missing: Sequence[str]) -> list[str]:
    """Return what to make of columns that a table has instead of those that are missing."""
    asked = []
    if "workers" in missing and "nodes" in header:
        asked.append("write nodes x workers of each node as workers")
    if "step_time_s" not in header and (given := next((name for name in header if name in _OTHER_UNITS), None)):
        asked.append(f"write {given!r} as step_time_s, {_OTHER_UNITS[given]}")
        missing = [column for column in missing if column == "workers"]
    near = {column: next((name for name in _OTHER_NAMES[column] if name in header), None) for column in missing}
    return asked + [f"rename {name!r} to {column}, if that is what it is" for column, name in near.items() if name]


def _with_two_times(rows: Rows, curve: str) -> dict[int, dict[str, str]]:
    """Return the rows of a curve that have a step time and a throughput, but no batch, by their lines."""
    return {
        line: row
        for line, row in rows
        if row["curve"] == curve and all(row.get(column) for column in _TIMES) and not row.get("batch_per_worker")
    }


def read_curves(path: Path) -> list[ScalingCurve]:
    """Return the curves of a CSV in the order of their first rows.

    Raises:
        EvidenceError: the file cannot be read, lacks columns or has wrong values; all mistakes with their lines.
    """
    header, rows = read_rows(path, (*COLUMNS, *_TIMES), _NUMBERS)
    missing = [column for column in COLUMNS if column not in header]
    if missing:
        message = f"{path}: the table lacks the columns {', '.join(missing)}; it must have {', '.join(COLUMNS)}"
        raise EvidenceError(message)
    return _curves_of(path, rows)


def _curves_of(path: Path, rows: Rows, *, merge: bool = False) -> list[ScalingCurve]:
    mistakes: list[str] = []
    read = [row for line, values in rows if (row := _CurveRow(f"{path}, line {line}", values, mistakes).point())]
    curves = _group_by_curve(path, read, mistakes, merge=merge) if not mistakes else []
    if mistakes:
        raise EvidenceError(some_of(mistakes))
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
        store = self._choice("input_store", STORES) if self._text("input_store") else ""
        input_rate = self._input_rate(count, seconds, batch)
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
            input_store=store,
            input_rate=input_rate,
        )
        return name, role, setup, Point(count, servers, seconds)

    def _step_time(self, count: int | None) -> tuple[float | None, int | None]:
        """Return the seconds of a step and the batch per worker, which may be unknown where the seconds are given."""
        if self._text("step_time_s"):
            seconds = self._number("step_time_s", float, 0.0, above=True)
            batch = self._optional("batch_per_worker", int, 1)
            rate = self._optional("throughput_samples_per_s", float, 0.0, above=True)
            if None not in (count, seconds, batch, rate) and (wrong := disagreement(self.values)):
                self.mistakes.append(f"{self.place}: {wrong}")
            return seconds, batch
        batch = self._number("batch_per_worker", int, 1)
        throughput = self._number("throughput_samples_per_s", float, 0.0, above=True)
        if throughput is not None and not isfinite((batch or 1) * (count or 1) / throughput):
            self._wrong("throughput_samples_per_s", f"is {throughput}; no step takes that long")
        if batch is None or count is None or throughput is None:
            return None, batch
        return batch * count / throughput, batch

    def _input_rate(self, count: int | None, seconds: float | None, batch: int | None) -> float | None:
        """Return the samples per second that the store gives at most, which no point of the table may exceed."""
        rate = self._optional("input_samples_per_s", float, 0.0, above=True)
        if rate is None or count is None or seconds is None:
            return rate
        if batch is None:
            self._wrong(
                "input_samples_per_s", f"is {rate:g}, but batch_per_worker is empty; state the samples of a step"
            )
        elif self._text("data") == SYNTHETIC.name:
            self._wrong("input_samples_per_s", f"is {rate:g}, but data is synthetic, which no store gives; empty one")
        elif wrong := above_store(count, batch, seconds, rate):
            self._wrong("input_samples_per_s", wrong)
        return rate

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
            self._wrong(column, f"is {text!r}; {_as_number(text, column, whole=kind is int)}")
            return None
        if not isfinite(size) or size < least or (above and size == least) or size == inf:
            self._wrong(column, f"is {text}; it must be {'more than' if above else 'at least'} {least:g} and finite")
            return None
        return value

    def _wrong(self, column: str, what: str) -> None:
        self.mistakes.append(f"{self.place}: {column} {what}")


def _as_number(text: str, column: str, *, whole: bool) -> str:
    """Return how to write what is not a number."""
    if column == "step_time_s" and re.search("[a-zA-Z]$", text):
        try:
            return f"write {parse_duration(text):g}, in seconds and without a unit"
        except ValueError:
            pass
    if re.fullmatch(r"\d{1,3}(,\d{3})+(\.\d+)?", text):
        point = (
            f", or {text.replace(',', '.')} if it is a decimal mark" if text.count(",") == 1 and "." not in text else ""
        )
        return f"write {text.replace(',', '')} if the comma separates thousands{point}"
    if re.match(r"[\d.]+ ?(±|\+/?-)", text):
        return "write the mean alone"
    return f"write a {'whole ' if whole else ''}number" + ("" if re.search(r"\d", text) else ", or leave the row out")


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


def _sharing_one_batch(members: list[tuple[str, Setup, Point]]) -> list[tuple[str, Setup, Point]]:
    """Return members without batches of workers where these differ and make one batch of all, to a sample of each."""
    batches = [(setup.batch_per_worker, point.workers) for _, setup, point in members]
    known = [(own, workers) for own, workers in batches if own is not None]
    if len(known) < len(batches) or len({own for own, _ in known}) == 1:
        return members
    least, most = (choose(own * workers + slack * workers for own, workers in known) for choose, slack in _ENDS)
    if least < most:
        return members
    whole = max(own * workers for own, workers in known)
    return [
        (role, replace(setup, batch_per_worker=None, one_batch=True, global_batch=whole), point)
        for role, setup, point in members
    ]


def _setup_mistakes(rows: Sequence[tuple[str, Setup, Point]]) -> Iterator[str]:
    """Yield in what the rows of a curve differ beside the number of workers."""
    setups = {setup for _, setup, _ in rows}
    if len(setups) > 1:
        columns = [key for key in vars(next(iter(setups))) if len({getattr(setup, key) for setup in setups}) > 1]
        yield (
            f"its rows differ in {', '.join(columns)}; rows of a curve differ in workers only (and in "
            "batch_per_worker where all workers share one batch): name each curve in a column curve"
        )


def _count_mistakes(members: Sequence[tuple[str, Setup, Point]]) -> Iterator[str]:
    """Yield what a curve's worker counts and roles lack to be fitted."""
    counts = [point.workers for _, _, point in members]
    twice = sorted({count for count in counts if counts.count(count) > 1})
    if twice:
        yield f"{', '.join(map(str, twice))} workers are there more than once; keep one row"
    elif len(counts) == 1:
        yield "it has a single worker count; measure at least one more, or leave it out"
    if not any(role == FIT for role, _, _ in members):
        yield f"no row has the role {FIT}; nothing could be fitted"


def _group_by_curve(
    path: Path, rows: list[tuple[str, str, Setup, Point]], mistakes: list[str], *, merge: bool
) -> list[ScalingCurve]:
    grouped: dict[str, list[tuple[str, Setup, Point]]] = {}
    for name, role, setup, point in rows:
        grouped.setdefault(name, []).append((role, setup, point))
    curves = []
    for name, rows_as_read in grouped.items():
        rows_of_curve = _sharing_one_batch(rows_as_read) if merge else rows_as_read
        members, repeated = _merged(rows_of_curve) if merge else (rows_of_curve, [])
        place = f"{path}, curve {name}"
        mistakes += [f"{place}: {mistake}" for mistake in _setup_mistakes(rows_of_curve)]
        mistakes += [f"{place}: {mistake}" for mistake in _count_mistakes(members)]
        ordered = sorted(members, key=lambda member: member[2].workers)
        curves.append(
            ScalingCurve(
                name=name,
                setup=members[0][1],
                fit=tuple(point for role, _, point in ordered if role == FIT),
                holdout=tuple(point for role, _, point in ordered if role == HOLDOUT),
                notes=tuple(repeated),
            )
        )
    return curves
