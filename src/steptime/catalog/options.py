"""The settings of a trial that have names of their own, and those of a framework with the values that they may have."""

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from steptime.errors import choices_message

OptionValue = bool | int | float | str
Tuning = Literal["documented", "tuned"]
"""The tier of a trial's options: what the framework's own guide and example do, or the best that an expert gets
without changing what is computed."""
Precision = Literal["fp32", "tf32", "bf16", "fp16"]
"""What products are computed in: docs/gpu.md describes each in every framework."""

_TYPES = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "text"}


class Option(BaseModel):
    """A setting of a framework that a study may vary."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True)

    help: str
    type: Literal["bool", "int", "float", "str"]
    default: OptionValue
    choices: list[OptionValue] = Field(default_factory=list)
    """The values that it may have; empty where its type and its bounds are the only limits."""
    launchers: dict[str, Literal["local", "mpi"]] = Field(default_factory=dict)
    """The launcher that a value needs, where it is not the strategy's own."""
    strategies: list[str] = Field(default_factory=list)
    """Where the option means something; empty means everywhere."""
    rounds: list[OptionValue] = Field(default_factory=list)
    """Values with which workers send rounded gradients: the equivalence check holds such trials, and none is ranked."""
    alters: list[OptionValue] = Field(default_factory=list)
    """Values with which something else is computed on purpose: such trials are neither checked nor ranked."""
    minimum: float | None = None
    """Of a number, as the three below; a study with a value outside is refused."""
    maximum: float | None = None
    above: float | None = None
    """For what may come near a bound and not reach it."""
    below: float | None = None
    also: list[OptionValue] = Field(default_factory=list)
    """Values outside of these bounds that have a meaning of their own."""
    pattern: str | None = None
    """The regular expression that a text which is not one of ``choices`` must match as a whole."""
    examples: list[str] = Field(default_factory=list)
    """Texts that it matches, for whoever wrote another."""

    @property
    def range(self) -> str:
        """``at least 1 and at most 1024``; empty without bounds."""
        bounds = {"above": self.above, "at least": self.minimum, "below": self.below, "at most": self.maximum}
        within = " and ".join(f"{words} {bound:.15g}" for words, bound in bounds.items() if bound is not None)
        return ", or ".join([*map(str, self.also), within]) if within else ""

    def mistake(self, name: str, value: object) -> str | None:
        """Say why the option ``name`` cannot have ``value``; None if it can."""
        if not self._has_type(value):
            return f"{value!r} is not {_TYPES[self.type]}, as {name} needs"
        if self.choices and value not in self.choices:
            return choices_message(f"value of {name}", str(value), map(str, self.choices))
        if isinstance(value, (int, float)) and value not in self.also and not self._within(value):
            return f"{name} must be {self.range}, not {value}"
        if self.pattern is not None and not re.fullmatch(self.pattern, str(value)):
            return f"{name} cannot be {str(value)[:60]!r}; write for example {' or '.join(map(repr, self.examples))}"
        return None

    def typed(self, value: OptionValue) -> OptionValue:
        """Return ``value`` in the option's type: 1 for a float option is 1.0, or one trial would have two ids."""
        return float(value) if self.type == "float" else value

    def _has_type(self, value: object) -> bool:
        if isinstance(value, bool):
            return self.type == "bool"
        if isinstance(value, int):
            return self.type in ("int", "float")
        return isinstance(value, float if self.type == "float" else str) and self.type in ("float", "str")

    def _within(self, value: float) -> bool:
        return (
            (self.minimum is None or value >= self.minimum)
            and (self.maximum is None or value <= self.maximum)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    @model_validator(mode="after")
    def _limits_fit(self) -> "Option":
        """Refuse limits that mean nothing to the type, and that the default or an example breaks."""
        wrong: list[str] = []
        if (self.range or self.also) and self.type not in ("int", "float"):
            wrong.append(f"bounds mean nothing to the type {self.type}; they are for int and float")
        if (self.pattern is not None or self.examples) and self.type != "str":
            wrong.append(f"pattern and examples mean nothing to the type {self.type}; they are for str")
        if self.pattern is not None and not self.examples:
            wrong.append("pattern needs examples, which an error shows")
        try:
            re.compile(self.pattern or "")
        except re.error as error:
            wrong.append(f"pattern {self.pattern!r} is not a regular expression: {error}")
        if (self.range or self.pattern is not None) and not wrong:
            values = [("default", self.default), *(("examples", example) for example in self.examples)]
            wrong += filter(None, (self.mistake(key, value) for key, value in values))
        if wrong:
            raise ValueError("; ".join(wrong))
        return self
