"""The advice that was tried: a row of ``verified.csv`` for each, the record of each rule, and what it does to gains."""

import csv
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields
from functools import cache
from math import ceil, exp, log
from pathlib import Path
from statistics import median
from typing import Any

from steptime.diagnosis.form import GAIN_LEVEL, RuleRecord
from steptime.results.json_form import Interval

PATH = Path(__file__).with_name("verified.csv")


@dataclass(frozen=True)
class VerifiedAdvice:
    """One piece of advice, measured in the same randomised blocks as what it changes."""

    rule: str
    framework: str
    strategy: str
    workload: str
    workers: int
    batch_per_worker: int
    overrides: str
    predicted: float
    """Samples per second with the change over those without, with its interval of 90 % as it was printed."""
    predicted_low: float
    predicted_high: float
    rule_low: float
    """The rule's own interval, before the record widened it."""
    rule_high: float
    measured: float
    """The same, with its interval of 95 %."""
    measured_low: float
    measured_high: float
    launches: int
    """Of each of both."""
    load: float
    """Cores that other programs kept busy during the launches, on average."""

    @property
    def shown(self) -> bool:
        """Whether a gain or a loss was shown."""
        return self.measured_low > 1.0 or self.measured_high < 1.0

    @property
    def sign_right(self) -> bool:
        """Whether a gain was predicted where one was measured, or a loss where that was."""
        return (self.measured > 1.0) == (self.predicted > 1.0)

    @property
    def inside(self) -> bool:
        """Whether the measured gain is in the interval that was printed."""
        return self.predicted_low <= self.measured <= self.predicted_high

    @property
    def missed_by(self) -> tuple[float, float]:
        """By how much a measured gain is below and above the rule's interval, as logarithms; negative inside it."""
        return log(self.rule_low / self.measured), log(self.measured / self.rule_high)


COLUMNS = tuple(each.name for each in fields(VerifiedAdvice))
_WHOLE, _TEXT = ("workers", "batch_per_worker", "launches"), ("rule", "framework", "strategy", "workload", "overrides")
_READ: dict[str, Callable[[str], Any]] = {
    name: str if name in _TEXT else int if name in _WHOLE else float for name in COLUMNS
}


def read_verified(path: Path = PATH) -> list[VerifiedAdvice]:
    """Return the rows of a table of verified advice; none if the file is missing."""
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return [VerifiedAdvice(**{name: _READ[name](row[name]) for name in COLUMNS}) for row in csv.DictReader(file)]


@cache
def kept_advice() -> tuple[VerifiedAdvice, ...]:
    """Return the rows of steptime's own table, which is read once: every finding is widened by it."""
    return tuple(read_verified())


def write_verified(path: Path, rows: Sequence[VerifiedAdvice]) -> None:
    """Write a table of verified advice."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([f"{each:.4g}" if isinstance(each, float) else each for each in astuple(row)] for row in rows)


def widened(gain: Interval[float | None], rows: Sequence[VerifiedAdvice] | None = None) -> Interval[float | None]:
    """Return a rule's interval of a gain, on each side as much wider as gains that were measured ask for there.

    Conformal: of the distances by which measured gains were below the rules' intervals, in logarithms, the one that
    as many of them and of one more lie below as ``GAIN_LEVEL`` leaves to one side; likewise above (Y. Romano,
    E. Patterson, E. Candes, *Conformalized quantile regression*, 2019, theorem 2). Gains beyond what was predicted so
    lend no loss to the low end. It holds for the next gain if that comes from causes like those that were tried.

    Args:
        gain: by the rule alone.
        rows: of tried advice; by default all of it.
    """
    if gain.value is None or gain.low is None or gain.high is None:
        return gain
    below, above = widening(kept_advice() if rows is None else rows)
    return Interval(gain.value, gain.low / below, gain.high * above)


def widening(rows: Sequence[VerifiedAdvice]) -> tuple[float, float]:
    """Return by what factors rows widen an interval below and above; 1 of fewer than 19, which show no quantile."""
    place = ceil((len(rows) + 1) * (1.0 + GAIN_LEVEL) / 2.0)
    if place > len(rows):
        return 1.0, 1.0
    below, above = (sorted(missed) for missed in zip(*(row.missed_by for row in rows), strict=True))
    return exp(max(0.0, below[place - 1])), exp(max(0.0, above[place - 1]))


def is_inside(row: VerifiedAdvice, others: Sequence[VerifiedAdvice]) -> bool:
    """Whether a measured gain is inside of its rule's interval as other rows widen it."""
    return all(missed <= log(factor) for missed, factor in zip(row.missed_by, widening(others), strict=True))


def record_of(rows: Sequence[VerifiedAdvice], every: Sequence[VerifiedAdvice]) -> RuleRecord:
    """Return the record that pieces of advice make together.

    Args:
        rows: of a rule, or all.
        every: all rows, of which intervals are widened by those that are not the one judged.
    """
    shown = [each for each in rows if each.shown]
    errors = [abs(each.predicted / each.measured - 1.0) for each in rows]
    return RuleRecord(
        verified=len(rows),
        shown=len(shown),
        sign_right=sum(each.sign_right for each in shown),
        inside=sum(is_inside(row, [other for other in every if other is not row]) for row in rows),
        inside_unwidened=sum(max(row.missed_by) <= 0.0 for row in rows),
        median_error=median(errors) if errors else None,
    )


def record_of_rule(name: str) -> RuleRecord:
    """Return the record of a rule, an empty one if its advice was never tried."""
    return rule_records().get(name) or record_of((), ())


@cache
def rule_records() -> dict[str, RuleRecord]:
    """Return the record of every rule whose advice was tried."""
    rows = kept_advice()
    return {
        rule: record_of([each for each in rows if each.rule == rule], rows) for rule in {each.rule for each in rows}
    }
