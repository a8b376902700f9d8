"""``steptime report``: the findings of a results folder.

``steptime demo``: a recorded race, shown as any other results are.
"""

import shlex
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import steptime
from steptime.analysis.summary import summarise
from steptime.attached.summary import attached_run
from steptime.cli.arguments import open_results
from steptime.cli.console import report_console
from steptime.cli.machines import report_machines
from steptime.cli.section_output import PAGE
from steptime.cli.streams import print_json, say, warn
from steptime.cli.trackers import ToTrackers, chosen_trackers, write_to_trackers
from steptime.diagnosis.expected import expected_steps
from steptime.diagnosis.job_accounts import job_accounts
from steptime.diagnosis.rules import diagnose, script_findings
from steptime.diagnosis.scenarios import scenarios
from steptime.errors import StoreError, UsageError, choices_message
from steptime.extras import why_absent
from steptime.fitting.profile import default_profile_path
from steptime.model.measured_links import stored_links
from steptime.plain_file import PlainFolder
from steptime.predict.study_predictions import with_models
from steptime.report.attached import attached_section
from steptime.report.attached_answer import AttachedAnswer
from steptime.report.conditions import machine_in_a_line
from steptime.report.expectations import what_if_section
from steptime.report.export_formats import ReportFormat, format_help, formats_of
from steptime.report.links import link_section
from steptime.report.overview import MOST_LINES, overview
from steptime.report.sections import StudyFindings, sections
from steptime.report.sweep import sweep_section
from steptime.report.terminal import SectionText, WholeReport
from steptime.report.trial_names import Names
from steptime.results.joined_files import Recorded, are_of_machines, reported_folder
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


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...",
            help="A results folder; of several machines several; of a script on several nodes what each wrote: "
            "folders, .jsonl files, tars, or - for one from a pipe.",
        ),
    ],
    html: Annotated[Path | None, typer.Option(help="Also write one offline HTML page to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (docs/report-json.md) and nothing else.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Show every trial, phase, interval and note instead of the short report.")
    ] = False,
    what_if: Annotated[
        bool,
        typer.Option("--what-if", help="Show what steps would take without a straggler, input, on a faster network."),
    ] = False,
    reference: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Expect what a profile of another machine, or a CSV file of figures, says."),
    ] = None,
    form: Annotated[
        str,
        typer.Option("--format", help=format_help(ReportFormat), autocompletion=lambda: list(formats_of(ReportFormat))),
    ] = "text",
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write every figure as SVG, PNG and PDF with a caption.")
    ] = None,
    to: ToTrackers = None,
) -> None:
    """Show who is fastest, with intervals, the equivalence check and what failed."""
    formats = formats_of(ReportFormat)
    if form not in formats:
        raise UsageError(choices_message("format", form, formats))
    trackers = chosen_trackers(to)
    if are_of_machines(folders):
        of_one = {"--what-if": what_if, "--reference": reference, "--figures": figures, "--to": to}
        report_machines(folders, "json" if as_json else form, html, of_one)
        return
    with reported_folder(folders) as (folder, recorded):
        found = read_report(folder, reference, recorded)
        _require_attached(found, trackers)
        failure = _page_failure(found, html)
        html = None if failure else html
        as_json = as_json or form == "json"
        everything = everything or (reference is not None and not what_if)
        if as_json:
            print_json_report(found)
        elif write := formats[form].text:
            say(write(found.findings))
        elif what_if:
            _print_what_if(found)
        elif everything:
            print_whole_report(found)
        else:
            page = html or _kept_page(folder)
            print_overview(found, page=page, next_steps=_next_steps(found, page))
        if html is not None and (as_json or everything or form != "text"):
            warn([f"report: {html.resolve()}"])
        _write_figures(found, figures)
        failure = _tracker_failure(found, trackers, html) or failure
        if failure is not None:
            raise failure
        found.store.require_launches()


def _kept_page(folder: Path) -> Path | None:
    kept = folder / PAGE
    return kept if kept.is_file() else None


def _write_figures(reported: "ReportedResults", folder: Path | None) -> None:
    if folder is not None:
        from steptime.report.figure_files import write_figures  # noqa: PLC0415 - draws charts

        written = write_figures(reported.summary, reported.sections, folder)
        warn([f"figures: {len(written)} files in {folder.resolve()}"])


def _require_attached(reported: "ReportedResults", trackers: "Sequence[ChosenTracker]") -> None:
    if trackers and reported.attached is None:
        message = (
            f"--to {trackers[0].place.name} needs the results of steptime attach; {reported.store.path} has a study"
        )
        raise UsageError(message)


def _tracker_failure(
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


def _page_failure(found: "ReportedResults", path: Path | None) -> StoreError | None:
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

    @property
    def findings(self) -> StudyFindings:
        """What sections are made of."""
        return StudyFindings(self.summary, self.net, attached=self.attached, sweep=self.sweep, diagnosis=self.diagnosis)

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
    summary = with_models(summarise(store), store)
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


def _swept(store: "Store") -> "SweepAnswer | None":
    """Return what a sweep found, whose model takes longer to import than most reports; None of other results."""
    if store.get(STORED) is None:
        return None
    from steptime.sweep.answer import swept  # noqa: PLC0415 - only of a sweep

    return swept(store)


def _print_what_if(found: ReportedResults) -> None:
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


def print_overview(found: ReportedResults, *, page: Path | None, next_steps: Sequence[str]) -> None:
    """Print the short report; one of messages alone is whole."""
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
    report_console().print(overview(found.summary, MOST_LINES - len(last), found.diagnosis))
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


def _next_steps(found: ReportedResults, page: Path | None) -> list[str]:
    """Return the commands that go on from a short report."""
    folder = found.store.path
    profile = default_profile_path(folder)
    steps = [(["steptime", "report", "--all", str(folder)], "everything")]
    if page is None:
        steps.append((["steptime", "report", str(folder), "--html", str(folder / PAGE)], "a page with figures"))
    if profile.is_file():
        relative = folder.with_name(profile.name)
        steps.append((["steptime", "predict", str(relative), "--workers", "4,8,16"], "how it scales"))
    elif any(trial.breakdown for trial in found.summary.trials):
        steps.append((["steptime", "fit", str(folder)], "a performance model, for predictions"))
    elif found.summary.study in study_files():
        again = ["steptime", "run", found.summary.study, "breakdown=true", "-o", str(folder)]
        steps.append((again, "where the time of a step goes"))
    return [f"{shlex.join(words)}  # {why}" for words, why in steps]


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


STUDY = "four-frameworks"
RECORDING = Path(steptime.__file__).parent / "studies" / "recorded" / f"{STUDY}.tar.xz"
"""A results folder and the profile beside it, made by ``benchmarks/demo/record.py``."""
WORKERS = "2,4,8,16"
CHANGES = ("framework=pytorch", "strategy=allreduce", "workers_per_host=2", "interconnect.bandwidth=10Gbit/s")
"""What the demo predicts: the measured hosts, several of them, behind an ordinary link."""


def demo(
    output: Annotated[
        Path, typer.Option("-o", "--output-dir", help="Folder for the recorded results and their page.")
    ] = Path("steptime-demo"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON and nothing else.")] = False,
) -> None:
    """Show the recorded results of a real race: ranking, breakdown and prediction. Nothing is measured or installed."""
    from steptime.cli.predict import predict  # noqa: PLC0415 - the demo alone predicts

    folder = unpack(output)
    profile = output / f"{STUDY}.profile.json"
    found = read_report(folder)
    mark = _recorded(found)
    if as_json:
        warn([mark])
        print_json_report(found)
        return
    say(mark, "")
    page = folder / PAGE
    print_overview(found, page=page, next_steps=())
    question = shlex.join(["steptime", "predict", str(profile), "--workers", WORKERS, *CHANGES])
    say("", "And on several such hosts? This is what the performance model fitted to these results predicts:", "")
    predict(profile, list(CHANGES), workers=WORKERS, curve=None, as_json=False)
    sys.stdout.flush()
    write_report_page(found, page, notice=mark)
    say("", "Next:")
    say("  steptime run quickstart            # the same on this machine, with ResNet-50 (minutes; 3 GB of frameworks)")
    say(f"  {shlex.join(['steptime', 'report', '--all', str(folder)])}")
    say(f"  {question.replace('10Gbit/s', '10Gbit/s,100Gbit/s')}")


def unpack(target: Path) -> Path:
    """Write the recording into ``target``, where it may lie already; return the results folder in it.

    Raises UsageError where a file in ``target`` has the name of one of the recording and holds something else.
    """
    folder = PlainFolder(target)
    files = recorded_files()
    kept = {name: folder.read(target / name) for name in files if (target / name).exists()}
    if changed := [name for name, data in kept.items() if data != files[name]]:
        message = f"{target / changed[0]} is not the file of the demo; name another folder: steptime demo -o DIR"
        raise UsageError(message)
    for name in files.keys() - kept.keys():
        folder.put(target / name, files[name])
    return target / STUDY


def recorded_files() -> dict[str, bytes]:
    """Return the files of the recording by their names."""
    with tarfile.open(RECORDING) as archive:
        return {member.name: file.read() for member in archive if (file := archive.extractfile(member))}


def _recorded(found: ReportedResults) -> str:
    """Return where and when the results were measured, in a sentence."""
    machine = {name: value for name, value in found.summary.machine.items() if name != "hostname"}
    launches = (launch for trial in found.summary.trials for launch in found.store.launches(trial.id))
    days = sorted({launch.started_at[:10] for launch in launches})
    return f"Recorded on {machine_in_a_line(machine)}, {' and '.join(days)}. Nothing was measured on this machine."
