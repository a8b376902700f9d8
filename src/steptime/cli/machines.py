"""``steptime report`` of results folders of several machines."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from steptime.analysis.machines import folders_by_machine
from steptime.analysis.summary import summarise
from steptime.attached.summary import attached_run
from steptime.cli.arguments import open_results
from steptime.cli.section_output import show_sections
from steptime.cli.streams import print_json, say, warn
from steptime.errors import UsageError
from steptime.report.machines import ReportedFolder, machine_sections, machines_in_a_line


def report_machines(folders: Sequence[Path], form: str, html: Path | None, options: Mapping[str, Any]) -> None:
    """Print the report of several results folders, in which each machine is ranked by itself.

    Args:
        folders: of results.
        form: one of ``ReportFormat``.
        html: where their page goes.
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
    title = machines_in_a_line(reported)
    if form == "json":
        print_json({"machines": [_json(own) for own in reported]})
    elif form == "text":
        say(title, "")
    show_sections(machine_sections(reported), form, html, title)
    for own in reported:
        warn(own.folder.store.problems)
        own.folder.store.require_launches()


def _json(own: ReportedFolder) -> dict[str, Any]:
    attached = {"attached": own.attached.to_json()} if own.attached else {}
    return {
        "machine": own.folder.machine,
        "folder": str(own.folder.store.path),
        "report": {**own.summary.to_json(), **attached},
    }
