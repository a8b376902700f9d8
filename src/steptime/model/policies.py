"""The step graph of a framework and strategy, by the communication policy: its own, or what stands for the strategy.

A framework's own policies are in the ``communication.py`` of its folder, which is pure Python: it is imported by
itself, without the adapter and without the framework. Nothing else of frameworks is read by the predicting half.

What travels in a step: the bytes of gradients and weights by precision, compression and sharding.

Sources: S. Rajbhandari et al., "ZeRO", SC 2020, section 7: with P values, data parallelism, ZeRO 1 and ZeRO 2 move 2 P
values per worker and step, ZeRO 3 moves 3 P; F. Seide et al., Interspeech 2014, for one bit per value; D. Alistarh et
al., NeurIPS 2018, for the largest values of all with their places; Y. Zhao et al., PVLDB 16 (2023) 3848, for shards
within hosts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from steptime.catalog import manifest
from steptime.catalog.options import OptionValue
from steptime.errors import SteptimeError
from steptime.worker.communication import (
    PLAINEST,
    CommunicationPlan,
    Gather,
    PlannedMessage,
    Policy,
    PolicyContext,
    Work,
)

FILE = "communication.py"
BROUGHT_BY: Mapping[str, str] = {
    "fsdp": "pytorch",
    "zero1": "deepspeed",
    "zero2": "deepspeed",
    "zero3": "deepspeed",
    "onebit": "cntk",
    "block_momentum": "cntk",
}
"""The framework that brought a strategy: one without a policy of its own is taken to follow that framework's. All other
strategies have a plainest policy, which belongs to no framework."""
_SHIPPED = Path(manifest.__file__).parents[1] / "frameworks"


@dataclass(frozen=True)
class StepGraph:
    """The step graph: what one worker computes and exchanges in a step; the other workers do the same."""

    framework: str
    strategy: str
    work: Work
    plan: CommunicationPlan
    servers: int = 0

    @property
    def messages(self) -> tuple[PlannedMessage, ...]:
        """The exchanges of gradients, in the order in which they are started."""
        return self.plan.messages


def step_graph(work: Work, framework: str, strategy: str, context: PolicyContext) -> StepGraph:
    """Return the graph of a step.

    Args:
        work: of ``work_of``.
        framework: its name; one without a policy of its own follows that of ``BROUGHT_BY``, or the plainest one.
        strategy: as in ``steptime list strategies``.
        context: of the trial; options that the trial leaves out get the defaults of the manifest.

    Raises KeyError for an unknown strategy, and SteptimeError for a ``communication.py`` that cannot be used.
    """
    followed = framework if has_own_policy(framework, strategy) else BROUGHT_BY.get(strategy, framework)
    policy = policies_of(followed).get(strategy) or PLAINEST[strategy]
    defaults = {**_defaults(followed, strategy), **_defaults(framework, strategy)}
    plan = policy(work, context._replace(options={**defaults, **context.options}))
    servers = max(context.servers, 1) if plan.updated_by == "servers" else 0
    return StepGraph(framework, strategy, work, plan, servers)


def _defaults(framework: str, strategy: str) -> dict[str, OptionValue]:
    known = manifest.find_manifest(framework)
    return {} if known is None else {name: option.default for name, option in known.options_for(strategy).items()}


def option_mistake(framework: str, strategy: str, name: str, value: OptionValue) -> str | None:
    """Say why a framework cannot have a value of an option under a strategy; None if it can, or is not installed."""
    manifests = manifest.load_manifests()
    if framework not in manifests:
        return None
    options = manifests[framework].options_for(strategy)
    if name in options:
        return options[name].mistake(name, value)
    having = [
        " ".join([other, *each.options[name].strategies]) for other, each in manifests.items() if name in each.options
    ]
    others = f", which {' and '.join(having)} have" if having else ""
    return f"{framework} {strategy} has no option {name}{others}; leave it out"


def strategy_mistake(framework: str, strategy: str) -> str | None:
    """Say why a framework cannot train with a strategy; None if it can, or is not installed."""
    manifests = manifest.load_manifests()
    if framework not in manifests or strategy in manifests[framework].strategies:
        return None
    own = ", ".join(sorted(manifests[framework].strategies))
    others = ", ".join(sorted(name for name, each in manifests.items() if strategy in each.strategies))
    return f"{framework} has no strategy {strategy}, but {own}; {strategy} is of {others or 'no framework'}"


def has_policy(strategy: str) -> bool:
    """Say whether any framework's step can be planned under a strategy."""
    return strategy in PLAINEST or strategy in BROUGHT_BY


def has_own_policy(framework: str, strategy: str) -> bool:
    """Say whether a framework brings a policy of its own, rather than following another's."""
    return strategy in policies_of(framework)


def policies_of(framework: str) -> Mapping[str, Policy]:
    """Return a framework's own policies by strategy; none for a framework that is not installed."""
    known = manifest.find_manifest(framework)
    return {} if known is None else policies_in(known.folder)


@cache
def policies_in(folder: Path) -> Mapping[str, Policy]:
    """Return the policies of the framework whose folder this is, by strategy; none without a ``communication.py``.

    Raises SteptimeError for a file that cannot be imported, or has no ``POLICIES``.
    """
    path = folder / FILE
    if not path.is_file():
        return {}
    try:
        policies: Mapping[str, Policy] = _loaded(path).POLICIES
    except Exception as error:
        message = (
            f"{path} cannot be read for predictions ({type(error).__name__}: {error}); it must define POLICIES, "
            "{strategy: policy}, and import nothing but steptime.worker and steptime.libraries.*.communication"
        )
        raise SteptimeError(message) from error
    return policies


def _loaded(path: Path) -> ModuleType:
    """Import one ``communication.py``: from the package, or from its file where the framework lies elsewhere."""
    name = path.parent.name
    if path.parent.parent == _SHIPPED:
        return import_module(f"steptime.frameworks.{name}.communication")
    spec = spec_from_file_location(f"steptime_communication_of_{name}", path)
    if spec is None or spec.loader is None:
        message = f"{path} is not a Python file"
        raise ImportError(message)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


WIDTHS: Mapping[str, int] = {"fp32": 4, "bf16": 2, "fp16": 2}
"""Bytes of a value."""
COMPRESSIONS = ("none", "fp16", "bf16", "onebit", "topk")
SHARDS = ("all", "host")
_PLANNED_WIDTH = 4
_PLACE_BYTES = 4
_COMPRESSED = {"fp16": 1 / 2, "bf16": 1 / 2, "onebit": 1 / 32}
"""What is left of a gradient of 32 bits."""
_GRADIENTS = ("allreduce", "reduce_scatter", "push", "star")


@dataclass(frozen=True)
class Traffic:
    """How gradients and weights travel; by default as the step graph plans them, in 32 bits."""

    gradient_precision: str = "fp32"
    """Of gradients, and of weights that are gathered."""
    compression: str = "none"
    """One of ``COMPRESSIONS``, of gradients alone."""
    kept: float = 0.01
    """Share of the values that ``topk`` sends."""
    shard: str = "all"
    """``host``: each host has all weights and optimizer state, sharded over its own workers."""


AS_PLANNED = Traffic()


def with_traffic(graph: StepGraph, traffic: Traffic, workers: int, per_host: int) -> StepGraph:
    """Return the graph with other bytes in its messages.

    Args:
        graph: a step whose messages have 4 bytes per value.
        traffic: how they travel.
        workers: how many.
        per_host: workers of a host, among which shards are spread.
    """
    if traffic == AS_PLANNED:
        return graph
    width = WIDTHS[traffic.gradient_precision] / _PLANNED_WIDTH
    plan = graph.plan
    messages = [_compressed(each, traffic, width, workers) for each in plan.messages]
    gathers = tuple(gather._replace(bytes=round(gather.bytes * width)) for gather in plan.gathers)
    after = tuple(each._replace(bytes=round(each.bytes * width)) for each in plan.after_update)
    if traffic.shard == "host" and per_host < workers:
        messages = [part for each in messages for part in _within_hosts(each, sharded=bool(gathers))]
        after = tuple(each._replace(operation="host_all_gather") for each in after)
        gathers = tuple(Gather(gather.layers, gather.bytes, gather.again, "host_all_gather") for gather in gathers)
    return replace(graph, plan=plan._replace(messages=tuple(messages), gathers=gathers, after_update=after))


def ignored_option(graph: StepGraph, traffic: Traffic) -> str | None:
    """Return ``name=value`` of an option that changes nothing of what a step sends, on whatever hosts; None if none."""
    options = {name: getattr(traffic, name) for name in ("gradient_precision", "compression", "shard")}
    for name, value in options.items():
        alone = replace(AS_PLANNED, **{name: value})
        if alone != AS_PLANNED and with_traffic(graph, alone, workers=4, per_host=2).plan == graph.plan:
            return f"{name}={value}"
    return None


def _compressed(message: PlannedMessage, traffic: Traffic, width: float, workers: int) -> PlannedMessage:
    if message.operation not in _GRADIENTS or traffic.compression == "none":
        return message._replace(bytes=round(message.bytes * width))
    if traffic.compression == "topk":
        # Every worker ends up with the values and places of all others.
        kept = traffic.kept * message.bytes / _PLANNED_WIDTH * (_PLANNED_WIDTH + _PLACE_BYTES)
        if message.operation == "push":
            return message._replace(bytes=round(kept))
        if message.operation == "star":
            # As many bytes go back as come: to the middle its own values alone, and back those of all workers.
            return message._replace(bytes=round(kept * (workers + 1) / 2))
        return message._replace(operation="all_gather", bytes=round(kept * workers))
    return message._replace(bytes=round(message.bytes * _COMPRESSED[traffic.compression]))


def _within_hosts(message: PlannedMessage, *, sharded: bool) -> list[PlannedMessage]:
    """Return the same within hosts, and the all-reduce of each shard between them, of gradients that are scattered.

    Where weights are ``sharded``, an all-reduce scatters too (``scattered_by``).
    """
    if not (message.operation == "reduce_scatter" or (sharded and message.operation == "allreduce")):
        return [message]
    return [
        message._replace(operation=f"host_{message.operation}"),
        message._replace(operation="hosts_allreduce", gradient_names=()),
    ]
