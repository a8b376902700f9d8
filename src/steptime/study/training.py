"""Training until it is over: learning-rate schedules with their parameters, and what a trial trains."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from steptime.study.quantities import Accuracy, Count, Duration, NameAllowed, OneOrMany, Strict, from_name
from steptime.worker.rate_schedules import RATE_SCHEDULES, ScheduleParameter, learning_rate

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

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True)

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


_MOST_POINTS = 240
"""Of a curve; more cannot be seen."""


def rate_shares(
    schedule: RateSchedule, epochs: int, steps_per_epoch: int, warmup_epochs: int
) -> list[tuple[float, float]]:
    """Return the curve of a learning-rate schedule: epochs, not whole within one, and shares of the learning rate.

    The curve of ``plateau`` is that of losses that sink in every epoch.
    """
    training = {
        "learning_rate": 1.0,
        "epochs": epochs,
        "steps_per_epoch": steps_per_epoch,
        "warmup_steps": warmup_epochs * steps_per_epoch,
        "rate_schedule": schedule.model_dump(),
    }
    steps = epochs * steps_per_epoch
    drawn = sorted({*range(0, steps, max(1, steps // _MOST_POINTS)), steps - 1})
    points = [(step / steps_per_epoch, learning_rate(training, step)) for step in drawn]
    inner = range(1, len(points) - 1)
    # Of a level part of the curve its ends are enough.
    level = {i for i in inner if points[i - 1][1] == points[i][1] == points[i + 1][1]}
    return [point for i, point in enumerate(points) if i not in level]


def full_parameters(name: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return every parameter of the learning-rate schedule ``name``, as ``chosen`` or by default.

    Raises ValueError with everything that is wrong about ``chosen``.
    """
    known = RATE_SCHEDULES[name].parameters
    mistakes = []
    for key, value in chosen.items():
        if key not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            mistakes.append(f"{key!r} is not a parameter of the learning-rate schedule {name}; {has}")
        elif mistake := _mistake(value, known[key]):
            mistakes.append(f"{key} of the learning-rate schedule {name}: {mistake}")
    if mistakes:
        raise ValueError("; ".join(mistakes))
    defaults = {key: _plain(parameter.default) for key, parameter in known.items()}
    return {**defaults, **{key: _typed(value, known[key]) for key, value in chosen.items()}}


def _mistake(value: object, parameter: ScheduleParameter) -> str | None:
    if parameter.listed:
        values = value if isinstance(value, list | tuple) else [value]
        found = [mistake for each in values if (mistake := _number_mistake(each, parameter))]
        grows = not found and list(values) == sorted(set(values))
        return found[0] if found else (None if values and grows else f"{value!r} are not numbers that grow")
    return _number_mistake(value, parameter)


def _number_mistake(value: object, parameter: ScheduleParameter) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"{value!r} is not a number"
    if parameter.whole and not isinstance(value, int):
        return f"{value!r} is not a whole number"
    if not parameter.least <= value <= parameter.most:
        return f"{value!r} is not from {parameter.least:g} to {parameter.most:g}"
    return None


def _typed(value: Any, parameter: ScheduleParameter) -> Any:  # noqa: ANN401 - numbers and lists of them
    if parameter.listed:
        return list(value) if isinstance(value, list | tuple) else [value]
    return value if parameter.whole else float(value)


class ScheduleChoice(Strict):
    """A learning-rate schedule, with the parameters that are not to be the defaults; docs/learning.md has all."""

    name: ScheduleName
    """The formula."""
    every_epochs: int | None = None
    """Of `step`."""
    at_epochs: OneOrMany[int] | None = None
    """Of `multi_step`."""
    factor: float | None = None
    """Of `step`, `multi_step`, `plateau` and `exponential`."""
    power: float | None = None
    """Of `polynomial`."""
    minimum: float | None = None
    """Of `polynomial`, `cosine`, `cosine_restarts` and `plateau`."""
    first_epochs: int | None = None
    """Of `cosine_restarts`."""
    multiplier: int | None = None
    """Likewise."""
    rise: float | None = None
    """Of `one_cycle`: the share of steps in which the rate rises."""
    start_factor: float | None = None
    """Of `one_cycle`."""
    end_factor: float | None = None
    """Likewise."""
    patience: int | None = None
    """Of `plateau`."""
    threshold: float | None = None
    """Of `plateau`: the share of the loss by which an epoch must be better."""

    @model_validator(mode="after")
    def _parameters_are_its_own(self) -> "ScheduleChoice":
        full_parameters(self.name, self._chosen())
        return self

    def rate_schedule(self) -> RateSchedule:
        """Return the schedule with every parameter given."""
        return RateSchedule(name=self.name, parameters=full_parameters(self.name, self._chosen()))

    def _chosen(self) -> dict[str, Any]:
        return self.model_dump(exclude={"name"}, exclude_none=True)


NamedSchedule = Annotated[ScheduleChoice, BeforeValidator(from_name), NameAllowed()]
WarmupEpochs = Annotated[int, Field(ge=0, le=100_000)]


class TrainChoice(Strict):
    """Training until it is over: how long, with which learning rates, and how often."""

    epochs: Annotated[int, Field(ge=1, le=100_000)]
    """At most."""
    target_accuracy: Accuracy | None = None
    """A training ends with the first epoch whose validation accuracy reaches it."""
    schedules: Annotated[OneOrMany[NamedSchedule], Field(min_length=1)] = [
        ScheduleChoice.model_construct(name="constant")
    ]
    """Of learning rates; docs/learning.md has their formulas and defaults."""
    scaling_rule: Annotated[OneOrMany[ScalingRule], Field(min_length=1)] = ["none"]
    """What multiplies the learning rate: nothing, global batch / `base_batch`, or its root."""
    base_batch: Count = 32
    """The global batch that the learning rate is meant for."""
    warmup_epochs: Annotated[OneOrMany[WarmupEpochs], Field(min_length=1)] = [0]
    """In which the learning rate rises linearly."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The share of each target that is spread over all classes, in training only."""
    seeds: Annotated[int, Field(ge=1, le=1000)] = 5
    """Launches of each trial; launch n has the seed `seed + n`."""
    time_limit: Duration = 14_400.0
    """Of one launch; running again resumes from its last epoch."""


class Training(BaseModel):
    """What turns a trial from throughput into training."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True)

    epochs: int
    """At most."""
    target_accuracy: float | None = None
    """A share; the training ends with the first epoch that reaches it."""
    rate_schedule: RateSchedule = RateSchedule.model_construct(name="constant")  # makes no schema yet
    scaling_rule: ScalingRule = "none"
    base_batch: int | None = None
    """The global batch that the optimizer's learning rate is meant for; None without a scaling rule."""
    warmup_epochs: int = 0
    label_smoothing: float = 0.0
    validation: str | None = None
    """A folder to validate on; None if a share of the dataset is held out."""

    def learning_rate(self, base: float, global_batch: int) -> float:
        """Return the learning rate ``base`` after the scaling rule."""
        if self.base_batch is None:
            return base
        factor = global_batch / self.base_batch
        return float(base * (factor if self.scaling_rule == "linear" else factor**0.5))
