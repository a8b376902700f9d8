"""What is known of a curve's stack and hardware from its descriptive columns, before any point of it was measured.

The rates are the data sheets' and the policies the declared ones of ``stacks.toml``; what a stack makes of them is
learned. A stack of which nothing is declared is taken for one that exchanges during the backward pass. What no column
states has a middle and a spread, from ``hardware.toml`` and from the numbers here.

What is believed of hosts and links that a table does not state, by the accelerator, from ``hardware.toml``.

An empty column is not a slow network, nor a fast one: it is a wide belief, and a question to whoever wrote the table.

Declared facts of training stacks, from ``stacks.toml``: what a framework does with gradients, by its documentation.

A stack is recognised by words of the free text of a table. Case, spaces and punctuation of that text do not count.
"""

import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from math import ceil, inf
from typing import Any, Literal

from steptime.catalog.choices import strategy_named
from steptime.catalog.workloads.table import LIBRARY
from steptime.curves.curve import Setup

_GIGA = 1e9
_GBIT = 1e9 / 8
_PROCESSOR = "processor"
"""The name of ``hardware.toml`` for workers without devices."""


@dataclass(frozen=True)
class BelievedRate:
    """Bytes per second, and the standard deviation of the logarithm of how far it is from that; 0 where stated."""

    median: float
    spread: float = 0.0


@dataclass(frozen=True)
class UsualHosts:
    """What hosts of an accelerator usually have."""

    name: str
    hosts: Mapping[float, float]
    """How likely a host holds so many workers; infinitely many where all share one. Adds up to one."""
    network: BelievedRate
    """Of all cards of a host together."""
    cards: int
    cards_spread: float
    """Of the logarithm of their number, where the rate of one is stated and their number is not."""
    links: Mapping[str, BelievedRate]
    """Between two workers of a host, by the name of the link; under the empty name where it has none."""
    shared: Collection[str]
    """Those of the links by which all messages of a host cross one memory."""

    def inside(self, link: str) -> BelievedRate:
        """Return what is believed of a link inside a host, by its name in a table."""
        return self.links.get(link, self.links[""])

    def shares_memory(self, link: str) -> bool:
        """Return whether all messages inside a host cross one memory over that link."""
        return (link if link in self.links else "") in self.shared


def usual_hosts(text: str) -> UsualHosts:
    """Return the accelerator that a table names; spelling does not count, and none is unknown to it."""
    runs = _runs(text)
    return next(found for words, found in _read() if not words or any(_holds(runs, word) for word in words))


def computes_on_processors(text: str) -> bool:
    """Return whether the accelerator that a table names is none, or a processor."""
    return not text or usual_hosts(text).name == _PROCESSOR


def all_usual_hosts() -> tuple[UsualHosts, ...]:
    """Return all that are declared, the unknown one last."""
    return tuple(found for _, found in _read())


_Runs = tuple[str, ...]


def _runs(text: str) -> _Runs:
    """Return the runs of letters and of digits of a text.

    >>> _runs("A100-SXM4")
    ('a', '100', 'sxm', '4')
    """
    return tuple(re.findall(r"[a-z]+|[0-9]+", text.lower()))


def _holds(text: _Runs, word: _Runs) -> bool:
    """Return whether the runs of a word follow each other in a text; the last may go on there."""
    last = len(word) - 1
    return any(
        text[start : start + last] == word[:last] and text[start + last].startswith(word[last])
        for start in range(len(text) - last)
    )


@cache
def _read() -> tuple[tuple[tuple[_Runs, ...], UsualHosts], ...]:
    content = tomllib.loads(files("steptime.curves").joinpath("hardware.toml").read_text("utf-8"))
    return tuple(
        (
            tuple(map(_runs, entry["words"])),
            UsualHosts(
                name=entry["name"],
                hosts={inf if size == "inf" else float(size): share for size, share in entry["hosts"].items()},
                network=BelievedRate(entry["network_gbps"] * _GBIT, entry["network_spread"]),
                cards=entry["cards"],
                cards_spread=entry["cards_spread"],
                links={name: BelievedRate(rate * _GIGA, spread) for name, (rate, spread) in entry["inside"].items()},
                shared=entry.get("shared", ()),
            ),
        )
        for entry in content["accelerator"]
    )


Exchange = Literal["during_backward", "after_backward"]
Messages = Literal["buckets", "tensors", "one"]

UNKNOWN = ""
"""The name of an undeclared stack."""


@dataclass(frozen=True)
class Stack:
    """What is declared of a stack; None if nothing is."""

    name: str
    exchange: Exchange | None = None
    messages: Messages | None = None
    value_bytes: int | None = None
    """Of gradients in mixed precision."""
    step_graph: str | None = None
    """Framework and strategy whose step graph must say the same, as ``tensorflow/allreduce``."""


@dataclass(frozen=True)
class _Rule:
    words: tuple[str, ...]
    without: tuple[str, ...]
    facts: Mapping[str, Any]

    def facts_of(self) -> dict[str, Any]:
        """Return what the rule declares, by the names of ``Stack``."""
        return {
            key: self.facts[key] for key in ("exchange", "messages", "value_bytes", "step_graph") if key in self.facts
        }

    def fits(self, text: str) -> bool:
        """Return whether a text without its spelling has the words."""
        return all(word in text for word in self.words) and not any(word in text for word in self.without)


def stack_of(framework: str, workload: str = "", declared: str = "") -> Stack:
    """Return the stack of a row of a table.

    Args:
        framework: free text.
        workload: its name; the same framework may cast one workload and not another.
        declared: the name of a stack, which the text is then not searched for; options still are.
    """
    text = unspelled(f"{framework} {workload}")
    if declared:
        found = Stack(
            declared, **next(rule for rule in _read_stacks().stacks if rule.facts["name"] == declared).facts_of()
        )
    else:
        rule = next((rule for rule in _read_stacks().stacks if rule.fits(text)), None)
        found = Stack(UNKNOWN) if rule is None else Stack(rule.facts["name"], **rule.facts_of())
    for option in _read_stacks().options:
        if option.fits(text):
            found = replace(found, **option.facts_of())
    return found


def unspelled(text: str) -> str:
    """Return a text as small letters and digits alone, with short names written out.

    >>> unspelled("tf-2.3, Mirrored Strategy")
    'tensorflow23mirroredstrategy'
    """
    spellings = _read_stacks().spellings
    return "".join(spellings.get(word, word) for word in re.findall(r"[a-z0-9]+", text.lower()))


def stack_names() -> tuple[str, ...]:
    """Return the names of all declared stacks."""
    return tuple(rule.facts["name"] for rule in _read_stacks().stacks)


def declared_stacks() -> tuple[Stack, ...]:
    """Return all declared stacks, without options."""
    return tuple(Stack(rule.facts["name"], **rule.facts_of()) for rule in _read_stacks().stacks)


@dataclass(frozen=True)
class _StackTable:
    spellings: Mapping[str, str]
    stacks: tuple[_Rule, ...]
    options: tuple[_Rule, ...]


@cache
def _read_stacks() -> _StackTable:
    content = tomllib.loads(files("steptime.curves").joinpath("stacks.toml").read_text("utf-8"))
    return _StackTable(content["spellings"], _rules(content["stack"]), _rules(content["option"]))


def _rules(entries: list[dict[str, Any]]) -> tuple[_Rule, ...]:
    return tuple(_Rule(tuple(entry["words"]), tuple(entry.get("without", ())), entry) for entry in entries)


COST_ONLY: Mapping[str, int] = {
    "resnet20": 269_722,
    "vgg16_cifar": 14_728_266,
    "resnext50_32x4d": 25_028_904,
    "resnext101_32x8d": 88_791_336,
    "bert_base": 109_482_240,
    "bert_large": 335_141_888,
}
"""Trainable values of workloads that steptime cannot train: enough to know what travels, not what is computed."""

_LATENCIES: Mapping[str, float] = {"rdma": 10e-6, "tcp": 40e-6}
_TCP_RATE = 10 * _GIGA / 8
"""Bytes per second; where the transport is not stated, slower networks are taken for Ethernet with TCP."""
_UNSTATED_LATENCY_SPREAD = 0.7
_USUAL_GRADIENTS = 1e8
"""Bytes, for workloads that nothing is known of: 25 million values."""
_UNKNOWN_GRADIENTS_SPREAD = 1.5
"""Networks that people race have from 2 million values to 500 million: two spreads to either side."""

_TENSORS: Mapping[str, int] = {
    "alexnet": 16, "vgg16": 32, "vgg16_cifar": 32, "googlenet": 116, "inception_v3": 284, "resnet20": 65,
    "resnet50": 161, "resnet101": 314, "resnet152": 467, "resnext50_32x4d": 161, "resnext101_32x8d": 314,
    "bert_base": 206, "bert_large": 398,
}  # fmt: skip
"""Tensors of weights that a framework exchanges; batch normalisation has two."""

_USUAL_TENSORS = 100
_TENSORS_PER_LAYER = 2
LAYERS_OF_UNKNOWN = _USUAL_TENSORS // _TENSORS_PER_LAYER
"""Of a workload that nothing is known of."""
_BUCKET = 32e6
"""Bytes of gradients that a stack usually exchanges at once."""


_FP32 = 4


def gradient_bytes(workload: str, value_bytes: int = _FP32) -> int | None:
    """Return the bytes of one worker's gradients, or None for a workload of unknown size."""
    if workload in LIBRARY:
        return LIBRARY[workload].published_parameters * value_bytes
    if workload in COST_ONLY:
        return COST_ONLY[workload] * value_bytes
    return None


@dataclass(frozen=True)
class Facts:
    """Quantities that the parameters of the model scale."""

    gradient_bytes: float
    """At four bytes per value."""
    half_bytes: float
    """How sure it is that values travel with two bytes: 0, 1, or 0.5 where the columns do not tell."""
    inside_rate: float
    shared_memory: bool
    """Whether all messages inside a host cross one memory."""
    links: int
    """Links of a worker inside its host that work at once, one for each device that splits its layers."""
    card_rate: float
    """Of all network cards of a host together."""
    cards: int
    """Network cards per host, each fed by devices of its own."""
    overlaps: bool
    """Whether gradients travel while the backward pass still computes."""
    servers: bool
    latency: float
    """Usual seconds of one step between hosts."""
    messages: int
    """Exchanges of a step."""
    sharded_over: int | None
    """Workers over which weights are split, where that is stated."""
    accumulation: int
    """Backward passes of a step."""
    spread: bool
    """Whether workers beyond the measured ones come to share the cards of hosts."""
    spreads: Mapping[str, float]
    """Standard deviations of the logarithms of quantities that no column states, by the name of their parameter."""


UNSTATED: Mapping[str, str] = {
    "unstated_network": "inter_host_gbps",
    "unstated_inside": "intra_host_link",
    "unstated_gradients": "parameters",
    "unstated_latency": "transport",
}
"""The column that would state what a parameter stands for."""


def facts_of(setup: Setup) -> Facts:
    """Return what the columns of a set-up say, and how uncertain it is where they say nothing."""
    hardware = usual_hosts(setup.accelerator)
    stack = _stack(setup)
    size, inside = _gradients(setup), hardware.inside(setup.intra_host_link)
    if setup.inter_host_rate is None:
        cards = setup.cards_per_host or hardware.cards
        rate, spread = hardware.network.median, hardware.network.spread
    else:
        cards = setup.cards_per_host or hardware.cards
        rate, spread = setup.inter_host_rate * cards, 0.0 if setup.cards_per_host else hardware.cards_spread
    stated = setup.transport in _LATENCIES
    return Facts(
        gradient_bytes=size or _USUAL_GRADIENTS,
        half_bytes=_half_bytes(setup, stack),
        inside_rate=inside.median,
        shared_memory=hardware.shares_memory(setup.intra_host_link),
        links=setup.tensor_parallel,
        card_rate=rate,
        cards=cards,
        overlaps=stack.exchange != "after_backward",
        servers=strategy_named(setup.strategy).servers,
        latency=_LATENCIES[setup.transport if stated else "tcp" if rate / cards <= _TCP_RATE else "rdma"],
        messages=_messages(setup, stack),
        sharded_over=setup.sharded_over,
        accumulation=setup.accumulation,
        spread=setup.assumed_spread,
        spreads={
            "unstated_network": spread,
            "unstated_inside": inside.spread,
            "unstated_gradients": 0.0 if size else _UNKNOWN_GRADIENTS_SPREAD,
            "unstated_latency": 0.0 if stated else _UNSTATED_LATENCY_SPREAD,
        },
    )


def _stack(setup: Setup) -> Stack:
    """Return what is known of the stack: what columns state, and what is declared of the rest."""
    found = stack_of(setup.framework, workload_of(setup), setup.stack)
    stated = {key: value for key in ("exchange", "messages", "value_bytes") if (value := getattr(setup, key))}
    return replace(found, **stated)


def _gradients(setup: Setup) -> float | None:
    """Return the bytes of one worker's gradients at four bytes a value, or None for a workload of unknown size."""
    if setup.parameters is not None:
        return float(setup.parameters * _FP32)
    return gradient_bytes(workload_of(setup))


def _half_bytes(setup: Setup, stack: Stack) -> float:
    if setup.value_bytes is not None:
        return float(setup.value_bytes < _FP32)
    if not setup.precision.startswith("amp_"):
        return 1.0 if setup.precision in {"fp16", "bf16"} else 0.0
    return 0.5 if stack.value_bytes is None else float(stack.value_bytes < _FP32)


def _messages(setup: Setup, stack: Stack) -> int:
    workload = workload_of(setup)
    if stack.messages == "tensors":
        return _TENSORS.get(workload, _USUAL_TENSORS)
    if stack.messages == "one":
        return 1
    return ceil((_gradients(setup) or _USUAL_GRADIENTS) / setup.tensor_parallel / _BUCKET)


def workload_of(setup: Setup) -> str:
    """Return the workload, which a table may name only in its free text."""
    if setup.workload in LIBRARY or setup.workload in COST_ONLY:
        return setup.workload
    text = re.sub(r"[^a-z0-9]", "", setup.framework.lower())
    known = [name for name in (*COST_ONLY, *LIBRARY) if name.replace("_", "") in text]
    return max(known, key=len, default=setup.workload)


def layers_of(workload: str) -> int | None:
    """Return how many layers with weights a workload has, or None if nothing is known of it."""
    return _TENSORS[workload] // _TENSORS_PER_LAYER if workload in _TENSORS else None
