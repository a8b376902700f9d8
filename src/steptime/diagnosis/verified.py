"""The advice that was tried: a row of ``verified.csv`` for each, and the record of each rule that follows."""

import csv
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from steptime.diagnosis.form import RuleRecord

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
    """Samples per second with the change over those without, with its interval of 90 %."""
    predicted_low: float
    predicted_high: float
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
        """Whether the measured gain is in the predicted interval."""
        return self.predicted_low <= self.measured <= self.predicted_high


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


def write_verified(path: Path, rows: Sequence[VerifiedAdvice]) -> None:
    """Write a table of verified advice."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([f"{each:.4g}" if isinstance(each, float) else each for each in astuple(row)] for row in rows)


def record_of(rows: Sequence[VerifiedAdvice]) -> RuleRecord:
    """Return the record that pieces of advice make together."""
    shown = [each for each in rows if each.shown]
    errors = [abs(each.predicted / each.measured - 1.0) for each in rows]
    return RuleRecord(
        verified=len(rows),
        shown=len(shown),
        sign_right=sum(each.sign_right for each in shown),
        inside=sum(each.inside for each in rows),
        median_error=median(errors) if errors else None,
    )


def record_of_rule(name: str) -> RuleRecord:
    """Return the record of a rule, an empty one if its advice was never tried."""
    return rule_records().get(name) or record_of(())


@cache
def rule_records() -> dict[str, RuleRecord]:
    """Return the record of every rule whose advice was tried."""
    rows = read_verified()
    return {rule: record_of([each for each in rows if each.rule == rule]) for rule in {each.rule for each in rows}}
