"""A profile: performance models fitted to a results folder, and the JSON file that holds them.

Schema diary (``SCHEMA`` grows by one whenever an older reader would misread a file):

1. First version: groups with parameters and their draws, links, and the errors on points held out.
2. Links inside hosts have factors of their own; before, steps inside a host and between hosts shared them.
3. Configurations say what their launches recorded of the machine, and the share of a core that hosts may use; before,
   both were taken from the framework's name and the launcher's.
"""

import json
from collections.abc import Mapping
from functools import cached_property
from math import isclose, prod
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from steptime.catalog.choices import STRATEGIES
from steptime.errors import FileError, StoreError, choices_message
from steptime.fitting.observation import (
    NO_EFFECTS,
    Deployment,
    EndSeconds,
    GroupKey,
    MachineEffects,
    Number,
    PositiveSeconds,
    Rate,
    Seconds,
    Share,
    Size,
)
from steptime.fitting.posterior import DRAWS, bounds
from steptime.fitting.step_model import BOUNDS, INNER, OUTER
from steptime.model.collectives import LIBRARIES
from steptime.model.nccl import Medium
from steptime.model.policies import COMPRESSIONS, SHARDS, WIDTHS
from steptime.results.peaks import Peak
from steptime.results.results_files import folder_from
from steptime.synonyms import path_hint
from steptime.user_file import read_user_text
from steptime.user_output import PROFILE, kind_of, mistaken_file, write_user_file

SCHEMA = 3
_MOST_BYTES = 64 * 1024**2
_MOST_COUNT = 10**9
"""Of values of a sample, and of classes."""
_ROUNDING = 1e-4
"""Relative; the fit keeps six digits."""

Difference = Annotated[float, Field(ge=-1e15, le=1e15)]
"""Seconds, of which a difference of two measurements may be negative."""
Efficiency = list[tuple[Annotated[float, Field(ge=0.0, le=1e18)], Annotated[float, Field(ge=1e-9, le=1e9)]]]
"""Bytes of messages, and the modelled over the measured seconds of each; empty without a table."""

How = Literal["measured", "apportioned", "prior"]
"""``measured``: fitted to records of that phase; ``apportioned``: a measured total, divided by the workload's
arithmetic; ``prior``: no record is about it, and its draws are wide."""


LinkSource = Literal["net", "cluster", "believed", "prior"]
"""``net``: micro-benchmark of the back end; ``cluster``: plain sockets before a launch; ``believed``: the data sheet of
the link or device that was named; ``prior``: nothing measured."""


class _ProfileForm(BaseModel):
    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True, allow_inf_nan=False)


class FittedParameter(_ProfileForm):
    """One number of a model with its interval of 90 %; SI units, shares of 1."""

    value: float
    low: float
    high: float
    how: How
    draws: list[float]
    """Equally probable values; the k-th draws of all parameters of a group belong together."""

    @cached_property
    def array(self) -> NDArray[np.float64]:
        """The draws."""
        return np.asarray(self.draws, dtype=np.float64)


class LinkEstimate(_ProfileForm):
    """The link between workers, before the factors that a group's own records put on it."""

    latency_s: Seconds
    """Of one step of the exchange's algorithm before its bytes."""
    rate: Rate
    source: LinkSource
    between_hosts: bool
    nominal_rate: Rate | None = None
    """The bandwidth that was asked for, or None."""
    alpha_s: Seconds | None = None
    """One way of one byte over a plain socket."""
    least_in_turns_s: Seconds = 0.0
    """That a step takes at least, with its bytes, where workers take turns on a core."""
    error: Annotated[float, Field(ge=0.0, le=1e9)] = 0.0
    """Largest relative error of the line through the micro-benchmark's sizes."""
    medium: Medium = "network"
    switch_share: Share = 0.0
    """Of the rate at which the switch of a host reduces; 0 where it does not."""
    efficiency: Efficiency = []


class NetLink(_ProfileForm):
    """A row of the network benchmark, as far as prediction needs it."""

    framework: str
    back_end: str
    operation: str
    launcher: str
    workers: Size
    servers: Number
    between_hosts: bool
    nominal_rate: Rate | None
    delay_s: Seconds
    latency_s: Seconds
    rate: Rate
    alpha_s: Seconds | None
    worst_error: Annotated[float, Field(ge=-1e9, le=1e9)]
    medium: Medium = "network"
    switch_share: Share = 0.0
    efficiency: Efficiency = []


class MeasuredConfiguration(_ProfileForm):
    """One configuration that the group rests on."""

    trial: str
    strategy: str
    deployment: Deployment
    step_s: PositiveSeconds
    low_s: EndSeconds
    high_s: EndSeconds
    launches: Size
    ablation_launches: Number
    phases: dict[str, Difference | None]
    """Means of its ablation launches, seconds; empty where there are none."""
    link: LinkEstimate | None
    """None if its workers have nothing between them."""
    inner: LinkEstimate | None = None
    """Inside hosts, where several workers of each exchange with other hosts."""
    pieces: list[tuple[Annotated[float, Field(ge=0.0, le=1e18)], Share]]
    """Bytes of each piece of gradients, and the share of the backward pass after which it went; empty if unknown."""
    effects: MachineEffects = NO_EFFECTS
    device_bytes: Annotated[float, Field(gt=0.0, le=1e18)] | None = None
    """Most that a worker had allocated on its device; None, and not written, if unknown."""

    @model_serializer(mode="wrap")
    def _without_unknown_memory(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        if self.device_bytes is None:
            del written["device_bytes"]
        return written

    @model_validator(mode="after")
    def _is_ordered(self) -> Self:
        _demand_order("step_s", self.low_s, self.step_s, self.high_s)
        traffic, collectives = self.deployment.traffic, self.deployment.collectives
        for name, value, choices in (
            ("traffic.gradient_precision", traffic.gradient_precision, WIDTHS),
            ("traffic.compression", traffic.compression, COMPRESSIONS),
            ("traffic.shard", traffic.shard, SHARDS),
            ("collectives", collectives or next(iter(LIBRARIES)), LIBRARIES),
        ):
            if value not in choices:
                message = f"deployment.{name}: {choices_message('value', value, choices)}"
                raise ValueError(message)
        if not 0.0 < traffic.kept <= 1.0:
            message = f"deployment.traffic.kept: {traffic.kept:g} is not a share above 0"
            raise ValueError(message)
        return self


class PredictedSeconds(_ProfileForm):
    """Predicted seconds with an interval of 90 %."""

    value_s: float
    low_s: float
    high_s: float

    @model_validator(mode="after")
    def _is_ordered(self) -> Self:
        _demand_order("value_s", self.low_s, self.value_s, self.high_s)
        return self


class HeldOut(_ProfileForm):
    """A configuration that was left out of the fit, and its prediction from the other configurations; seconds."""

    trial: str
    workers: Size
    batch: Size
    measured_s: PositiveSeconds
    predicted: PredictedSeconds
    phases: dict[str, PredictedSeconds | None]
    """Predictions of each phase."""
    verdict: Literal["normal", "suspicious", "broken"]
    anomalous_phase: str | None
    """The phase to look at where the step is not normal; see ``anomaly_of``."""
    nulls: dict[str, float]
    """Predictions of the null models from the same other configurations."""

    @model_validator(mode="after")
    def _is_step(self) -> Self:
        if self.predicted.low_s <= 0.0:
            message = f"predicted.low_s: no step takes {self.predicted.low_s:g} s"
            raise ValueError(message)
        return self


class ProfileGroup(_ProfileForm):
    """The model of one framework, strategy, workload, loader, device and precision."""

    key: GroupKey
    measured: list[MeasuredConfiguration]
    """Configurations of this strategy, then others that show the computing of its workers."""
    parameters: dict[str, FittedParameter]
    spread: Annotated[float, Field(ge=0.0, le=100.0)]
    """Relative standard deviation of a launch around the model of its phase."""
    held_out: list[HeldOut]
    notes: list[str]
    """Gaps of the data, in sentences."""
    refused: str | None = None
    """Why nothing can be predicted at all, and which measurement would help; None if something can."""

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if not self.measured and self.refused is None:
            message = "a group without a measured configuration predicts nothing"
            raise ValueError(message)
        sample = prod(self.key.input_shape)
        if not (1 <= sample <= _MOST_COUNT and min(self.key.input_shape) > 0 and 1 <= self.key.classes <= _MOST_COUNT):
            message = (
                f"key: no workload has samples (input_shape) of {self.key.input_shape} in {self.key.classes} classes"
            )
            raise ValueError(message)
        if self.key.strategy not in STRATEGIES:
            raise ValueError(choices_message("strategy", self.key.strategy, STRATEGIES))
        if self.parameters and (mistake := _parameters_mistake(self.parameters)):
            raise ValueError(mistake)
        return self


def _parameters_mistake(parameters: Mapping[str, FittedParameter]) -> str | None:
    """Return what no fit gives: a parameter too many or too few, a draw out of bounds, a number not of its draws."""
    needed = BOUNDS.keys() - {*OUTER, *INNER}
    for name in sorted(needed ^ parameters.keys()):
        if name not in BOUNDS:
            return f"parameters: {choices_message('parameter', name, BOUNDS)}"
        if name in needed:
            return f"parameters: {name} is missing"
    for name, parameter in parameters.items():
        if len(parameter.draws) != DRAWS:
            return f"parameters.{name}.draws: they are {len(parameter.draws)}, not {DRAWS}"
        least, most = BOUNDS[name]
        draws = np.asarray(parameter.draws)
        outside = np.flatnonzero((draws < least) | (draws > most))
        if len(outside):
            number = int(outside[0])
            value = parameter.draws[number]
            return f"parameters.{name}.draws.{number}: {value:g} is not from {least:g} to {most:g}"
        low, high = bounds(draws)
        for part, wanted in (("low", low), ("value", float(np.median(draws))), ("high", high)):
            found = getattr(parameter, part)
            if not isclose(found, wanted, rel_tol=_ROUNDING, abs_tol=1e-300):
                return f"parameters.{name}.{part}: it is {found:g}, and {wanted:g} by its draws"
    return None


def _demand_order(name: str, low: float, value: float, high: float) -> None:
    if not low <= value <= high:
        message = f"{name}: {value:g} is not between low_s, {low:g}, and high_s, {high:g}"
        raise ValueError(message)


class Machine(_ProfileForm):
    """The machine that was measured."""

    cpu: str | None
    cores: Size | None
    """None if they are not known: then workers are taken to have their own."""
    gpus: Number
    gpu: str | None = None
    """The devices' name as their driver has it."""


class Profile(_ProfileForm):
    """Everything that prediction needs; no records are read again."""

    format_version: int = Field(SCHEMA, alias="schema")
    written_by: str
    results: str
    """The folder's study, by name."""
    folder: Annotated[str, Field(max_length=4096)] | None = None
    """The results folder, from that of the profile; None, and not written, if unknown."""
    machine: Machine
    steps: Annotated[int, Field(ge=0)]
    """Step records that were read."""
    groups: list[ProfileGroup]
    net: list[NetLink]
    peaks: list[Peak] = Field(default_factory=list)
    """Products of matrices that the machine's devices make."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True, populate_by_name=True, allow_inf_nan=False)


_FIT = "steptime fit {} -o NAME.json"
"""What makes a profile of the results in a folder."""


def write_profile(profile: Profile, path: Path, results: Path | None = None) -> None:
    """Write ``profile`` of the folder ``results``; raises StoreError when it cannot be written."""
    if results is not None:
        profile = profile.model_copy(update={"folder": folder_from(path, results)})
    unknown = {name for name in ("peaks", "folder") if not getattr(profile, name)}
    write_user_file(path, (profile.model_dump_json(by_alias=True, exclude=unknown) + "\n").encode(), PROFILE)


def read_profile(path: Path) -> Profile:
    """Read a profile.

    Raises StoreError when there is none, when it is damaged, or when it has another schema: its numbers would mean
    something else here.
    """
    if not path.exists():
        meant = path_hint(path)
        message = f"no profile {path}{meant and f'; {meant}'}; make one: steptime fit RESULTS -o {path}"
        raise StoreError(message)
    if path.is_dir():
        message = f"{path} is a folder, not a profile; if it holds results: steptime fit {path} -o PROFILE"
        raise StoreError(message)
    own = kind_of(path) is PROFILE
    again = f"make it again: steptime fit RESULTS -o {path}" if own else f"make one: {_FIT.format('RESULTS')}"
    if not own and (mistaken := mistaken_file(path, PROFILE.name, _FIT)):
        raise StoreError(mistaken)
    try:
        text = read_user_text(path, _MOST_BYTES)
    except FileError as error:
        message = f"{path} cannot be read as a profile ({error.reason}); {again}"
        raise StoreError(message) from error
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"{path} is {'a damaged' if own else 'not a'} profile ({error}); {again}"
        raise StoreError(message) from error
    if not isinstance(data, dict) or "groups" not in data:
        message = f"{path} is not a profile: it has no groups; {again}"
        raise StoreError(message)
    if data.get("schema") != SCHEMA:
        message = (
            f"{path}, key schema: this profile has schema {data.get('schema')!r}, written by steptime "
            f"{data.get('written_by', 'of an unknown version')}, and this steptime reads {SCHEMA}; "
            f"fit the results again: steptime fit RESULTS -o {path}"
        )
        raise StoreError(message)
    try:
        return Profile.model_validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        reason = first["msg"].removeprefix("Value error, ")
        message = f"{path}, key {place}: {reason}; the file was changed; fit again: steptime fit RESULTS -o {path}"
        raise StoreError(message) from error
