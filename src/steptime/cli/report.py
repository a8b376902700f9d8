"""``steptime report``: the findings of a results folder."""

import importlib
import os
import shlex
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from steptime.cli.streams import say, wrote
from steptime.cli.trackers import ToTrackers, chosen_trackers
from steptime.errors import UsageError, choices_message
from steptime.report.export_formats import ReportFormat, format_help, formats_of

_THREADS = "OPENBLAS_NUM_THREADS"
_UNUSED = {"f2py", "testing"}
"""Parts of NumPy."""


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...",
            help="Results folders, one for each machine; for a script on several nodes what each node wrote: "
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
        typer.Option("--what-if", help="Show steps without a straggler, without input wait, on a faster network."),
    ] = False,
    reference: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Compare with a profile of another machine or a CSV file of figures."),
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
    _import_numpy_with_one_thread()
    from steptime.cli.reported_results import (
        kept_page,
        next_steps_of,
        page_failure,
        print_json_report,
        print_overview,
        print_what_if,
        print_whole_report,
        read_report,
        require_attached,
        tracker_failure,
        write_figures_of,
    )
    from steptime.results.joined_files import are_of_machines, reported_folder

    formats = formats_of(ReportFormat)
    if form not in formats:
        raise UsageError(choices_message("format", form, formats))
    trackers = chosen_trackers(to)
    if are_of_machines(folders):
        from steptime.cli.machines import report_machines

        of_one = {"--what-if": what_if, "--reference": reference, "--figures": figures, "--to": to}
        report_machines(folders, "json" if as_json else form, html, of_one)
        return
    with reported_folder(folders) as (folder, recorded):
        found = read_report(folder, reference, recorded)
        found = found if folder in folders else replace(found, origin=shlex.join(map(str, folders)))
        require_attached(found, trackers)
        failure = page_failure(found, html)
        html = None if failure else html
        if html is not None:
            wrote("report", html)
        as_json = as_json or form == "json"
        everything = everything or (reference is not None and not what_if)
        if as_json:
            print_json_report(found)
        elif write := formats[form].text:
            say(write(found.findings))
        elif what_if:
            print_what_if(found)
        elif everything:
            print_whole_report(found)
        else:
            kept = kept_page(folder)
            print_overview(found, page=None if html else kept, next_steps=next_steps_of(found, html or kept))
        write_figures_of(found, figures)
        failure = tracker_failure(found, trackers, html) or failure
        if failure is not None:
            raise failure
        found.store.require_launches()


def _import_numpy_with_one_thread() -> None:
    """Start no threads of OpenBLAS, one a core, for the small matrices of a report; what it starts is not told.

    SciPy takes all names of NumPy, and thereby imports its compiler of Fortran and its helpers of tests: a third of
    the time that SciPy's functions take to import. Nothing here calls them.
    """
    before = os.environ.get(_THREADS)
    os.environ.setdefault(_THREADS, "1")
    numpy = importlib.import_module("numpy")  # reads the variable once

    if before is None:
        del os.environ[_THREADS]
    for name in _UNUSED.difference(vars(numpy)):
        setattr(numpy, name, _Later(f"numpy.{name}"))


class _Later(ModuleType):
    """A part of a package that is imported when a name of it is first looked up."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):  # which Python asks of a module that it lists
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)
