"""Which parts of a user's own step changed, as a table."""

from collections.abc import Sequence

from steptime.analysis.compared.form import ChangedPart, ChangeOfTrial
from steptime.attached.step_parts import title_of
from steptime.document.number_format import Shown, number, seconds_apart, signed, time_unit
from steptime.document.section import Column, Section, SectionTable, TableRow, cells

_LEAST = 0.01
"""Of the baseline's step: a smaller difference is not shown."""
_ABOUT = (
    "Mean times of the parts of a step over runs: those whose change is shown, and the largest other one. Each "
    "interval is at 95 % by itself."
)


def part_section(trial: ChangeOfTrial, names: tuple[str, str]) -> Section | None:
    """Return the parts whose change is shown, and the largest that may have changed; None without any."""
    large = [part for part in trial.parts if abs(part.difference_s.value_s) >= _LEAST * trial.first_step_s]
    shown = [part for part in large if part.is_shown]
    others = [part for part in large if not part.is_shown and part.difference_s.low_s is not None]
    listed = [*shown, *others[:1]]
    if not listed:
        return None
    columns = [*map(Column, names), Column("difference")]
    rows = [TableRow(title_of(part.name), cells(*_times(part, trial.first_step_s))) for part in listed]
    table = SectionTable(columns, rows, "part", layouts=("wide", "stacked"), label="Parts")
    return Section("Parts of the step", [table], _ABOUT)


def _times(part: ChangedPart, step_s: float) -> Sequence[str | Shown]:
    factor, unit = time_unit(step_s)
    change = part.difference_s
    apart = seconds_apart(change.value_s, change.low_s, change.high_s, (factor, unit))
    interval = " to ".join(map(signed, apart.interval.split(" to ")))
    before, after = (f"{number(each * factor)} {unit}" for each in (part.first_s, part.second_s))
    return before, after, Shown(signed(apart.text), interval)
