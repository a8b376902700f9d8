"""Sections that a verb prints: as text as wide as the terminal, in the forms of other programs, and as a page."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steptime.cli.console import report_console
from steptime.cli.streams import say, wrote
from steptime.errors import UsageError, choices_message
from steptime.report.export_formats import SectionFormat, format_help, formats_of
from steptime.user_output import PAGE, write_user_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steptime.document.section import Section


FormOption = Annotated[
    str,
    typer.Option("--format", help=format_help(SectionFormat), autocompletion=lambda: list(formats_of(SectionFormat))),
]
PageOption = Annotated[Path | None, typer.Option("--html", help="Also write one offline HTML page to this file.")]


def chosen_form(form: str, *, as_json: bool) -> str:
    """Return the form that was chosen, by either option; raises UsageError for one that there is not."""
    if form not in formats_of(SectionFormat):
        raise UsageError(choices_message("format", form, formats_of(SectionFormat)))
    return "json" if as_json else form


def show_sections(sections: "Sequence[Section]", form: str, html: Path | None, title: str) -> None:
    """Print sections, unless as JSON, and write their page where one was asked for.

    Args:
        sections: what the verb found.
        form: one of ``SectionFormat``; of JSON nothing is printed here.
        html: where the page goes.
        title: what a page and Markdown begin with.

    Raises StoreError where the page cannot be written.
    """
    from steptime.report.terminal import SectionText  # noqa: PLC0415 - a run has the options alone

    if write := formats_of(SectionFormat)[form].text:
        say(write(title, sections))
    elif form != "json":
        report_console().print(SectionText(sections), crop=False)
    if html is not None:
        from steptime.report.page import sections_page  # noqa: PLC0415 - draws charts

        page = sections_page(sections, title, shlex.join(["steptime", *sys.argv[1:]]))
        write_user_file(html, page.encode(), PAGE)
        wrote("report", html)
