"""How the runner tells what it is doing, to whoever shows it."""

from typing import Protocol


class Observer(Protocol):
    """Receives what happens, as it happens; the command line shows it, tests collect it."""

    def stage(self, title: str, total: int | None) -> None:
        """A new stage begins; ``total`` is its number of items, None when it is not known."""

    def working_on(self, what: str) -> None:
        """The current item, in words."""

    def finished(self, what: str, *, ok: bool = True) -> None:
        """One item of the stage is over."""

    def time_left(self, seconds: float) -> None:
        """How long the stage will take at most, as far as is known."""

    def note(self, text: str) -> None:
        """Something the user should read."""


class Silent:
    """An observer that ignores everything."""

    def stage(self, title: str, total: int | None) -> None: ...

    def working_on(self, what: str) -> None: ...

    def finished(self, what: str, *, ok: bool = True) -> None: ...

    def time_left(self, seconds: float) -> None: ...

    def note(self, text: str) -> None: ...
