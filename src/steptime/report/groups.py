"""The ranking, group by group, with each place's trial beside it."""

from dataclasses import dataclass

from steptime.measurements.summary_form import Place, Summary, TrialSummary
from steptime.report.naming import Names
from steptime.report.wording import Shown, baseline, ratio, share, step_time, throughput


@dataclass(frozen=True)
class Row:
    """One line of a ranking: a place, its trial, and what is shown of it."""

    place: Place
    trial: TrialSummary
    name: str

    @property
    def rate(self) -> Shown:
        """Samples per second."""
        return throughput(self.trial.throughput_samples_per_s)

    @property
    def time(self) -> Shown:
        """The step time."""
        return step_time(self.trial.step_time_s)

    @property
    def ratio(self) -> Shown:
        """The step time divided by the best's; ``best`` for the best itself."""
        return Shown("best", "") if self.place.rank == 1 else ratio(self.place.ratio_to_best)

    @property
    def efficiency(self) -> Shown:
        """Throughput per worker relative to the baseline's."""
        return share(self.trial)


@dataclass(frozen=True)
class RankedGroup:
    """Trials that may be compared, best first."""

    title: str
    rows: list[Row]

    @property
    def tied(self) -> list[Row]:
        """The best, and those that cannot be told from it."""
        return [row for row in self.rows if row.place.rank == 1 or row.place.tied_with_best]

    @property
    def flags(self) -> list[str]:
        """The flags of all its trials, each once."""
        return list(dict.fromkeys(flag for row in self.rows for flag in row.trial.flags))

    @property
    def baseline(self) -> str:
        """What all its efficiencies are relative to; empty when that differs or when there are none."""
        found = {baseline(row.trial) for row in self.rows} - {""}
        return found.pop() if len(found) == 1 else ""

    @property
    def has_efficiency(self) -> bool:
        """Whether any of its trials is compared with another number of workers."""
        return any(baseline(row.trial) for row in self.rows)

    def rank(self, row: Row) -> str:
        """The rank of a row, with an equals sign where nothing was shown to be faster."""
        return f"{row.place.rank}{'=' if row in self.tied and len(self.tied) > 1 else ''}"

    def efficiency(self, row: Row) -> Shown:
        """The efficiency of a row, with its baseline unless that is the whole group's."""
        own = "" if self.baseline else baseline(row.trial)
        return Shown(row.efficiency.text, f"{row.efficiency.interval}, {own}" if own else row.efficiency.interval)


def ranked_groups(summary: Summary, names: Names) -> list[RankedGroup]:
    """Return the groups in the order of the summary."""
    trials = {trial.id: trial for trial in summary.trials}
    groups: dict[str, list[Row]] = {}
    for place in summary.ranking:
        trial = trials[place.trial]
        groups.setdefault(place.group, []).append(Row(place, trial, names.short(trial)))
    return [RankedGroup(title, sorted(rows, key=lambda row: row.place.rank)) for title, rows in groups.items()]


def unranked(summary: Summary) -> list[TrialSummary]:
    """Return the trials that have no place in any ranking."""
    ranked = {place.trial for place in summary.ranking}
    return [trial for trial in summary.trials if trial.id not in ranked]
