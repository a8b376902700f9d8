"""``steptime report`` of results folders of several machines."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steptime.analysis.machines import folders_by_machine
from steptime.analysis.summary import summarise
from steptime.attached.summary import attached_run
from steptime.cli.arguments import open_results
from steptime.cli.streams import print_json, say, warn
from steptime.errors import UsageError
from steptime.report.export_formats import SectionFormat, formats_of
from steptime.report.machines import ReportedFolder, machine_sections, machines_in_a_line
from steptime.report.terminal import SectionText

if TYPE_CHECKING:
    from steptime.cli.console import PlainConsole


def report_machines(folders: Sequence[Path], form: str, console: "PlainConsole", options: Mapping[str, Any]) -> None:
    """Print the report of several results folders, in which each machine is ranked by itself.

    Args:
        folders: of results.
        form: one of ``ReportFormat``.
        console: for text.
        options: by the name of each that is of one folder alone, what was given.

    Raises UsageError for such an option, and StoreError where a folder cannot be read.
    """
    if given := [name for name, value in options.items() if value]:
        message = f"{', '.join(given)}: of one results folder, and {len(folders)} are of several machines; name one"
        raise UsageError(message)
    reported = []
    for folder in folders_by_machine([open_results(own) for own in folders]):
        recorded = folder.store.attached()
        run = attached_run(*recorded) if recorded else None
        reported.append(ReportedFolder(folder, summarise(folder.store), run))
    _print(reported, form, console)
    for own in reported:
        warn(own.folder.store.problems)
        own.folder.store.require_launches()


def _print(reported: Sequence[ReportedFolder], form: str, console: "PlainConsole") -> None:
    title, sections = machines_in_a_line(reported), machine_sections(reported)
    if form == "json":
        print_json({"machines": [_json(own) for own in reported]})
    elif write := formats_of(SectionFormat)[form].text:
        say(write(title, sections))
    else:
        say(title, "")
        console.print(SectionText(sections))


def _json(own: ReportedFolder) -> dict[str, Any]:
    attached = {"attached": own.attached.to_json()} if own.attached else {}
    return {
        "machine": own.folder.machine,
        "folder": str(own.folder.store.path),
        "report": {**own.summary.to_json(), **attached},
    }
