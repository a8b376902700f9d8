"""The optimizers: their names, their settings, and which settings mean something to which."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from steptime.errors import choices_message

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

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

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

    @property
    def computes(self) -> str:
        """The rule and what else an update computes, as ``sgd+clip_norm``; rates and amounts change no time."""
        parts = {
            "no_momentum": "momentum" in SETTINGS[self.name] and not self.momentum,
            "weight_decay": self.weight_decay > 0,
            "clip_norm": self.clip_norm is not None,
        }
        return "+".join([self.name, *(name for name, computed in parts.items() if computed)])

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
