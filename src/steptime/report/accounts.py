"""What frameworks themselves say of their steps, compared with the ablation."""

from collections.abc import Sequence
from dataclasses import dataclass

from steptime.measurements.ablation.form import Account
from steptime.measurements.ablation.records import TOGETHER
from steptime.measurements.json_form import Interval
from steptime.report.breakdown import TITLES, BreakdownRow
from steptime.report.number_format import UNKNOWN, Shown, listed, seconds, time_unit

EXPLANATION = (
    "The framework's own timers and marks time the same part of a step in another way. A difference is of paired "
    "blocks; accounts agree where its whole interval is within 2 % of the step, and differ where all of it is beyond. "
    "Timers see a backward pass that is slowed down by what is sent meanwhile; the ablation counts that slowing as "
    "exposed communication."
)
_VERDICTS = {True: "agrees", False: "differs", None: "not shown"}


@dataclass(frozen=True)
class AccountRow:
    """One duration of one trial, by the framework and by the ablation."""

    name: str
    """Of the trial."""
    source: str
    phase: str
    native: Shown
    by_ablation: Shown
    difference: Shown
    verdict: str
    """``agrees``, ``differs``, ``not shown`` where neither is, or a dash where there is no ablation to compare with."""


def account_rows(rows: Sequence[BreakdownRow]) -> list[AccountRow]:
    """Return what the frameworks of all trials say, in the trials' order."""
    return [_row(row, account) for row in rows for account in row.breakdown.accounts]


def disagreements(row: BreakdownRow) -> list[str]:
    """Return a sentence for each source of a trial that differs from the ablation."""
    differing = [_row(row, account) for account in row.breakdown.accounts if account.agrees is False]
    return [
        f"{source} and ablation differ in "
        + listed([f"{each.phase}, by {each.difference.line}" for each in differing if each.source == source])
        for source in dict.fromkeys(each.source for each in differing)
    ]


def _row(row: BreakdownRow, account: Account) -> AccountRow:
    unit = time_unit(row.breakdown.step_s.value_s)
    return AccountRow(
        name=row.row.name,
        source=account.source,
        phase=TOGETHER.join(TITLES.get(name, name) for name in account.phase.split(TOGETHER)),
        native=_shown(account.native_s, unit),
        by_ablation=_shown(account.by_ablation_s, unit),
        difference=_shown(account.difference_s, unit),
        verdict=_VERDICTS[account.agrees] if account.by_ablation_s else UNKNOWN,
    )


def _shown(found: Interval | None, unit: tuple[float, str]) -> Shown:
    return seconds(found.value, found.low, found.high, unit) if found else Shown(UNKNOWN, "")
