"""The step graph: computing and exchanging of one step, and what must precede what."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from steptime.stepgraph.plan import Circumstances, Message, Operation, Plan
from steptime.stepgraph.policies.table import policy_of
from steptime.stepgraph.work import Work

Kind = Literal["input", "h2d", "forward", "backward", "exchange", "update"]
Resource = Literal["loader", "copier", "processor", "link"]


@dataclass(frozen=True)
class Node:
    """One thing that takes time."""

    name: str
    kind: Kind
    resource: Resource
    """What it occupies; nodes of one resource follow each other in the order of the graph, or share it."""
    after: tuple[int, ...]
    """Positions of the nodes that must be over."""
    layer: int | None = None
    operation: Operation | None = None
    bytes: int = 0


@dataclass(frozen=True)
class StepGraph:
    """One step of one worker; the others do the same."""

    framework: str
    strategy: str
    work: Work
    plan: Plan

    @property
    def messages(self) -> tuple[Message, ...]:
        """What is exchanged for gradients, in the order in which it is started."""
        return self.plan.messages

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, each behind those that it waits for."""
        return _nodes(self.work, self.plan)


def step_graph(work: Work, framework: str, strategy: str, circumstances: Circumstances) -> StepGraph:
    """Return the graph of a step.

    Args:
        work: of ``work_of`` or ``even_work``.
        framework: its name; one that is not in the table follows the plainest rule of the strategy.
        strategy: as in ``steptime list strategies``.
        circumstances: workers, servers, options of the trial.

    Raises KeyError for an unknown strategy.
    """
    return StepGraph(framework, strategy, work, policy_of(framework, strategy)(work, circumstances))


def _nodes(work: Work, plan: Plan) -> tuple[Node, ...]:
    nodes = [Node("read", "input", "loader", ()), Node("copy", "h2d", "copier", (0,))]
    last = 1
    for place, layer in enumerate(work.layers):
        nodes.append(Node(f"forward {layer.name}", "forward", "processor", (last,), layer=place))
        last = len(nodes) - 1
    ends = {}
    for place in reversed(range(len(work.layers))):
        nodes.append(Node(f"backward {work.layers[place].name}", "backward", "processor", (last,), layer=place))
        ends[place] = last = len(nodes) - 1
    exchanged = []
    for message in plan.messages:
        name = message.tensors[0] if message.tensors else message.operation
        nodes.append(
            Node(
                f"exchange {name}",
                "exchange",
                "link",
                (ends[message.after],),
                operation=message.operation,
                bytes=message.bytes,
            )
        )
        exchanged.append(len(nodes) - 1)
    nodes.append(Node("update", "update", "processor", (last, *exchanged)))
    end = len(nodes) - 1
    for message in plan.after_update:
        nodes.append(
            Node("exchange weights", "exchange", "link", (end,), operation=message.operation, bytes=message.bytes)
        )
        end = len(nodes) - 1
    return tuple(nodes)
