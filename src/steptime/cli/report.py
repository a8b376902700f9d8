"""``steptime report``: what a results folder says."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steptime.cli.streams import say, warn

if TYPE_CHECKING:
    from steptime.cli.console import PlainConsole
    from steptime.measurements.net.form import NetSummary
    from steptime.measurements.store import Store
    from steptime.measurements.summary_form import Summary
    from steptime.predict.anomaly import Anomaly

_FILE_WIDTH = 140
"""Columns where no terminal sets them: a line per trial can be searched and cut."""


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A results folder.")],
    html: Annotated[Path | None, typer.Option(help="Also write one offline HTML page to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (docs/report-json.md) and nothing else.")] = False,
) -> None:
    """Show rankings with their intervals, scaling, the equivalence check and what failed."""
    found = read_report(folder)
    print_report(found, as_json=as_json)
    if html is not None:
        write_report_page(found, html)
    found.store.require_launches()


@dataclass(frozen=True)
class ReportedResults:
    """What a report shows of a results folder."""

    store: "Store"
    summary: "Summary"
    net: "NetSummary | None"


def read_report(folder: Path) -> ReportedResults:
    """Return what the report of ``folder`` shows; raises StoreError when the folder cannot be read."""
    from steptime.cli.results import open_results
    from steptime.measurements.summary import summarise
    from steptime.model.measured_links import stored_links
    from steptime.predict.study_models import with_models

    store = open_results(folder)
    net = stored_links(store)
    return ReportedResults(store, with_models(summarise(store), store), net)


def print_report(found: ReportedResults, *, as_json: bool) -> None:
    """Print a report for a terminal, or as JSON."""
    summary, net, folder = found.summary, found.net, found.store.path
    if as_json:
        from steptime.cli.tables import print_json

        print_json(_with_anomalies({**summary.to_json(), "net": net.to_json() if net else []}, folder))
        return
    from steptime.report.links import render_links
    from steptime.report.terminal import render

    console = report_console()
    if summary.trials or not net:
        console.print(render(summary))
    if net:
        console.print(render_links(net))
    _print_anomalies(summary.to_json(), folder)


def write_report_page(found: ReportedResults, path: Path, *, notice: str = "") -> None:
    """Write the page of a report, with a notice above it; raises StoreError when it cannot be written."""
    from steptime.report.html import write_page

    write_page(found.store, found.summary, path, found.net, notice=notice)
    warn([f"report: {path.resolve()}"])


def report_console() -> "PlainConsole":
    """Return the console for reports: as wide as the terminal, or as a file may be."""
    import os

    from steptime.cli.console import PlainConsole

    sized = sys.stdout.isatty() or "COLUMNS" in os.environ
    return PlainConsole(width=None if sized else _FILE_WIDTH)


def _with_anomalies(report: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a report's JSON with ``anomaly`` in each trial, null where nothing was predicted for the trial."""
    anomalies = _anomalies(report, folder)
    trials = [
        {**trial, "anomaly": anomalies[trial["id"]].to_json() if trial["id"] in anomalies else None}
        for trial in report["trials"]
    ]
    return {**report, "trials": trials}


def _print_anomalies(report: Mapping[str, Any], folder: Path) -> None:
    """Print a line for each step that its prediction does not explain, and one line for all other steps."""
    from steptime.units import format_seconds

    anomalies = _anomalies(report, folder)
    if not anomalies:
        return
    normal = sum(each.verdict == "normal" for each in anomalies.values())
    say(f"Against predictions made without them, {normal} of {len(anomalies)} steps are normal.")
    for name, each in anomalies.items():
        if each.verdict != "normal":
            phase = f"; look at {each.phase}" if each.phase else ""
            low, high = format_seconds(each.expected.low_s), format_seconds(each.expected.high_s)
            say(f"  {name}: {each.verdict}, {format_seconds(each.measured_s)} against {low} to {high}{phase}")


def _anomalies(report: Mapping[str, Any], folder: Path) -> "dict[str, Anomaly]":
    from steptime.errors import StoreError
    from steptime.predict.anomaly import anomalies_of

    steps = {trial["id"]: (trial.get("step_time_s") or {}).get("mean") for trial in report["trials"]}
    try:
        return anomalies_of(folder, {name: seconds for name, seconds in steps.items() if seconds})
    except StoreError as error:
        warn([f"no predictions for the measured steps: {error}"])
        return {}
