"""Paragraphs as lines: broken between words, and never between a number and its unit."""

import re
import textwrap

_BEFORE_UNIT = re.compile(
    r"(?<=\d) (?=%|(?:[nuµm]?s|min|h|[kKMGT]?i?B|[kMGT]?bit/s|[kMGTP]?FLOPs?(?:/s)?|J|(?:tokens|samples)/s)(?![\w/]))"
)
_NO_BREAK = "\u00a0"


def wrap_text(
    text: str, width: int, *, first_indent: str = "", indent: str = "", break_long_words: bool = True
) -> list[str]:
    """Return the lines of a paragraph.

    Args:
        text: of one line.
        width: letters of a line at most.
        first_indent: ahead of the first line.
        indent: ahead of all others.
        break_long_words: whether a word that is longer than a line is broken, and not the line longer.
    """
    lines = textwrap.wrap(
        _BEFORE_UNIT.sub(_NO_BREAK, text),
        width,
        initial_indent=first_indent,
        subsequent_indent=indent,
        break_long_words=break_long_words,
        break_on_hyphens=False,
    )
    return [line.replace(_NO_BREAK, " ") for line in lines]
