"""What results can be written as, one row a format: what it takes, what it writes, and into which file.

``report --format`` and ``compare --format`` print text, ``export --to`` writes files, ``--to`` of ``report`` and
``attach`` writes to trackers. A new format is a row of ``EXPORTS`` and the function that writes it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from steptime.analysis.compared.form import ChangeReport
    from steptime.document.section import Section
    from steptime.exports.trackers.tracked_run import TrackedRun
    from steptime.report.sections import StudyFindings
    from steptime.results.store import Store

PAGE = "report.html"
"""In a results folder, where a run writes its page."""


@dataclass(frozen=True)
class ExportFormat:
    """One format of one kind of results."""

    name: str
    """As an option names it."""
    about: str = ""
    """What it is for, behind the name in ``--help``; empty where the name is enough."""


@dataclass(frozen=True)
class ReportFormat(ExportFormat):
    """The report of a results folder as text."""

    text: "Callable[[StudyFindings], str] | None" = None
    """None of what the verb prints by itself: as wide as the terminal, or with what is not in the findings."""


@dataclass(frozen=True)
class SectionFormat(ExportFormat):
    """Sections below a title, of whatever a verb prints, as text."""

    text: "Callable[[str, Sequence[Section]], str] | None" = None
    """As of a report."""


@dataclass(frozen=True)
class ComparisonFormat(ExportFormat):
    """A comparison of two results folders as text."""

    text: "Callable[[ChangeReport], str] | None" = None
    """As of a report."""


@dataclass(frozen=True, kw_only=True)
class FileFormat(ExportFormat):
    """Files of a results folder for another program."""

    write: "Callable[[Sequence[Store], Path, str | None], list[Path]]"
    """Takes the folders, where to, and the one trial that is wanted; returns the paths."""
    below: str = ""
    """The folder of its own in which it writes below the one that is given; empty where it needs none."""
    several: bool = False
    """Whether it takes several results folders."""
    of_trial: bool = False
    """Whether it can be of one trial."""


@dataclass(frozen=True, kw_only=True)
class TrackerFormat(ExportFormat):
    """A place that shows runs; its name is that of the extra that it needs."""

    write: "Callable[[TrackedRun, str | None, Path], str]"
    """Takes the run, where to (None: the place's own settings) and the results folder; returns where it is."""


def _markdown(findings: "StudyFindings") -> str:
    from steptime.report.overview import sentences
    from steptime.report.sections import sections

    title = " ".join(sentences(findings.summary)) or findings.summary.study
    return _sections_markdown(title, sections(findings))


def _csv(findings: "StudyFindings") -> str:
    from steptime.report.sections import sections

    return _sections_csv("", sections(findings))


def _latex(findings: "StudyFindings") -> str:
    from steptime.report.sections import sections

    return _sections_latex("", sections(findings))


def _sections_markdown(title: str, sections: "Sequence[Section]") -> str:
    from steptime.report.changes import markdown

    return markdown(title, sections)


def _sections_csv(_: str, sections: "Sequence[Section]") -> str:
    from steptime.document.table_formats import csv_of

    return csv_of(sections).rstrip("\n")


def _sections_latex(_: str, sections: "Sequence[Section]") -> str:
    from steptime.document.table_formats import latex_of

    return latex_of(sections)


def _compared_markdown(change: "ChangeReport") -> str:
    from steptime.report.changes import change_sections, headline, markdown

    return markdown(headline(change), change_sections(change))


def _parquet(stores: "Sequence[Store]", folder: Path, _: str | None) -> list[Path]:
    from steptime.exports.export import export_tables

    return export_tables(stores, folder, "parquet")


def _csv_tables(stores: "Sequence[Store]", folder: Path, _: str | None) -> list[Path]:
    from steptime.exports.export import export_tables

    return export_tables(stores, folder, "csv")


def _chrome(stores: "Sequence[Store]", folder: Path, trial: str | None) -> list[Path]:
    from steptime.exports.chrome_trace import export_traces

    return export_traces(stores[0], folder, trial)


def _talp(stores: "Sequence[Store]", folder: Path, _: str | None) -> list[Path]:
    from steptime.exports.talp import export_talp

    return export_talp(stores[0], folder)


def _otava(stores: "Sequence[Store]", folder: Path, _: str | None) -> list[Path]:
    from steptime.exports.otava import export_history

    return export_history(stores, folder)


def _mllog(stores: "Sequence[Store]", folder: Path, _: str | None) -> list[Path]:
    from steptime.exports.foreign_formats import export_mllog

    return export_mllog(stores[0], folder)


def _extrap(stores: "Sequence[Store]", folder: Path, _: str | None) -> list[Path]:
    from steptime.exports.foreign_formats import export_extrap

    return export_extrap(stores[0], folder)


def _otel(run: "TrackedRun", target: str | None, _: Path) -> str:
    from steptime.exports.trackers.metrics import write_otel

    return write_otel(run, target)


def _mlflow(run: "TrackedRun", target: str | None, _: Path) -> str:
    from steptime.exports.trackers.experiment_runs import write_mlflow

    return write_mlflow(run, target)


def _wandb(run: "TrackedRun", target: str | None, _: Path) -> str:
    from steptime.exports.trackers.experiment_runs import write_wandb

    return write_wandb(run, target)


def _tensorboard(run: "TrackedRun", target: str | None, folder: Path) -> str:
    from steptime.exports.trackers.experiment_runs import write_tensorboard

    return write_tensorboard(run, target, folder)


def _prometheus(run: "TrackedRun", target: str | None, folder: Path) -> str:
    from steptime.exports.trackers.metrics import write_prometheus

    return write_prometheus(run, target, folder)


EXPORTS: tuple[ExportFormat, ...] = (
    ReportFormat("text"),
    ReportFormat("json", "docs/report-json.md"),
    ReportFormat("markdown", "all tables", _markdown),
    ReportFormat("csv", "all tables", _csv),
    ReportFormat("latex", "all tables", _latex),
    SectionFormat("text"),
    SectionFormat("json"),
    SectionFormat("markdown", "all tables", _sections_markdown),
    SectionFormat("csv", "all tables", _sections_csv),
    SectionFormat("latex", "all tables", _sections_latex),
    ComparisonFormat("text"),
    ComparisonFormat("markdown", "for a pull request", _compared_markdown),
    FileFormat("parquet", "tables of trials, steps and epochs", write=_parquet, several=True),
    FileFormat("csv", "the same", write=_csv_tables, several=True),
    FileFormat("chrome", "a trace for Perfetto", write=_chrome, of_trial=True),
    FileFormat("talp", "POP efficiencies for TALP-Pages", write=_talp, below="talp"),
    FileFormat("otava", "the history of several folders for Apache Otava", write=_otava, several=True),
    FileFormat("mllog", "trainings as MLPerf's log", write=_mllog, below="mllog"),
    FileFormat("extrap", "step times for Extra-P", write=_extrap, below="extrap"),
    TrackerFormat("otel", "a collector's address", write=_otel),
    TrackerFormat("mlflow", "a tracking URI", write=_mlflow),
    TrackerFormat("wandb", "a project", write=_wandb),
    TrackerFormat("tensorboard", "a folder of runs", write=_tensorboard),
    TrackerFormat("prometheus", "a file, a textfile collector's folder, or a Pushgateway's address", write=_prometheus),
)
"""The first of each kind is what a verb writes where none is named."""

Form = TypeVar("Form", bound=ExportFormat)


def formats_of(kind: type[Form]) -> dict[str, Form]:
    """Return the formats of one kind of results, by name."""
    return {row.name: row for row in EXPORTS if isinstance(row, kind)}


def format_help(kind: type[ExportFormat]) -> str:
    """Return the names of the formats of a kind, each with what it is for."""
    return "; ".join(f"{row.name}: {row.about}" if row.about else name for name, row in formats_of(kind).items()) + "."
