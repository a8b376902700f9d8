"""A step graph scheduled task by task: the reference that the simulator is held to."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steptime.model.step_graph import StepGraph, Task

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Schedule:
    """Seconds since the step's begin, (tasks, configurations) each."""

    begins: Array
    ends: Array


def schedule(graph: StepGraph, seconds: Callable[[Task], Array]) -> Schedule:
    """Return when tasks begin and end, if each waits for those before it and for its resource.

    A resource serves one task after the other, in the order of the graph. Exchanges that share a link, are fused or
    reordered by priority, and steps that overlap with the next are beyond this; ``simulate`` knows them.

    Args:
        graph: the step graph.
        seconds: of a task, (configurations,).
    """
    tasks = graph.tasks
    rows = np.atleast_1d(seconds(tasks[0])).shape
    begins, ends = np.zeros((2, len(tasks), *rows))
    free: dict[str, Array] = {}
    for place, task in enumerate(tasks):
        begin = free.get(task.resource, np.zeros(rows)) if task.resource != "nobody" else np.zeros(rows)
        for before in task.after:
            begin = np.maximum(begin, ends[before])
        begins[place], ends[place] = begin, begin + seconds(task)
        free[task.resource] = ends[place]
    return Schedule(begins, ends)
