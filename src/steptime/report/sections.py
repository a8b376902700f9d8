"""The sections of a report, one row each; the terminal and the page show what this table builds."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from steptime.analysis.message_times import NetSummary
from steptime.analysis.summary_form import Summary, TrialSummary
from steptime.attached.form import AttachedRun
from steptime.diagnosis.form import Diagnosis
from steptime.document.charts.chart import Marks
from steptime.document.section import Pairs, Part, Section, Sentences
from steptime.report.advice import advice_section
from steptime.report.answer import first_answer, paper_line, published_section
from steptime.report.attached import attached_section
from steptime.report.breakdown_section import breakdown_section, pop_section
from steptime.report.clusters import host_section
from steptime.report.conditions import conditions_section, machine_in_a_line
from steptime.report.curves import scaling_section
from steptime.report.equivalence import equivalence_section
from steptime.report.expectations import account_section, expected_section
from steptime.report.forecasts.models import model_section
from steptime.report.groups import RankedGroup, ranked_groups
from steptime.report.learning.speed import learning_section
from steptime.report.learning.trainings import training_section
from steptime.report.links import link_section
from steptime.report.loaders import loader_section
from steptime.report.ranking import Quantiles, ranking_section, resource_section, work_section
from steptime.report.scenarios import what_if_section
from steptime.report.sweep import sweep_section
from steptime.report.terminal import SectionText, wrapped
from steptime.report.tiers import tier_section
from steptime.report.trial_names import Names
from steptime.report.unranked import unranked_section

if TYPE_CHECKING:  # likewise report/sweep.py
    from steptime.scaling.sweep_answer import SweepAnswer


@dataclass(frozen=True)
class StudyFindings:
    """Everything that a study found, as sections are made of it."""

    summary: Summary
    net: NetSummary | None = None
    """What the network benchmark found, if it was run into the same folder."""
    quantiles: Quantiles = field(default_factory=dict)
    """Of the step times of trials that have any; figures alone show them."""
    study_text: str = ""
    """The study file, word by word; a page alone shows it."""
    attached: AttachedRun | None = None
    """What the run of a user's own command found, if the folder is of one."""
    sweep: "SweepAnswer | None" = None
    """What runs of a user's own command at several numbers of workers found, if the folder is of them."""
    diagnosis: Diagnosis | None = None
    """What the rules say of its trials; None if they were not asked."""
    origin: str = ""
    """What was named on the command line, where its records were read into a folder that does not last."""

    @cached_property
    def names(self) -> Names:
        """What its trials are called."""
        return Names(self.summary.trials)

    @property
    def has_no_trials(self) -> bool:
        """Whether messages were timed or a user's own command was run, and no study."""
        of_command = self.attached is not None or self.sweep is not None
        return not self.summary.trials and (of_command or (self.net is not None and bool(self.net.rows)))

    @cached_property
    def marks(self) -> Marks:
        """What each series looks like in its figures."""
        series = {(trial.framework, self.names.short(trial)) for trial in self.measured}
        # Strategies one after the other: what is drawn in one chart is then most often one of them, or close by.
        return Marks(sorted(series, key=lambda pair: (pair[1].removeprefix(pair[0]), pair[0])))

    @property
    def is_ranked(self) -> bool:
        """Whether rankings are shown: steps are timed, or nothing else was found."""
        return bool(self.groups) or not (self.summary.accuracy or self.has_no_trials)

    @property
    def measured(self) -> list[TrialSummary]:
        """The trials that are ranked by their step time."""
        return [row.trial for group in self.groups for row in group.rows]

    @cached_property
    def groups(self) -> list[RankedGroup]:
        """Its rankings."""
        return ranked_groups(self.summary, self.names)


_TERMS = {
    "Step time": (
        "A step runs from one completed update to the next, on the slowest worker. The step time is the mean "
        "over the steps of several launches, each in its own processes; the steps before a trial became steady "
        "are left out, and no step for its length. Of the steps 50, 90 and 99 % take at most the median, p90 "
        "and p99. The launches of a group ran side by side in random order, so that whatever drifts hits all "
        "alike."
    ),
    "Throughput": (
        "The global batch divided by the step time, over all workers. The second number in a cell, and the "
        "stroke in a chart, is a {level} interval: it includes how launches differ, not only how steps do. "
        "The intervals of slowdown vs best in one table are simultaneous: of twenty tables with equal rows, one"
        " calls a row slower."
    ),
    "Slowdown vs best": (
        "It has an interval of its own, from launches that were neighbours in time. Where that interval holds"
        " 1, nothing was shown to be faster, and the rank carries an equals sign (=)."
    ),
    "Efficiency": ("Throughput per worker, divided by that of the baseline named with it."),
    "Marks": (
        "Under which conditions a number holds; they never remove a measurement. A dash (-) stands for what "
        "is not known, never for 0."
    ),
}
"""The terms of a ranking."""
_STEP_TERMS = {
    "Input wait": "What a step waits for its batch.",
    "Exposed comm.": "Communication with which nothing overlaps: the step waits for it.",
    "Sync wait": "What ranks wait for a later one, before they exchange anything.",
    "Rest": "What the other parts leave of a step.",
}
"""The parts of a step that their names do not explain."""
EXPLAINED = {
    *("samples/s", "step time", "median, p90, p99", "slowdown vs best", "scaling efficiency", "marks"),
    *(name.lower() for name in _STEP_TERMS),
}
"""Headings, or how they begin, that a page links to where it explains them."""


def reading_section(measured: Sequence[TrialSummary]) -> Section:
    """Return what the numbers of rankings mean: all of it for a page, the gist for a terminal."""
    level = f"{100 * measured[0].step_time_s.level:.0f} %" if measured else "95 %"
    gist = (
        f"Step times are means over steps; their intervals hold the true value with {level} confidence. Efficiency is "
        "throughput per worker, relative to the baseline named with it. = marks what cannot be distinguished from the "
        "best."
    )
    terms = [(name, text.format(level=level)) for name, text in _TERMS.items()]
    found: list[Part] = [Pairs([*terms, *_STEP_TERMS.items()], only="page")]
    if measured:
        found.append(Sentences([gist], "dim", only="terminal"))
    return Section("How to read this", found, id="reading")


SECTIONS: tuple[Callable[[StudyFindings], Section | None], ...] = (
    lambda found: attached_section(found.attached) if found.attached else None,
    lambda found: sweep_section(found.sweep) if found.sweep else None,
    lambda found: ranking_section(found.groups, found.quantiles, found.marks) if found.is_ranked else None,
    lambda found: scaling_section(found.measured, found.names, found.marks) if found.is_ranked else None,
    lambda found: (
        advice_section(found.summary, found.diagnosis, found.names)
        if found.diagnosis and (found.diagnosis.findings or found.diagnosis.unsettled)
        else None
    ),
    lambda found: expected_section(found.summary, found.diagnosis.expected, found.names) if found.diagnosis else None,
    lambda found: what_if_section(found.summary, found.diagnosis.what_if, found.names) if found.diagnosis else None,
    lambda found: training_section(found.summary),
    lambda found: account_section(found.summary, found.diagnosis.jobs, found.names) if found.diagnosis else None,
    lambda found: work_section(found.measured, found.names),
    lambda found: resource_section(found.measured, found.names),
    lambda found: tier_section(found.summary, found.names),
    lambda found: loader_section(found.summary),
    lambda found: model_section(found.summary),
    lambda found: breakdown_section(found.groups),
    lambda found: pop_section(found.groups),
    lambda found: host_section(found.summary, found.names),
    lambda found: learning_section(found.groups, found.marks),
    lambda found: published_section(found.summary),
    lambda found: link_section(found.net) if found.net and found.net.rows else None,
    lambda found: None if found.has_no_trials else equivalence_section(found.summary.equivalence, found.summary.trials),
    lambda found: unranked_section(found.summary, found.names),
    lambda found: conditions_section(found.summary, found.names, found.study_text),
    lambda found: reading_section(found.measured) if found.is_ranked else None,
    lambda found: (
        Section("How to read this", [Pairs([*_STEP_TERMS.items()], only="page")], id="reading")
        if found.attached
        else None
    ),
)
"""In the order in which they are shown; a study that has nothing for a section gets None."""


def sections(found: StudyFindings) -> list[Section]:
    """Return the sections of a report."""
    return [section for build in SECTIONS if (section := build(found)) is not None]


class WholeReport:
    """Everything that ``steptime report`` prints; it fits itself into the width it is printed with."""

    def __init__(self, found: StudyFindings) -> None:
        self._found = found

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        summary = self._found.summary
        for line, style in (
            (summary.study, "bold"),
            (summary.question, ""),
            (paper_line(summary), "dim"),
            (first_answer(summary), ""),
            (machine_in_a_line(summary.machine), "dim"),
        ):
            if line:
                yield wrapped(line, style, options)
        yield Text()
        yield SectionText(sections(self._found))
