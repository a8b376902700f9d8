"""The figures of a report as files."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from steptime.analysis.summary_form import Summary
from steptime.document.charts.chart import Figure
from steptime.document.section import Figures, Part, Section
from steptime.extras import require_extra
from steptime.plain_file import PlainFolder
from steptime.report.conditions import machine_in_a_line
from steptime.user_output import FIGURES, require_free, write_user_file

_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


_LONGEST_NAME = 80


_SCALE = 2.0
"""Pixels of a PNG for each of the picture's own."""


def write_figures(summary: Summary, sections: Sequence[Section], folder: Path) -> list[Path]:
    """Write every figure as SVG, PNG and PDF, with a caption that states its conditions; return the paths.

    Raises StoreError when a file cannot be written, and MissingExtra without what draws.
    """
    require_extra("page")
    import vl_convert  # noqa: PLC0415 - as in charts

    machine = machine_in_a_line(summary.machine)
    PlainFolder(folder).make(folder)
    written: list[Path] = []
    taken: set[str] = set()
    figures = [each for own in sections for each in _figures(own, own)]
    names = [_name(f"{section.id or section.title}-{figure.title}", taken) for section, _, figure in figures]
    for name in names:  # before any is replaced, and before pictures are converted, which takes seconds
        for ending, kind in FIGURES.items():
            require_free(folder / f"{name}.{ending}", kind)
    for name, (section, note, figure) in zip(names, figures, strict=True):
        svg = str(figure.svg)
        captions = [figure.title, figure.note, note, section.note, f"{summary.study}, measured on {machine}."]
        texts: dict[str, bytes] = {
            "svg": svg.encode(),
            "png": vl_convert.svg_to_png(svg, scale=_SCALE),
            "pdf": vl_convert.svg_to_pdf(svg),
            "txt": (" ".join(f"{each.rstrip('.')}." for each in captions if each) + "\n").encode(),
        }
        for ending, content in texts.items():
            path = folder / f"{name}.{ending}"
            write_user_file(path, content, FIGURES[ending])
            written.append(path)
    return written


def _figures(top: Section, part: Part) -> Iterator[tuple[Section, str, Figure]]:
    if isinstance(part, Figures):
        yield from ((top, part.note, figure) for figure in part.draw())
    elif isinstance(part, Section):
        for each in part.parts:
            yield from _figures(top, each)


def _name(title: str, taken: set[str]) -> str:
    """Return a file's name of plain letters that no other figure has."""
    name = _NOT_IN_NAMES.sub("-", title.lower()).strip("-")[:_LONGEST_NAME] or "figure"
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}-{number}"
    taken.add(found)
    return found
