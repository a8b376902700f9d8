"""The names that a study may use. Whoever reads a study hands them in, so that this room need not know who has them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

OptionValue = bool | int | float | str


@dataclass(frozen=True)
class OptionFacts:
    """A setting of a framework."""

    type: Literal["bool", "int", "float", "str"]
    default: OptionValue
    choices: tuple[OptionValue, ...] = ()
    """The values it may have; empty where its type is the only limit."""
    strategies: tuple[str, ...] = ()
    """Where it means something; empty means everywhere."""


@dataclass(frozen=True)
class FrameworkFacts:
    """What a study may ask of a framework."""

    strategies: tuple[str, ...]
    devices: tuple[str, ...] = ("cpu",)
    precisions: tuple[str, ...] = ("fp32",)
    loaders: tuple[str, ...] = ("synthetic",)
    options: Mapping[str, OptionFacts] = field(default_factory=dict)


@dataclass(frozen=True)
class Vocabulary:
    """All names, by what they name."""

    frameworks: Mapping[str, FrameworkFacts]
    workloads: tuple[str, ...]
    datasets: tuple[str, ...]
    """The built-in ones; a study may also name a folder."""
    launchers: tuple[str, ...]
    environment_kinds: tuple[str, ...]

    @property
    def strategies(self) -> list[str]:
        """What any framework knows."""
        return sorted({name for facts in self.frameworks.values() for name in facts.strategies})

    @property
    def loaders(self) -> list[str]:
        """What any framework knows, and ``synthetic``."""
        return sorted({"synthetic"} | {name for facts in self.frameworks.values() for name in facts.loaders})
