"""The step graph: computing and exchanging of one step, and what must precede what."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from steptime.model.communication_plan import Circumstances, Message, Plan
from steptime.model.layer_work import Work
from steptime.model.policies import policy_of

Kind = Literal["input", "h2d", "forward", "backward", "exchange", "pull", "gather", "apply", "update", "barrier"]
Resource = Literal["loader", "copier", "processor", "link", "downlink", "servers", "nobody"]


@dataclass(frozen=True)
class Node:
    """One thing that takes time, or a point that all workers pass together."""

    name: str
    kind: Kind
    resource: Resource
    """What it occupies; nodes of one resource follow each other in the order of the graph, or share it."""
    after: tuple[int, ...]
    """Positions of the nodes that must be over, all of them before this one."""
    layer: int | None = None
    """Whose computing it is."""
    message: int | None = None
    """Position in the plan's messages, or gathers, or what follows the update."""
    bytes: int = 0


@dataclass(frozen=True)
class StepGraph:
    """One step of one worker; the others do the same."""

    framework: str
    strategy: str
    work: Work
    plan: Plan
    servers: int = 0

    @property
    def messages(self) -> tuple[Message, ...]:
        """What is exchanged for gradients, in the order in which it is started."""
        return self.plan.messages

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, each behind those that it waits for."""
        return tuple(_Drawing(self.work, self.plan).draw())


def step_graph(work: Work, framework: str, strategy: str, circumstances: Circumstances) -> StepGraph:
    """Return the graph of a step.

    Args:
        work: of ``work_of`` or ``even_work``.
        framework: its name; one that is not in the table follows the plainest rule of the strategy.
        strategy: as in ``steptime list strategies``.
        circumstances: workers, servers, options of the trial.

    Raises KeyError for an unknown strategy.
    """
    plan = policy_of(framework, strategy)(work, circumstances)
    servers = max(circumstances.servers, 1) if plan.updated_by == "servers" else 0
    return StepGraph(framework, strategy, work, plan, servers)


class _Drawing:
    """Nodes in the order in which they are started, as far as durations do not decide about it."""

    def __init__(self, work: Work, plan: Plan) -> None:
        self._work, self._plan = work, plan
        self._nodes: list[Node] = []

    def draw(self) -> list[Node]:
        """Return the nodes of a step."""
        read = self._add(Node("read", "input", "loader", ()))
        last = self._add(Node("copy", "h2d", "copier", (read,)))
        last = self._forward(last)
        last, sent = self._backward(last)
        self._update(last, sent)
        return self._nodes

    def _forward(self, last: int) -> int:
        """Draw the forward pass, with what has to come before its layers."""
        pulls = self._pulls_at_start(last)
        gathers = _Gathers(self._plan, again=False)
        for place, layer in enumerate(self._work.layers):
            needs = [last, *([pulls[place]] if place in pulls else []), *gathers.draw(place, last, self._add)]
            last = self._add(Node(f"forward {layer.name}", "forward", "processor", tuple(needs), layer=place))
        return last

    def _backward(self, last: int) -> tuple[int, list[int]]:
        """Draw the backward pass and the exchange of its gradients."""
        sent: list[int] = []
        gathers = _Gathers(self._plan, again=True)
        blocks = bool(self._plan.gathers) and self._plan.prefetch == 0
        for place in reversed(range(len(self._work.layers))):
            needs = [last, *gathers.draw(place, last, self._add)]
            name = f"backward {self._work.layers[place].name}"
            last = self._add(Node(name, "backward", "processor", tuple(needs), layer=place))
            for index, message in enumerate(self._plan.messages):
                if message.after == place:
                    sent.append(self._send(index, message, last))
                    last = sent[-1] if blocks else last
        return last, sent

    def _send(self, index: int, message: Message, last: int) -> int:
        name = message.tensors[0] if message.tensors else message.operation
        return self._add(
            Node(f"{message.operation} {name}", "exchange", "link", (last,), message=index, bytes=message.bytes)
        )

    def _pulls_at_start(self, last: int) -> dict[int, int]:
        """Draw the pulls of all weights, where a step begins with them; return the node that each layer needs."""
        if self._plan.pulls != "at_start":
            return {}
        layer_of = {tensor.name: tensor.layer for tensor in self._work.forward_tensors()}
        found: dict[int, int] = {}
        for index in reversed(range(len(self._plan.messages))):
            message = self._plan.messages[index]
            name = f"pull {message.tensors[0]}"
            node = self._add(Node(name, "pull", "downlink", (last,), message=index, bytes=message.bytes))
            found.update((layer_of[tensor], node) for tensor in message.tensors)
        return found

    def _update(self, last: int, sent: list[int]) -> None:
        """Draw what follows the exchange: whoever updates, and what that brings."""
        if self._plan.updated_by == "workers":
            end = self._add(Node("update", "update", "processor", (last, *sent)))
            for index, message in enumerate(self._plan.after_update):
                node = Node(
                    f"{message.operation} weights", "exchange", "link", (end,), message=index, bytes=message.bytes
                )
                end = self._add(node)
        else:
            applied = [self._add(Node(f"apply {self._nodes[each].name}", "apply", "servers", (each,))) for each in sent]
            ends = applied if self._plan.pulls == "at_start" else [self._pull(each) for each in applied]
            end = self._add(Node("weights are there", "barrier", "nobody", (last, *ends)))
        if self._plan.synchronous and self._plan.messages:
            self._add(Node("all workers are here", "barrier", "nobody", (end,)))

    def _pull(self, applied: int) -> int:
        (push,) = self._nodes[applied].after
        index, size = self._nodes[push].message, self._nodes[push].bytes
        return self._add(Node(f"pull for {self._nodes[push].name}", "pull", "downlink", (applied,), None, index, size))

    def _add(self, node: Node) -> int:
        self._nodes.append(node)
        return len(self._nodes) - 1


class _Gathers:
    """The gatherings of one pass, each as early as the plan fetches ahead."""

    def __init__(self, plan: Plan, *, again: bool) -> None:
        self._prefetch = plan.prefetch
        gathers = list(enumerate(plan.gathers))
        self._order = gathers[::-1] if again else gathers
        self._first = [(max if again else min)(gather.layers) for _, gather in self._order]
        self._wanted = [gather.again or not again for _, gather in self._order]
        self._drawn: dict[int, int] = {}
        self._next = 0

    def draw(self, place: int, last: int, add: Callable[[Node], int]) -> list[int]:
        """Return what a layer waits for, having drawn that and what is fetched while the layer is computed."""
        if place not in self._first:
            return []
        own = self._first.index(place)
        self._until(own, (last,), add)
        mine = [self._drawn[own]] if own in self._drawn else []
        self._until(own + self._prefetch, (last, *mine), add)
        return mine

    def _until(self, end: int, since: tuple[int, ...], add: Callable[[Node], int]) -> None:
        while self._next <= min(end, len(self._order) - 1):
            if self._wanted[self._next]:
                index, gather = self._order[self._next]
                node = Node(f"gather {index}", "gather", "link", since, message=index, bytes=gather.bytes)
                self._drawn[self._next] = add(node)
            self._next += 1
