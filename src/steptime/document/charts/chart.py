"""What all charts share: size, letters, and turning a specification into a picture that needs no script.

What a series looks like: a colour, a shape and a dash, the same on the whole page and never two alike in a chart.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from markupsafe import Markup, escape

from steptime.document.plain_text import plain_text, plain_values

Spec = dict[str, Any]

WIDTH, HEIGHT = 380, 250
"""Pixels of a whole picture's width, which a phone has as well, and of a plot's height."""
GREY = "#5b6573"
FEWEST_TICKS = 3

_FONT = "Helvetica, Arial, sans-serif"
_CONFIG: Spec = {
    "aria": False,
    "background": "white",
    "font": _FONT,
    "padding": {"left": 4, "right": 10, "top": 6, "bottom": 4},
    "view": {"stroke": None},
    "axis": {
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titleColor": "#1b1f24",
        "labelColor": "#3a424c",
        "gridColor": "#e8ebee",
        "domainColor": "#9aa3ad",
        "tickColor": "#9aa3ad",
        "labelOverlap": "greedy",
    },
    "legend": {
        "orient": "bottom",
        "title": None,
        "labelFontSize": 12,
        "labelLimit": 265,
        "symbolSize": 90,
        "symbolStrokeWidth": 2,
        "rowPadding": 4,
    },
    "text": {"font": _FONT, "fontSize": 12, "color": "#1b1f24"},
}
SHARES: Spec = {"format": "%", "values": [0.0, 0.25, 0.5, 0.75, 1.0]}
"""The axis of a share of all."""
_FIRST_TAG = re.compile(r"<svg [^>]*>")
_SIZE = re.compile(r'viewBox="0 0 (\d+) (\d+)"')
_FINE = re.compile(r"(\d\.\d\d)\d+")
_TAG = re.compile(r"<[^>]*>")
_NEEDLESS = re.compile(
    r' (?:class|role|aria-hidden|aria-roledescription|pointer-events|font-family|stroke-miterlimit)="[^"]*"'
    r'| opacity="1"| font-weight="normal"'
)
"""What says nothing inside a picture that is one to a reader, or what its first tag says for all."""
_UNSEEN = '<path d="" display="none"/>'
_ATTRIBUTE = re.compile(r' (?:d|transform)="[^"]*"')


@dataclass(frozen=True)
class Figure:
    """A picture with its title."""

    title: str
    svg: Markup
    label: str = ""
    """Where it is one of a choice."""
    note: str = ""
    """Below the picture."""


def share_axis(title: str) -> Spec:
    """Return the vertical axis of the field ``share``, from none to all."""
    return {"field": "share", "type": "quantitative", "title": title, "scale": {"domain": [0.0, 1.0]}, "axis": SHARES}


def picture(title: str, spec: Spec, conditions: str) -> Figure:
    """Return the figure of a chart; ``conditions`` are for those who hear the page."""
    return Figure(title, to_svg(spec, f"{title}: {conditions}"))


def chart(layers: Sequence[Spec], rows: Sequence[Spec], *, height: int = HEIGHT) -> Spec:
    """Return a whole specification: ``layers`` drawn over each other from ``rows``."""
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "data": {"values": list(rows)},
        "width": WIDTH,
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "layer": list(layers),
        "config": _CONFIG,
    }


def with_dashes(spec: Spec) -> Spec:
    """Return a chart whose legend shows dashes: these need some length of line to be seen."""
    config = spec["config"]
    return {**spec, "config": {**config, "legend": {**config["legend"], "symbolType": "stroke", "symbolSize": 400}}}


def round_ticks(low: float, high: float) -> list[float]:
    """Return the values 1, 2, 3, 5 and 7 times a power of ten between two positive bounds, for logarithmic axes."""
    exponents = range(-9, 12)
    return [each for k in exponents for m in (1, 2, 3, 5, 7) if low <= (each := float(f"{m}e{k}")) <= high]


def to_svg(spec: Spec, name: str) -> Markup:
    """Return the picture of a specification as SVG, safe in a page, that scales with it.

    Args:
        spec: from one of the charts.
        name: what the picture shows, for those who hear the page instead of seeing it.
    """
    import vl_convert  # noqa: PLC0415 - a terminal, which draws nothing, shall not wait for it

    svg: str = vl_convert.vegalite_to_svg(plain_values(spec), vl_version="5.20")
    size = _SIZE.search(svg)
    width, height = size.groups() if size else (str(WIDTH), str(HEIGHT))
    # Hundredths of a pixel are fine enough, and make curves half as long.
    svg = _ATTRIBUTE.sub(lambda found: _FINE.sub(r"\1", found[0]), svg)
    svg = _TAG.sub(lambda tag: _NEEDLESS.sub("", tag[0]), svg).replace(_UNSEEN, "")
    said = escape(plain_text(name))
    first = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="{_FONT}" stroke-miterlimit="10" role="img" aria-label="{said}"><title>{said}</title>'
    )
    return Markup(_FIRST_TAG.sub(lambda _: first, svg, count=1))  # noqa: S704 - vl-convert escapes all text


Choice = TypeVar("Choice")

# Okabe and Ito's palette without its yellow: these stay apart for every common kind of colour vision.
_COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999"]
_SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left"]
_DASHES = [[1, 0], [7, 3], [2, 2], [8, 2, 2, 2], [12, 4], [4, 4], [8, 2, 2, 2, 2, 2], [12, 3, 4, 3]]

MOST = len(_COLOURS)
"""More series than this cannot be distinguished in one chart."""
MOST_ROWS = 2 * MOST
"""A chart with more lines is longer than anybody reads; the table has all."""

_LONG = 22
"""Letters of a name from which a legend has room for one column only."""


def parts(items: Sequence[Choice]) -> Iterator[Sequence[Choice]]:
    """Yield as many items as one chart can tell apart, until all are drawn."""
    for start in range(0, len(items), MOST):
        yield items[start : start + MOST]


@dataclass(frozen=True)
class Mark:
    """The look of one series."""

    colour: str
    shape: str
    dash: list[int]


class Marks:
    """The looks of all series of a page."""

    def __init__(self, series: Sequence[tuple[str, str]]) -> None:
        """Give each of ``series``, pairs of framework and name, its look.

        A framework keeps its colour, or its strategies get the colours where the page shows a single framework.
        Shapes and dashes go round, so that neighbours in ``series`` differ in them.
        """
        frameworks = list(dict.fromkeys(framework for framework, _ in series))
        self._marks: dict[str, Mark] = {}
        for look, (framework, name) in enumerate(dict.fromkeys(series)):
            colour = frameworks.index(framework) if len(frameworks) > 1 else look
            self._marks[name] = Mark(_of(_COLOURS, colour), _of(_SHAPES, look), _of(_DASHES, look))

    def colour(self, name: str) -> str:
        """The colour of a series."""
        return self._marks[name].colour

    def encodings(self, names: Sequence[str], *kinds: str, labels: Sequence[str] | None = None) -> Spec:
        """Return the encodings of ``kinds`` (``color``, ``shape``, ``strokeDash``) by the field ``name``.

        ``labels`` are what that field holds, where it is not ``names``. Raises ValueError for more than ``MOST`` names.
        """
        if len(names) > MOST:
            message = f"{len(names)} series cannot be distinguished in one chart; at most {MOST} can"
            raise ValueError(message)
        marks = self._distinct(names)
        ranges = {
            "color": [mark.colour for mark in marks],
            "shape": [mark.shape for mark in marks],
            "strokeDash": [mark.dash for mark in marks],
        }
        columns = 1 if max(map(len, labels or names), default=0) > _LONG else 2
        return {
            kind: {
                "field": "name",
                "type": "nominal",
                "scale": {"domain": list(labels or names), "range": ranges[kind]},
                "legend": {"columns": columns},
            }
            for kind in kinds
        }

    def _distinct(self, names: Sequence[str]) -> list[Mark]:
        """Return the looks of ``names``; where two would share a shape, the later one gets a free one."""
        marks: list[Mark] = []
        for name in names:
            wanted = self._marks[name]
            taken = {mark.shape for mark in marks}
            free = next(i for i in range(MOST) if _of(_SHAPES, _SHAPES.index(wanted.shape) + i) not in taken)
            look = _SHAPES.index(wanted.shape) + free
            marks.append(Mark(wanted.colour, _of(_SHAPES, look), _of(_DASHES, look)))
        return marks


def _of(choices: Sequence[Choice], index: int) -> Choice:
    return choices[index % len(choices)]
