"""``steptime report``: what a results folder says."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steptime.cli.anomaly import print_anomalies, with_anomalies

if TYPE_CHECKING:
    from steptime.cli.console import PlainConsole

_FILE_WIDTH = 140
"""Columns where no terminal sets them: a line per trial can be searched and cut."""


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A results folder.")],
    html: Annotated[Path | None, typer.Option(help="Also write one offline HTML page to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (docs/report-json.md) and nothing else.")] = False,
) -> None:
    """Show rankings with their intervals, scaling, the equivalence check and what failed."""
    show_report(folder, html=html, as_json=as_json)


def show_report(folder: Path, *, html: Path | None, as_json: bool) -> None:
    """Print the report of ``folder`` as a terminal report or JSON, and write the page if ``html`` is given.

    Raises StoreError when the folder cannot be read or the page cannot be written.
    """
    from steptime.cli.results import open_results
    from steptime.measurements.summary import summarise
    from steptime.model.measured_links import stored_links
    from steptime.predict.study_models import with_models

    store = open_results(folder)
    net = stored_links(store)
    summary = with_models(summarise(store), store)
    if as_json:
        from steptime.cli.tables import print_json

        print_json(with_anomalies({**summary.to_json(), "net": net.to_json() if net else []}, folder))
    else:
        from steptime.report.links import render_links
        from steptime.report.terminal import render

        console = report_console()
        if summary.trials or not net:
            console.print(render(summary))
        if net:
            console.print(render_links(net))
        print_anomalies(summary.to_json(), folder)
    if html is not None:
        from steptime.cli.streams import warn
        from steptime.report.html import write_page

        write_page(store, summary, html, net)
        warn([f"report: {html.resolve()}"])
    store.require_launches()


def report_console() -> "PlainConsole":
    """Return the console for reports: as wide as the terminal, or as a file may be."""
    import os

    from steptime.cli.console import PlainConsole

    sized = sys.stdout.isatty() or "COLUMNS" in os.environ
    return PlainConsole(width=None if sized else _FILE_WIDTH)
