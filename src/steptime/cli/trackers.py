"""The option ``--to`` of ``steptime report`` and ``steptime attach``: where a run is also shown."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steptime.errors import UsageError, choices_message, error_line
from steptime.extras import require_extra, why_absent
from steptime.report.export_formats import TrackerFormat, format_help, formats_of

if TYPE_CHECKING:
    from steptime.attached.form import AttachedRun

ToTrackers = Annotated[
    list[str] | None,
    typer.Option(
        "--to",
        metavar="PLACE",
        help=f"Also show the run there, PLACE=WHERE; may be repeated. {format_help(TrackerFormat)}",
        autocompletion=lambda: list(formats_of(TrackerFormat)),
    ),
]


@dataclass(frozen=True)
class ChosenTracker:
    """One ``--to``."""

    place: TrackerFormat
    target: str | None


def chosen_trackers(words: Sequence[str] | None) -> list[ChosenTracker]:
    """Return the trackers that the words name; raises UsageError with all mistakes."""
    places = formats_of(TrackerFormat)
    parted = [word.partition("=") for word in words or ()]
    if mistakes := [choices_message("tracker", name, places) for name, _, _ in parted if name not in places]:
        raise UsageError(mistakes)
    return [ChosenTracker(places[name], target or None) for name, _, target in parted]


def missing_libraries(chosen: Sequence[ChosenTracker]) -> list[str]:
    """Return what is to be installed for trackers, in sentences."""
    return [reason for tracker in chosen if (reason := why_absent(tracker.place.name))]


def write_to_trackers(
    chosen: Sequence[ChosenTracker], attached: "AttachedRun", folder: Path, page: Path
) -> tuple[list[str], list[str]]:
    """Write a run to every tracker; return lines about those that took it, and about those that did not.

    Args:
        chosen: where to.
        attached: the run.
        folder: its results.
        page: its report, or the folder if there is none.
    """
    from steptime.exports.trackers.tracked_run import masked, tracked_run

    run = tracked_run(attached.to_json(), folder.resolve().name, str(page.resolve()))
    written, failed = [], []
    for tracker in chosen:
        name = tracker.place.name
        try:
            require_extra(name)
            written.append(masked(f"{name}: {tracker.place.write(run, tracker.target, folder)}"))
        except Exception as error:  # noqa: BLE001 - of a library and of a network; the others are written all the same
            failed.append(masked(f"{name}: {error_line(error)}"))
    return written, failed
