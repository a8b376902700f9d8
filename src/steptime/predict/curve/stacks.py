"""Declared facts of training stacks, from ``stacks.toml``: what a framework does with gradients, by its documentation.

A stack is recognised by words of the free text of a table. Case, spaces and punctuation of that text do not count.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal

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
        found = Stack(declared, **next(rule for rule in _read().stacks if rule.facts["name"] == declared).facts_of())
    else:
        rule = next((rule for rule in _read().stacks if rule.fits(text)), None)
        found = Stack(UNKNOWN) if rule is None else Stack(rule.facts["name"], **rule.facts_of())
    for option in _read().options:
        if option.fits(text):
            found = replace(found, **option.facts_of())
    return found


def unspelled(text: str) -> str:
    """Return a text as small letters and digits alone, with short names written out.

    >>> unspelled("tf-2.3, Mirrored Strategy")
    'tensorflow23mirroredstrategy'
    """
    spellings = _read().spellings
    return "".join(spellings.get(word, word) for word in re.findall(r"[a-z0-9]+", text.lower()))


def stack_names() -> tuple[str, ...]:
    """Return the names of all declared stacks."""
    return tuple(rule.facts["name"] for rule in _read().stacks)


def declared_stacks() -> tuple[Stack, ...]:
    """Return all declared stacks, without options."""
    return tuple(Stack(rule.facts["name"], **rule.facts_of()) for rule in _read().stacks)


@dataclass(frozen=True)
class _StackTable:
    spellings: Mapping[str, str]
    stacks: tuple[_Rule, ...]
    options: tuple[_Rule, ...]


@cache
def _read() -> _StackTable:
    content = tomllib.loads(files("steptime.predict.curve").joinpath("stacks.toml").read_text("utf-8"))
    return _StackTable(content["spellings"], _rules(content["stack"]), _rules(content["option"]))


def _rules(entries: list[dict[str, Any]]) -> tuple[_Rule, ...]:
    return tuple(_Rule(tuple(entry["words"]), tuple(entry.get("without", ())), entry) for entry in entries)
