"""The sections of a report, one row each; the terminal and the page show what this table builds."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from steptime.measurements.net.form import NetSummary
from steptime.measurements.summary_form import Summary
from steptime.report.clusters import host_section
from steptime.report.groups import RankedGroup, ranked_groups
from steptime.report.loaders import loader_section
from steptime.report.models import model_section
from steptime.report.section import Section
from steptime.report.tiers import tier_section
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

    @cached_property
    def groups(self) -> list[RankedGroup]:
        """Its rankings."""
        return ranked_groups(self.summary, self.names)


SECTIONS: tuple[Callable[[StudyFindings], Section | None], ...] = (
    lambda found: tier_section(found.summary, found.names),
    lambda found: loader_section(found.summary),
    lambda found: model_section(found.summary),
    lambda found: host_section(found.summary, found.names),
)
"""In the order in which they are shown; a study that has nothing for a section gets None."""


def sections(found: StudyFindings) -> list[Section]:
    """Return the sections of a report."""
    return [section for build in SECTIONS if (section := build(found)) is not None]
