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
