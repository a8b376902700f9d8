"""The settings of a trial that have names of their own, and those of a framework with the values that they may have.

The optimizers: their names, their settings, and which settings mean something to which.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

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


OptimizerName = Literal["sgd", "nesterov", "adam", "adamw", "lars", "lamb"]

_ADAM = ("beta1", "beta2", "epsilon")
SETTINGS: Mapping[OptimizerName, tuple[str, ...]] = {
    "sgd": ("momentum",),
    "nesterov": ("momentum",),
    "adam": _ADAM,
    "adamw": _ADAM,
    "lars": ("momentum", "trust_coefficient"),
    "lamb": _ADAM,
}
"""By optimizer, the settings that it has apart from those of all."""
_OF_ALL = ("learning_rate", "weight_decay", "decayed", "clip_norm")
_LATER = ("decayed", "clip_norm")
"""Left out where they have their defaults, so that ids, jobs and files are what they were before there were any."""


class Optimizer(BaseModel):
    """How gradients change weights, the same in every framework: docs/worker-protocol.md has the formulas."""

    model_config = ConfigDict(
        defer_build=True, extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    name: OptimizerName = "sgd"
    """The rule."""
    learning_rate: float = Field(0.01, gt=0)
    """Before the scaling rule and the schedule of a training."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """Of `sgd`, `nesterov` and `lars`."""
    weight_decay: float = Field(0.0, ge=0)
    """Times the weights, added to the gradient; in `adamw` and `lamb` taken off the weights."""
    decayed: Literal["all", "matrices"] = "all"
    """`matrices` are arrays of two axes or more, not biases and scales."""
    clip_norm: float | None = Field(None, gt=0)
    """Length to which a longer mean gradient, over all weights, is cut; asynchronously, one's own."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """Of `adam`, `adamw` and `lamb`: kept of the mean of gradients in each step."""
    beta2: float = Field(0.999, ge=0, lt=1)
    """Likewise of the mean of squared gradients."""
    epsilon: float = Field(1e-8, gt=0)
    """Of the same: added to the root of that mean."""
    trust_coefficient: float = Field(0.001, gt=0)
    """Of `lars`: length of an update relative to that of the weights, before the learning rate."""

    @model_validator(mode="after")
    def _settings_mean_something(self) -> "Optimizer":
        allowed = ("name", *_OF_ALL, *SETTINGS[self.name])
        for setting in sorted(self.model_fields_set - set(allowed)):
            if getattr(self, setting) != type(self).model_fields[setting].default:
                message = choices_message(f"setting of {self.name}", setting, allowed)
                raise ValueError(message)
        if self.decayed != "all" and not self.weight_decay:
            message = f"decayed: {self.decayed} needs weight_decay above 0"
            raise ValueError(message)
        return self

    @model_serializer(mode="wrap")
    def _own_settings(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the settings that mean nothing to the optimizer, so that sgd is written as it always was."""
        fields = handler(self)
        foreign = {setting for settings in SETTINGS.values() for setting in settings} - set(SETTINGS[self.name])
        return {name: value for name, value in fields.items() if name not in foreign and not self._goes_without(name)}

    def _goes_without(self, setting: str) -> bool:
        return setting in _LATER and getattr(self, setting) == type(self).model_fields[setting].default

    @property
    def values_per_weight(self) -> int:
        """How many values the optimizer keeps per weight from step to step: means of gradients and of their squares."""
        if "beta2" in SETTINGS[self.name]:
            return 2
        return 1 if self.momentum else 0

    def all_settings(self) -> dict[str, Any]:
        """Return every setting, as the job has them, also those that mean nothing to the optimizer."""
        return {name: getattr(self, name) for name in type(self).model_fields if not self._goes_without(name)}

    @property
    def in_words(self) -> str:
        """The name with those settings that differ from the defaults, as tables show it."""
        changed = [
            f"{name.replace('_', ' ')} {value if isinstance(value, str) else format(value, 'g')}"
            for name, value in self.model_dump().items()
            if name not in {"name", "learning_rate"} and value != type(self).model_fields[name].default
        ]
        return " ".join([self.name, f"{self.learning_rate:g}", *changed])
