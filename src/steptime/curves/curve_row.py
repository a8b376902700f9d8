"""One row of a table of measured scaling curves: its set-up and its point, or what is wrong, with line and column."""

import re
from collections.abc import Callable, Mapping
from math import inf, isfinite
from typing import TypeVar, get_args

from steptime.catalog.choices import STRATEGIES, SYNTHETIC
from steptime.curves.contradictions import above_store, disagreement
from steptime.curves.curve import FIT, HOLDOUT, INPUT, TIME_PARTS, Point, Setup, error_of_mean
from steptime.curves.facts import Exchange, Messages, computes_on_processors, stack_names
from steptime.curves.input_ceiling import STORES
from steptime.curves.transformer import wrong_work
from steptime.errors import choices_message
from steptime.model.shared_cores import MachineCores
from steptime.units import parse_duration

Value = TypeVar("Value")

STRATEGY_NAMES = {
    name: strategy.name
    for strategy in STRATEGIES.values()
    if strategy.curve_model
    for name in (strategy.name, *strategy.aliases)
}
"""The strategy that each name in a table stands for."""

TIMES = ("step_time_s", "throughput_samples_per_s")
"""Columns of which a row has one."""

_GBIT = 1e9 / 8
_ALONE = "none"
"""Of ``time_includes``: training alone."""
_PERCENT = 100.0
_FEWEST = 2
"""Repetitions that show a standard deviation."""


class CurveRow:
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
        active = self._optional("active_parameters", int, 1)
        tokens = self._optional("tokens_per_sample", int, 1)
        split = self._optional("tensor_parallel", int, 1) or 1
        exchange = self._choice("exchange", get_args(Exchange)) if self._text("exchange") else ""
        messages = self._choice("messages", get_args(Messages)) if self._text("messages") else ""
        value_bytes = self._optional("value_bytes", int, 1)
        sharded_over = self._sharded_over(strategy)
        accumulation = self._optional("accumulation", int, 1)
        store = self._choice("input_store", STORES) if self._text("input_store") else ""
        time_includes = self._time_includes()
        input_rate = self._input_rate(count, seconds, batch, time_includes)
        error = self._error()
        cores = self._shared_cores()
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
            active_parameters=active,
            tokens_per_sample=tokens,
            exchange=exchange,
            messages=messages,
            value_bytes=value_bytes,
            sharded_over=sharded_over,
            accumulation=accumulation or 1,
            tensor_parallel=split,
            time_includes=time_includes,
            input_store=store,
            input_rate=input_rate,
            shared_cores=cores,
        )
        if wrong := wrong_work(setup, seconds):
            self._wrong(*wrong)
        return name, role, setup, Point(count, servers, seconds, error)

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

    def _time_includes(self) -> tuple[str, ...] | None:
        """Return what is in the time beside training, in the order of ``TIME_PARTS``."""
        words = re.findall(r"[^\s+;|]+", self._text("time_includes").lower())
        if not words:
            return None
        if wrong := [word for word in words if word not in {*TIME_PARTS, _ALONE}]:
            self.mistakes.append(f"{self.place}: {choices_message('time_includes', wrong[0], (*TIME_PARTS, _ALONE))}")
        elif _ALONE in words and len(words) > 1:
            self._wrong("time_includes", f"is {' '.join(words)}; write {_ALONE} alone, or what the time includes")
        return tuple(part for part in TIME_PARTS if part in words)

    def _shared_cores(self) -> MachineCores | None:
        """Return the cores that workers of a host share, where they compute on them."""
        cores = self._optional("cores_per_host", float, 0.0, above=True)
        threads = self._optional("threads_per_worker", float, 0.0, above=True)
        if cores is None or not computes_on_processors(self._text("accelerator")):
            return None
        return MachineCores(cores, 1.0 if threads is None else threads)

    def _error(self) -> float:
        """Return the standard error of the point's logarithm; 0 where no deviation is stated."""
        repetitions = self._optional("repetitions", int, 1)
        percent = self._optional("sd_percent", float, 0.0)
        if percent is None:
            return 0.0
        if percent >= _PERCENT:
            self._wrong("sd_percent", f"is {percent:g}; runs that differ by as much show no step time")
        if repetitions is not None and repetitions < _FEWEST:
            self._wrong("sd_percent", f"is {percent:g}, but repetitions is {repetitions}, which shows no standard "
                        "deviation; leave one of them empty")  # fmt: skip
        return error_of_mean(percent / _PERCENT, repetitions or 1)

    def _input_rate(
        self, count: int | None, seconds: float | None, batch: int | None, included: tuple[str, ...] | None
    ) -> float | None:
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
        elif included is not None and INPUT not in included:
            self._wrong(
                "input_samples_per_s", f"is {rate:g}, but time_includes has no input, which no store then bounds"
            )
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
