"""How the runner reports its progress, to whoever shows it."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Remaining:
    """What is still to come of a stage: a range, because a trial is launched until its interval is narrow enough."""

    least: int
    """Launches that are needed in any case."""
    most: int
    """Launches that are made at most: the study allows no more, or the budget does not."""
    least_s: float
    most_s: float


class Observer(Protocol):
    """Receives what happens, as it happens; the command line shows it, tests collect it."""

    def stage(self, title: str, total: int | None) -> None:
        """A new stage begins; ``total`` is its number of items, None when it is not known."""

    def working_on(self, what: str) -> None:
        """The current item, in words."""

    def finished(self, what: str, *, ok: bool = True) -> None:
        """One item of the stage is over."""

    def remaining(self, remaining: Remaining) -> None:
        """What is still to come of the stage, the current item included; replaces ``total``."""

    def note(self, text: str) -> None:
        """Something the user should read."""


class Silent:
    """An observer that ignores everything."""

    def stage(self, title: str, total: int | None) -> None: ...

    def working_on(self, what: str) -> None: ...

    def finished(self, what: str, *, ok: bool = True) -> None: ...

    def remaining(self, remaining: Remaining) -> None: ...

    def note(self, text: str) -> None: ...


class SampleProgress:
    """Reports to an observer how many of a dataset's samples are written, as a stage of hundredths of all of them.

    The stage begins with the first report, so that what fails before it shows none.
    """

    _PARTS = 100

    def __init__(self, observer: Observer, title: str) -> None:
        """Report to ``observer``, under ``title``."""
        self._observer = observer
        self._title = title
        self._reported: int | None = None
        """Parts of the stage; None before it."""

    def __call__(self, done: int, total: int) -> None:
        """Report that ``done`` of ``total`` samples are written."""
        if self._reported is None:
            self._observer.stage(self._title, self._PARTS)
            self._reported = 0
        while self._reported < self._PARTS * done // total:
            self._reported += 1
            self._observer.finished(f"{done} of {total}")
