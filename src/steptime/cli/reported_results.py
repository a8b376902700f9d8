"""What a report shows of a results folder, and how it is printed."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steptime.analysis.summary import summarise
from steptime.attached.summary import attached_run
from steptime.cli.arguments import open_results
from steptime.cli.console import report_console
from steptime.cli.streams import print_json, say, warn
from steptime.cli.trackers import write_to_trackers
from steptime.diagnosis.expected import expected_steps
from steptime.diagnosis.job_accounts import job_accounts
from steptime.diagnosis.rules import diagnose, script_findings
from steptime.diagnosis.scenarios import scenarios
from steptime.errors import StoreError, UsageError
from steptime.extras import why_absent
from steptime.model.measured_links import stored_links
from steptime.report.attached import attached_section
from steptime.report.attached_answer import AttachedAnswer
from steptime.report.export_formats import PAGE
from steptime.report.links import link_section
from steptime.report.overview import MOST_LINES, overview
from steptime.report.scenarios import what_if_section
from steptime.report.sections import StudyFindings, WholeReport, sections
from steptime.report.sweep import sweep_section
from steptime.report.terminal import SectionText
from steptime.report.trial_names import Names
from steptime.results.joined_files import Recorded
from steptime.results.results_files import default_profile_path
from steptime.study.study_file import study_files
from steptime.sweep.plan import STORED

if TYPE_CHECKING:
    from steptime.analysis.message_times import NetSummary
    from steptime.analysis.summary_form import Summary
    from steptime.attached.form import AttachedRun
    from steptime.cli.trackers import ChosenTracker
    from steptime.diagnosis.form import Diagnosis
    from steptime.document.section import Section
    from steptime.predict.held_out import Anomaly
    from steptime.results.store import Store
    from steptime.scaling.sweep_answer import SweepAnswer


def kept_page(folder: Path) -> Path | None:
    """Return the page that a run wrote into its folder; None without one."""
    kept = folder / PAGE
    return kept if kept.is_file() else None


def write_figures_of(reported: "ReportedResults", folder: Path | None) -> None:
    """Write every figure of a report, where a folder for them was asked for."""
    if folder is not None:
        from steptime.report.figure_files import write_figures  # noqa: PLC0415 - draws charts

        written = write_figures(reported.summary, reported.sections, folder)
        warn([f"figures: {len(written)} files in {folder.resolve()}"])


def require_attached(reported: "ReportedResults", trackers: "Sequence[ChosenTracker]") -> None:
    """Raise UsageError if trackers are named for results of a study: they take those of attach alone."""
    if trackers and reported.attached is None:
        message = (
            f"--to {trackers[0].place.name} needs the results of steptime attach; {reported.store.path} has a study"
        )
        raise UsageError(message)


def tracker_failure(
    reported: "ReportedResults", trackers: "Sequence[ChosenTracker]", html: Path | None
) -> StoreError | None:
    """Write an attached run to trackers; return why it is not in all of them."""
    if not trackers or reported.attached is None:
        return None
    folder = reported.store.path
    page = html or (folder / PAGE if (folder / PAGE).is_file() else folder)
    written, failed = write_to_trackers(trackers, reported.attached, folder, page)
    warn(written)
    return StoreError("\n".join(failed)) if failed else None


def page_failure(found: "ReportedResults", path: Path | None) -> StoreError | None:
    """Write the page that was asked for; return why it could not be, since the report is shown all the same."""
    if path is not None:
        try:
            write_report_page(found, path)
        except StoreError as error:
            return error
    return None


@dataclass(frozen=True)
class ReportedResults:
    """What a report shows of a results folder."""

    store: "Store"
    summary: "Summary"
    net: "NetSummary | None"
    attached: "AttachedRun | None"
    diagnosis: "Diagnosis"
    sweep: "SweepAnswer | None" = None
    origin: str = ""
    """As ``StudyFindings`` has it."""

    @property
    def findings(self) -> StudyFindings:
        """What sections are made of."""
        return StudyFindings(
            self.summary,
            self.net,
            attached=self.attached,
            sweep=self.sweep,
            diagnosis=self.diagnosis,
            origin=self.origin,
        )

    @property
    def sections(self) -> "list[Section]":
        """All sections of the report."""
        return sections(self.findings)


def read_report(folder: Path, reference: Path | None = None, recorded: Recorded | None = None) -> ReportedResults:
    """Return what the report of ``folder`` shows.

    Args:
        folder: of results.
        reference: what steps are compared with instead of the folder's own profile.
        recorded: of all nodes of an attached job, instead of what the folder holds of one.

    Raises StoreError when the folder cannot be read, and UsageError when the reference cannot.
    """
    store = open_results(folder)
    net = stored_links(store)
    recorded = recorded or store.attached()
    attached = attached_run(*recorded) if recorded else None
    summary = _with_models(summarise(store), store)
    try:
        # The profile of a user's own script has no trials to set beside.
        expected = [] if recorded and reference is None else expected_steps(folder, summary, reference)
    except StoreError as error:
        if reference is not None:
            raise
        warn([f"no predictions for the measured steps: {error}"])
        expected = []
    explained = {"expected": expected, "what_if": scenarios(store), "jobs": job_accounts(store, attached)}
    diagnosis = diagnose(store, summary, net).model_copy(update=explained)
    if attached is not None:
        diagnosis.findings.extend(script_findings(attached))
    return ReportedResults(store, summary, net, attached, diagnosis, _swept(store))


def _with_models(summary: "Summary", store: "Store") -> "Summary":
    """Return the summary with what the models of its study predict; most studies ask for none."""
    if not (store.study_json.get("performance_models") or store.study_json.get("predictions")):
        return summary
    from steptime.predict.study_predictions import with_models  # noqa: PLC0415 - only of such a study

    return with_models(summary, store)


def _swept(store: "Store") -> "SweepAnswer | None":
    """Return what a sweep found, whose model takes longer to import than most reports; None of other results."""
    if store.get(STORED) is None:
        return None
    from steptime.sweep.answer import swept  # noqa: PLC0415 - only of a sweep

    return swept(store)


def print_what_if(found: ReportedResults) -> None:
    """Print what steps would take without one of their phases."""
    section = what_if_section(found.summary, found.diagnosis.what_if, Names(found.summary.trials))
    if section is None:
        warn([f"no breakdown to simulate from: steptime run STUDY breakdown=true -o {found.store.path}"])
    else:
        report_console().print(SectionText([section]))


def print_json_report(found: ReportedResults) -> None:
    """Print a report as JSON."""
    net = found.net.to_json() if found.net else []
    attached = {"attached": found.attached.to_json()} if found.attached else {}
    attached |= {"sweep": found.sweep.model_dump()} if found.sweep else {}
    whole = {**found.summary.to_json(), "net": net, "diagnosis": found.diagnosis.to_json(), **attached}
    print_json(_with_anomalies(whole, found.store.path))


def print_overview(
    found: ReportedResults, *, page: Path | None, next_steps: Sequence[str], lines: int = MOST_LINES
) -> None:
    """Print the short report, of so many lines at most; one of messages alone is whole."""
    if found.attached:
        report_console().print(AttachedAnswer(found.attached))
        return
    if found.sweep:
        print_whole_report(found)
        return
    if found.net and not found.summary.trials:
        print_whole_report(found)
        return
    last = [f"Page: {page.resolve()}"] if page else []
    last += ["Next:", *(f"  {step}" for step in next_steps)] if next_steps else []
    report_console().print(overview(found.summary, lines - len(last), found.diagnosis))
    say(*last)


def print_whole_report(found: ReportedResults) -> None:
    """Print everything that a report has for a terminal."""
    if found.attached:
        links = [link_section(found.net)] if found.net and found.net.rows else []
        report_console().print(SectionText([attached_section(found.attached), *links]))
    elif found.sweep:
        report_console().print(SectionText([sweep_section(found.sweep)]))
    elif found.net and not found.summary.trials:
        report_console().print(SectionText([link_section(found.net)]))
    else:
        report_console().print(WholeReport(found.findings))


def write_report_page(found: ReportedResults, path: Path, *, notice: str = "") -> None:
    """Write the page of a report, with a notice above it; raises StoreError when it cannot be written."""
    from steptime.report.page import write_page  # noqa: PLC0415 - draws charts

    write_page(found.store, found.findings, path, notice=notice)
    if undrawn := why_absent("page"):
        warn([f"{path}: {undrawn}"])


def next_steps_of(found: ReportedResults, page: Path | None) -> list[str]:
    """Return the commands that go on from a short report."""
    folder = found.store.path
    profile = default_profile_path(folder)
    steps = [(["steptime", "report", "--all", str(folder)], "everything")]
    if page is None:
        steps.append((["steptime", "report", str(folder), "--html", str(folder / PAGE)], "a page with figures"))
    if profile.is_file():
        relative = folder.with_name(profile.name)
        steps += [(words, "how it scales") for words in _predicting(relative, profile)]
    elif any(trial.breakdown for trial in found.summary.trials):
        steps.append((["steptime", "fit", str(folder)], "a performance model, for predictions"))
    elif found.summary.study in study_files():
        again = ["steptime", "run", found.summary.study, "breakdown=true", "-o", str(folder)]
        steps.append((again, "where the time of a step goes"))
    return [f"{shlex.join(words)}  # {why}" for words, why in steps]


def _predicting(shown: Path, profile: Path) -> list[list[str]]:
    """Return the command that a profile answers, under the name that a reader knows; nothing of one without models."""
    from steptime.cli.fitted_profile import predicting_command  # noqa: PLC0415 - a report without a profile needs none
    from steptime.fitting.profile import read_profile  # noqa: PLC0415 - likewise

    try:
        return [predicting_command(read_profile(profile), shown)]
    except (StoreError, ValueError):  # another schema, an attached run
        return []


def _with_anomalies(report: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a report's JSON with ``anomaly`` in each trial, null where nothing was predicted for the trial."""
    anomalies = _anomalies(report, folder)
    trials = [
        {**trial, "anomaly": anomalies[trial["id"]].to_json() if trial["id"] in anomalies else None}
        for trial in report["trials"]
    ]
    return {**report, "trials": trials}


def _anomalies(report: Mapping[str, Any], folder: Path) -> "dict[str, Anomaly]":
    from steptime.predict.held_out import anomalies_of  # noqa: PLC0415 - JSON alone has anomalies

    steps = {trial["id"]: (trial.get("step_time_s") or {}).get("mean") for trial in report["trials"]}
    try:
        return anomalies_of(folder, {name: seconds for name, seconds in steps.items() if seconds})
    except StoreError:
        return {}  # read_report has said so
