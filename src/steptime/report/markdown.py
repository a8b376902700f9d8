"""Sections as Markdown of GitHub and GitLab, for a comment below a change."""

import re
from collections.abc import Iterable, Iterator

from steptime.report.section import Pairs, Part, Section, SectionTable, Sentences

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#])")
_LEVELS = 6
"""Of headings."""


def markdown(headline: str, sections: Iterable[Section]) -> str:
    """Return a headline in bold and sections below it; what a page folds is folded here, and figures are left out."""
    blocks = [f"**{_escaped(headline)}**"]
    for section in sections:
        blocks += _section(section, 3)
    return "\n\n".join(blocks)


def _section(section: Section, level: int) -> Iterator[str]:
    title = _escaped(section.title)
    if section.folded:
        yield f"<details><summary>{title}</summary>"
    else:
        yield f"{'#' * min(level, _LEVELS)} {title}"
    if section.verdict:
        yield f"**{_escaped(section.verdict)}**"
    for part in section.within("terminal"):
        yield from _section(part, level + 1) if isinstance(part, Section) else _part(part)
    if section.note:
        yield f"<sub>{_escaped(section.note)}</sub>"
    if section.folded:
        yield "</details>"


def _part(part: Part) -> Iterator[str]:
    if isinstance(part, Sentences):
        texts = [_escaped(text) for text in part.texts]
        yield "\n".join(f"- {text}" for text in texts) if part.listed else "\n\n".join(texts)
    elif isinstance(part, Pairs):
        yield "\n".join(f"- {_escaped(name)}: {_escaped(value)}" for name, value in part.pairs)
    elif isinstance(part, SectionTable):
        yield "\n".join(_table(part))


def _table(table: SectionTable) -> Iterator[str]:
    shown = table.columns_of("page")
    titles = [table.names, *(column.title.replace("\n", " ") for _, column in shown)]
    yield _row(titles)
    yield _row(["---", *("---:" if column.kind == "number" else "---" for _, column in shown)], escape=False)
    for row in table.rows:
        name = f"**{_escaped(row.name)}**" if row.best else _escaped(row.name)
        yield _row([name, *(_escaped(row.cells[index].line) for index, _ in shown)], escape=False)


def _row(texts: Iterable[str], *, escape: bool = True) -> str:
    return f"| {' | '.join(_escaped(text) if escape else text for text in texts)} |"


def _escaped(text: str) -> str:
    """Return text that Markdown shows as it is, in one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))
