"""Text of others as it may be shown: no control character reaches a terminal, a page or a picture.

A framework's failure, a name in a study and a line of a record are written by others. A terminal obeys control
characters in them: it changes its title, moves its cursor over what was printed before, or turns text around.
"""

import re
from typing import Any

_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # all of ASCII and Latin-1 but the tab and the line break
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # what reverses the direction of text, and further line breaks
    "\ud800-\udfff\ufeff]"  # halves of characters, which no encoding writes
)


def plain_text(text: str) -> str:
    r"""Return ``text`` with every control character but tab and line break written out, such as ``\x1b``."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def plain_values(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return a JSON value of which every string is ``plain_text``."""
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, dict):
        return {plain_text(name): plain_values(item) for name, item in value.items()}
    return [plain_values(item) for item in value] if isinstance(value, (list, tuple)) else value
