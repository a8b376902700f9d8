"""Reading options that are more than one word, and collecting all mistakes before any is told."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from steptime.cli.streams import warn
from steptime.errors import UsageError
from steptime.foreign_writers import foreign_hand_on

if TYPE_CHECKING:
    from steptime.results.store import Store


def open_results(folder: Path) -> "Store":
    """Open a results folder, and warn where its run is not over or another user could have changed it.

    Raises StoreError where it is none, or cannot be read.
    """
    from steptime.results.progress import run_progress, run_state  # noqa: PLC0415 - a sweep is planned without them
    from steptime.results.store import Store  # noqa: PLC0415 - likewise

    store = Store.open(folder)
    if said := foreign_hand_on(folder):
        warn([f"note: {said}, who could have changed these results"])
    if found := run_progress(folder):
        unfinished = {
            "killed": f"{folder} lacks what its run had still to do: {found.killed_in_words}",
            "running": f"a run still adds to {folder} ({found.who})",
            "silent": f"the run that adds to {folder} gives no heartbeat: steptime status {folder}",
        }
        if (state := run_state(folder, found)) in unfinished:
            warn([f"note: {unfinished[state]}"])
    return store


Value = TypeVar("Value")


class Mistakes:
    """What was wrong in the options that were read so far."""

    def __init__(self) -> None:
        self._found: list[str] = []

    def read(self, option: str, text: str | None, parse: Callable[[str], Value]) -> Value | None:
        """Return the parsed text; None if none was given, or where it was wrong."""
        if text is None:
            return None
        try:
            return parse(text)
        except UsageError as error:
            self._found += error.mistakes
        except ValueError as error:
            self._found.append(f"{option}: {error}")
        return None

    def each(self, option: str, text: str, parse: Callable[[str], Value]) -> list[Value]:
        """Return the parsed parts of a text that commas separate; those that were wrong are left out."""
        found = [self.read(option, part.strip(), parse) for part in text.split(",") if part.strip()]
        return [value for value in found if value is not None]

    def add(self, mistakes: list[str]) -> None:
        """Remember mistakes that were found elsewhere."""
        self._found += mistakes

    def complain(self) -> None:
        """Raise UsageError if anything was wrong."""
        if self._found:
            raise UsageError(self._found)


def count(text: str) -> int:
    """Return a number of things; raises ValueError for what is none."""
    if not text.isdecimal():
        message = f"{text!r} is not a whole number"
        raise ValueError(message)
    return int(text)
