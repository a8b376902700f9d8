"""Training until it is over: learning-rate schedules with their parameters, and what a trial trains."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from steptime.worker.rate_schedules.moment import Parameter
from steptime.worker.rate_schedules.table import RATE_SCHEDULES

ScheduleName = Literal[
    "constant",
    "step",
    "multi_step",
    "exponential",
    "polynomial",
    "cosine",
    "cosine_restarts",
    "one_cycle",
    "plateau",
]
ScalingRule = Literal["none", "linear", "sqrt"]
"""By what the learning rate is multiplied: nothing, the global batch over the base batch, or the root of that."""


class RateSchedule(BaseModel):
    """A learning-rate schedule, with every parameter given."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    parameters: dict[str, Any] = Field(default_factory=dict)

    @property
    def in_words(self) -> str:
        """The name, with the parameters that are not the defaults."""
        known = RATE_SCHEDULES[self.name].parameters if self.name in RATE_SCHEDULES else {}
        changed = [
            f"{name.replace('_', ' ')} {_text(value)}"
            for name, value in self.parameters.items()
            if name not in known or value != _plain(known[name].default)
        ]
        return ", ".join([self.name, *changed])


def _text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else f"{value:g}"


def _plain(value: Any) -> Any:  # noqa: ANN401 - numbers and lists of them
    return list(value) if isinstance(value, tuple) else value


def full_parameters(name: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return every parameter of the learning-rate schedule ``name``, as ``chosen`` or by default.

    Raises ValueError with everything that is wrong about ``chosen``.
    """
    known = RATE_SCHEDULES[name].parameters
    mistakes = []
    for key, value in chosen.items():
        if key not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            mistakes.append(f"{key!r} is no parameter of the learning-rate schedule {name}; {has}")
        elif mistake := _mistake(value, known[key]):
            mistakes.append(f"{key} of the learning-rate schedule {name}: {mistake}")
    if mistakes:
        raise ValueError("; ".join(mistakes))
    defaults = {key: _plain(parameter.default) for key, parameter in known.items()}
    return {**defaults, **{key: _typed(value, known[key]) for key, value in chosen.items()}}


def _mistake(value: object, parameter: Parameter) -> str | None:
    if parameter.listed:
        values = value if isinstance(value, list | tuple) else [value]
        found = [mistake for each in values if (mistake := _number_mistake(each, parameter))]
        grows = not found and list(values) == sorted(set(values))
        return found[0] if found else (None if values and grows else f"{value!r} are not numbers that grow")
    return _number_mistake(value, parameter)


def _number_mistake(value: object, parameter: Parameter) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"{value!r} is no number"
    if parameter.whole and not isinstance(value, int):
        return f"{value!r} is no whole number"
    if not parameter.least <= value <= parameter.most:
        return f"{value!r} is not from {parameter.least:g} to {parameter.most:g}"
    return None


def _typed(value: Any, parameter: Parameter) -> Any:  # noqa: ANN401 - numbers and lists of them
    if parameter.listed:
        return list(value) if isinstance(value, list | tuple) else [value]
    return value if parameter.whole else float(value)


class Training(BaseModel):
    """What turns a trial from throughput into training."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    epochs: int
    """At most."""
    target_accuracy: float | None = None
    """A share; the training ends with the first epoch that reaches it."""
    rate_schedule: RateSchedule = RateSchedule(name="constant")
    scaling_rule: ScalingRule = "none"
    base_batch: int | None = None
    """The global batch that the optimizer's learning rate is meant for; None without a scaling rule."""
    warmup_epochs: int = 0
    label_smoothing: float = 0.0
    validation: str | None = None
    """A folder to validate on; None where a share of the dataset is held out."""

    def learning_rate(self, base: float, global_batch: int) -> float:
        """Return the learning rate ``base`` after the scaling rule."""
        if self.base_batch is None:
            return base
        factor = global_batch / self.base_batch
        return float(base * (factor if self.scaling_rule == "linear" else factor**0.5))
