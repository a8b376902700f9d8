"""A step graph walked node by node: when each begins and ends, to be looked at; ``play`` is what is quick."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steptime.model.step_graph import Node, StepGraph

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Walk:
    """Seconds since the step's begin, (nodes, configurations) each."""

    begins: Array
    ends: Array


def walk(graph: StepGraph, seconds: Callable[[Node], Array]) -> Walk:
    """Return when nodes begin and end, if each waits for those before it and for its resource.

    A resource serves one node after the other, in the order of the graph. Exchanges that share a link, are fused or
    reordered by priority, and steps that overlap with the next are beyond this; ``play`` knows them.

    Args:
        graph: what is walked.
        seconds: of a node, (configurations,).
    """
    nodes = graph.nodes
    rows = np.atleast_1d(seconds(nodes[0])).shape
    begins, ends = np.zeros((2, len(nodes), *rows))
    free: dict[str, Array] = {}
    for place, node in enumerate(nodes):
        begin = free.get(node.resource, np.zeros(rows)) if node.resource != "nobody" else np.zeros(rows)
        for before in node.after:
            begin = np.maximum(begin, ends[before])
        begins[place], ends[place] = begin, begin + seconds(node)
        free[node.resource] = ends[place]
    return Walk(begins, ends)
