"""The consoles of all verbs: text is shown as it is, never parsed as markup, and obeyed by no terminal."""

import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from steptime.report.plain_text import plain_text


class PlainConsole(Console):
    """A console for text of others: styles come from ``rich.text.Text`` alone, control characters are written out."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - those of rich's console
        super().__init__(markup=False, emoji=False, highlight=False, **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of ``renderable``; only rich itself may move the cursor."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else plain_text(text), style, control)


def stderr_console() -> PlainConsole:
    """Return the console for everything that is not a result."""
    return PlainConsole(file=sys.stderr)
