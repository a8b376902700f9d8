"""A step graph as tasks, scheduled one by one: the reference that the simulator is held to."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from steptime.model.policies import StepGraph
from steptime.worker.communication import CommunicationPlan, PlannedMessage, Work

Array = NDArray[np.float64]
Kind = Literal["input", "h2d", "forward", "backward", "exchange", "pull", "gather", "apply", "update", "barrier"]
Resource = Literal["loader", "copier", "processor", "link", "downlink", "servers", "nobody"]


@dataclass(frozen=True)
class Task:
    """Computing, copying or communicating that takes time, or a point that all workers pass together."""

    name: str
    kind: Kind
    resource: Resource
    """What the task occupies; tasks of one resource follow each other in the order of the graph, or share it."""
    after: tuple[int, ...]
    """Positions of the tasks that must be over; all of them stand before this task in the graph."""
    layer: int | None = None
    """Position of the layer that is computed."""
    message: int | None = None
    """Position in the plan's messages, gathers, or messages after the update."""
    bytes: int = 0


def tasks_of(graph: StepGraph) -> list[Task]:
    """Return all tasks of a step, each behind those that it waits for."""
    return _GraphBuilder(graph.work, graph.plan).build()


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
    tasks = tasks_of(graph)
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


class _GraphBuilder:
    """Adds tasks in the order in which they are started, as far as durations do not decide about that order."""

    def __init__(self, work: Work, plan: CommunicationPlan) -> None:
        self._work, self._plan = work, plan
        self._tasks: list[Task] = []

    def build(self) -> list[Task]:
        """Return the tasks of a step."""
        read = self._add(Task("read", "input", "loader", ()))
        last = self._add(Task("copy", "h2d", "copier", (read,)))
        last = self._forward(last)
        last, sent = self._backward(last)
        self._update(last, sent)
        return self._tasks

    def _forward(self, last: int) -> int:
        """Add the forward pass, with the pulls and gathers that come before its layers."""
        pulls = self._pulls_at_start(last)
        gathers = _GatherTasks(self._plan, again=False)
        for place, layer in enumerate(self._work.layers):
            needs = [last, *([pulls[place]] if place in pulls else []), *gathers.before(place, last, self._add)]
            last = self._add(Task(f"forward {layer.name}", "forward", "processor", tuple(needs), layer=place))
        return last

    def _backward(self, last: int) -> tuple[int, list[int]]:
        """Add the backward pass and the exchange of its gradients."""
        sent: list[int] = []
        gathers = _GatherTasks(self._plan, again=True)
        blocks = bool(self._plan.gathers) and self._plan.prefetch == 0
        for place in reversed(range(len(self._work.layers))):
            needs = [last, *gathers.before(place, last, self._add)]
            name = f"backward {self._work.layers[place].name}"
            last = self._add(Task(name, "backward", "processor", tuple(needs), layer=place))
            for index, message in enumerate(self._plan.messages):
                if message.after == place:
                    sent.append(self._send(index, message, last))
                    last = sent[-1] if blocks else last
        return last, sent

    def _send(self, index: int, message: PlannedMessage, last: int) -> int:
        name = message.gradient_names[0] if message.gradient_names else message.operation
        return self._add(
            Task(f"{message.operation} {name}", "exchange", "link", (last,), message=index, bytes=message.bytes)
        )

    def _pulls_at_start(self, last: int) -> dict[int, int]:
        """Add the pulls of all weights, where a step begins with them; return the task that each layer waits for."""
        if self._plan.pulls != "at_start":
            return {}
        layer_of = {gradient.name: gradient.layer for gradient in self._work.forward_gradients()}
        pull_of: dict[int, int] = {}
        for index in reversed(range(len(self._plan.messages))):
            message = self._plan.messages[index]
            name = f"pull {message.gradient_names[0]}"
            task = self._add(Task(name, "pull", "downlink", (last,), message=index, bytes=message.bytes))
            pull_of.update((layer_of[name], task) for name in message.gradient_names)
        return pull_of

    def _update(self, last: int, sent: list[int]) -> None:
        """Add the update, by workers or servers, and the exchanges that follow it."""
        if self._plan.updated_by == "workers":
            end = self._add(Task("update", "update", "processor", (last, *sent)))
            for index, message in enumerate(self._plan.after_update):
                task = Task(
                    f"{message.operation} weights", "exchange", "link", (end,), message=index, bytes=message.bytes
                )
                end = self._add(task)
        else:
            applied = [self._add(Task(f"apply {self._tasks[each].name}", "apply", "servers", (each,))) for each in sent]
            ends = applied if self._plan.pulls == "at_start" else [self._pull(each) for each in applied]
            end = self._add(Task("weights are there", "barrier", "nobody", (last, *ends)))
        if self._plan.synchronous and self._plan.messages:
            self._add(Task("all workers are here", "barrier", "nobody", (end,)))

    def _pull(self, applied: int) -> int:
        (push,) = self._tasks[applied].after
        index, size = self._tasks[push].message, self._tasks[push].bytes
        return self._add(Task(f"pull for {self._tasks[push].name}", "pull", "downlink", (applied,), None, index, size))

    def _add(self, task: Task) -> int:
        self._tasks.append(task)
        return len(self._tasks) - 1


class _GatherTasks:
    """The gathers of one pass, each as early as the plan prefetches."""

    def __init__(self, plan: CommunicationPlan, *, again: bool) -> None:
        self._prefetch = plan.prefetch
        gathers = list(enumerate(plan.gathers))
        self._order = gathers[::-1] if again else gathers
        self._first = [(max if again else min)(gather.layers) for _, gather in self._order]
        self._wanted = [gather.again or not again for _, gather in self._order]
        self._added: dict[int, int] = {}
        self._next = 0

    def before(self, place: int, last: int, add: Callable[[Task], int]) -> list[int]:
        """Add the gathers that a layer waits for and those that are prefetched while it is computed.

        Args:
            place: position of the layer.
            last: position of the task before.
            add: adds a task to the graph and returns its position.

        Returns:
            Positions of the tasks that the layer waits for.
        """
        if place not in self._first:
            return []
        own = self._first.index(place)
        self._until(own, (last,), add)
        mine = [self._added[own]] if own in self._added else []
        self._until(own + self._prefetch, (last, *mine), add)
        return mine

    def _until(self, end: int, since: tuple[int, ...], add: Callable[[Task], int]) -> None:
        while self._next <= min(end, len(self._order) - 1):
            if self._wanted[self._next]:
                index, gather = self._order[self._next]
                task = Task(f"gather {index}", "gather", "link", since, message=index, bytes=gather.bytes)
                self._added[self._next] = add(task)
            self._next += 1
