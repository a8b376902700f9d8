"""What a series looks like: a colour, a shape and a dash, the same on the whole page and never two alike in a chart."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from steptime.report.charts.chart import Spec

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
