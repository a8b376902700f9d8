"""The sections of a report, one row each; the terminal and the page show what this table builds."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from steptime.measurements.net.form import NetSummary
from steptime.measurements.summary_form import Summary
from steptime.report.asynchrony import learning_section
from steptime.report.breakdown_section import breakdown_section
from steptime.report.charts.marks import Marks
from steptime.report.clusters import host_section
from steptime.report.groups import RankedGroup, ranked_groups
from steptime.report.links import link_section
from steptime.report.loaders import loader_section
from steptime.report.models import model_section
from steptime.report.section import Section
from steptime.report.tiers import tier_section
from steptime.report.trainings import training_section
from steptime.report.trial_names import Names


@dataclass(frozen=True)
class StudyFindings:
    """Everything that a study found, as sections are made of it."""

    summary: Summary
    net: NetSummary | None = None
    """What the network benchmark found, if it was run into the same folder."""

    @cached_property
    def names(self) -> Names:
        """What its trials are called."""
        return Names(self.summary.trials)

    @property
    def is_of_links_alone(self) -> bool:
        """Whether the network benchmark was run and nothing was trained."""
        return not self.summary.trials and self.net is not None and bool(self.net.rows)

    @cached_property
    def marks(self) -> Marks:
        """What each series looks like in its figures."""
        measured = [row.trial for group in self.groups for row in group.rows]
        series = {(trial.framework, self.names.short(trial)) for trial in measured}
        # Strategies one after the other: what is drawn in one chart is then most often one of them, or close by.
        return Marks(sorted(series, key=lambda pair: (pair[1].removeprefix(pair[0]), pair[0])))

    @cached_property
    def groups(self) -> list[RankedGroup]:
        """Its rankings."""
        return ranked_groups(self.summary, self.names)


SECTIONS: tuple[Callable[[StudyFindings], Section | None], ...] = (
    lambda found: training_section(found.summary),
    lambda found: tier_section(found.summary, found.names),
    lambda found: loader_section(found.summary),
    lambda found: model_section(found.summary),
    lambda found: breakdown_section(found.groups),
    lambda found: host_section(found.summary, found.names),
    lambda found: learning_section(found.groups, found.marks),
    lambda found: link_section(found.net) if found.net and found.net.rows else None,
)
"""In the order in which they are shown; a study that has nothing for a section gets None."""


def sections(found: StudyFindings) -> list[Section]:
    """Return the sections of a report."""
    return [section for build in SECTIONS if (section := build(found)) is not None]
