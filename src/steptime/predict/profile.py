"""A profile: performance models fitted to a results folder, and the JSON file that holds them.

Schema diary (``SCHEMA`` grows by one whenever an older reader would misread a file):

1. First version: groups with parameters and their draws, links, and the errors on points held out.
2. Links inside hosts have factors of their own; before, steps inside a host and between hosts shared them.
3. Configurations say what their launches recorded of the machine, and the share of a core that hosts may use; before,
   both were taken from the framework's name and the launcher's.
"""

import json
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from steptime.errors import FileError, StoreError, choices_message
from steptime.model.nccl import Medium
from steptime.plain_file import write_whole
from steptime.predict.machine_effects import NO_EFFECTS, MachineEffects
from steptime.predict.observation import Deployment, GroupKey
from steptime.predict.posterior import DRAWS
from steptime.study.strategies import STRATEGIES
from steptime.user_file import read_user_text

SCHEMA = 3
_MOST_BYTES = 64 * 1024**2
_MOST_COUNT = 10**9
"""Of workers, samples of a batch, values of a sample, and classes."""

How = Literal["measured", "apportioned", "prior"]
"""``measured``: fitted to records of that phase; ``apportioned``: a measured total, divided by the workload's
arithmetic; ``prior``: no record is about it, and its draws are wide."""


LinkSource = Literal["net", "cluster", "believed", "prior"]
"""``net``: micro-benchmark of the back end; ``cluster``: plain sockets before a launch; ``believed``: the data sheet of
the link or device that was named; ``prior``: nothing measured."""


class _ProfileForm(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


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

    latency_s: float
    """Seconds of one step of the exchange's algorithm before its bytes."""
    rate: float
    """Bytes per second."""
    source: LinkSource
    between_hosts: bool
    nominal_rate: float | None = None
    """The bandwidth that was asked for, or None."""
    alpha_s: float | None = None
    """One way of one byte over a plain socket."""
    error: float = 0.0
    """Largest relative error of the line through the micro-benchmark's sizes."""
    medium: Medium = "network"
    switch_share: float = 0.0
    """Share of the rate at which the switch of a host reduces; 0 where it does not."""
    efficiency: list[tuple[float, float]] = []
    """Bytes of messages, and the modelled over the measured seconds of each; empty without a table."""


class NetLink(_ProfileForm):
    """A row of the network benchmark, as far as prediction needs it."""

    framework: str
    back_end: str
    operation: str
    launcher: str
    workers: int
    servers: int
    between_hosts: bool
    nominal_rate: float | None
    delay_s: float
    latency_s: float
    rate: float
    alpha_s: float | None
    worst_error: float
    medium: Medium = "network"
    switch_share: float = 0.0
    efficiency: list[tuple[float, float]] = []


class MeasuredConfiguration(_ProfileForm):
    """One configuration that the group rests on."""

    trial: str
    strategy: str
    deployment: Deployment
    step_s: float
    low_s: float
    high_s: float
    launches: int
    ablation_launches: int
    phases: dict[str, float | None]
    """Means of its ablation launches, seconds; empty where there are none."""
    link: LinkEstimate | None
    """None if its workers have nothing between them."""
    inner: LinkEstimate | None = None
    """Inside hosts, where several workers of each exchange with other hosts."""
    pieces: list[tuple[float, float]]
    """Bytes of each piece of gradients, and the share of the backward pass after which it went; empty if unknown."""
    effects: MachineEffects = NO_EFFECTS


class PredictedSeconds(_ProfileForm):
    """Predicted seconds with an interval of 90 %."""

    value_s: float
    low_s: float
    high_s: float


class HeldOut(_ProfileForm):
    """A configuration that was left out of the fit, and its prediction from the other configurations; seconds."""

    trial: str
    workers: int
    batch: int
    measured_s: float
    predicted: PredictedSeconds
    phases: dict[str, PredictedSeconds | None]
    """Predictions of each phase."""
    verdict: Literal["normal", "suspicious", "broken"]
    anomalous_phase: str | None
    """The phase to look at where the step is not normal; see ``anomaly_of``."""
    nulls: dict[str, float]
    """Predictions of the null models from the same other configurations."""


class ProfileGroup(_ProfileForm):
    """The model of one framework, strategy, workload, loader, device and precision."""

    key: GroupKey
    measured: list[MeasuredConfiguration]
    """Configurations of this strategy, then others that show the computing of its workers."""
    parameters: dict[str, FittedParameter]
    spread: Annotated[float, Field(ge=0)]
    """Relative standard deviation of a launch around the model of its phase."""
    held_out: list[HeldOut]
    notes: list[str]
    """Gaps of the data, in sentences."""
    refused: str | None = None
    """Why nothing can be predicted at all, and which measurement would help; None if something can."""

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        for each in self.measured:
            sizes = each.deployment
            least = min(sizes.workers, sizes.batch, sizes.hosts, sizes.workers_per_host, sizes.servers + 1)
            if least < 1 or max(sizes.workers, sizes.batch) > _MOST_COUNT:
                message = f"the deployment of {each.trial} has sizes that no trial has"
                raise ValueError(message)
        if not self.measured and self.refused is None:
            message = "a group without a measured configuration predicts nothing"
            raise ValueError(message)
        sample = prod(self.key.input_shape)
        if not (1 <= sample <= _MOST_COUNT and min(self.key.input_shape) > 0 and 1 <= self.key.classes <= _MOST_COUNT):
            message = f"no workload has samples of {self.key.input_shape} in {self.key.classes} classes"
            raise ValueError(message)
        if self.key.strategy not in STRATEGIES:
            raise ValueError(choices_message("strategy", self.key.strategy, STRATEGIES))
        if len({len(each.draws) for each in self.parameters.values()} - {DRAWS}) > 0:
            message = f"a parameter has not {DRAWS} draws"
            raise ValueError(message)
        return self


class Machine(_ProfileForm):
    """The machine that was measured."""

    cpu: str | None
    cores: Annotated[int, Field(ge=1)]
    gpus: Annotated[int, Field(ge=0)]
    gpu: str | None = None
    """The devices' name as their driver has it."""


class Profile(_ProfileForm):
    """Everything that prediction needs; no records are read again."""

    format_version: int = Field(SCHEMA, alias="schema")
    written_by: str
    results: str
    """The folder's study, by name."""
    machine: Machine
    steps: int
    """Step records that were read."""
    groups: list[ProfileGroup]
    net: list[NetLink]

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, allow_inf_nan=False)


PROFILE_SUFFIX = ".profile.json"


def default_profile_path(folder: Path) -> Path:
    """Return the path of the profile of a results folder, where a command names no other."""
    whole = folder.resolve()
    return whole.with_name(whole.name + PROFILE_SUFFIX)


def write_profile(profile: Profile, path: Path) -> None:
    """Write ``profile``; raises StoreError when it cannot be written."""
    write_whole(path, (profile.model_dump_json(by_alias=True) + "\n").encode())


def read_profile(path: Path) -> Profile:
    """Read a profile.

    Raises StoreError when there is none, when it is damaged, or when it has another schema: its numbers would mean
    something else here.
    """
    if not path.exists():
        message = f"there is no profile {path}; make one: steptime fit RESULTS -o {path}"
        raise StoreError(message)
    if path.is_dir():
        message = f"{path} is a folder, not a profile; if it holds results: steptime fit {path} -o PROFILE"
        raise StoreError(message)
    try:
        text = read_user_text(path, _MOST_BYTES)
    except FileError as error:
        message = f"{path} cannot be read as a profile ({error.reason}); make it again: steptime fit RESULTS -o {path}"
        raise StoreError(message) from error
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"{path} is not a profile or a damaged one ({error}); make it again: steptime fit RESULTS -o {path}"
        raise StoreError(message) from error
    if not isinstance(data, dict) or "groups" not in data:
        message = f"{path} is not a profile: it has no groups; make one: steptime fit RESULTS -o {path}"
        raise StoreError(message)
    if data.get("schema") != SCHEMA:
        message = (
            f"{path}, key schema: this profile has schema {data.get('schema')!r}, written by steptime "
            f"{data.get('written_by', 'of an unknown version')}, and this steptime reads {SCHEMA}; "
            f"fit the results again: steptime fit RESULTS -o {path}"
        )
        raise StoreError(message)
    try:
        return Profile.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        message = (
            f"{path}, key {place}: {first['msg']}; the file was changed; fit again: steptime fit RESULTS -o {path}"
        )
        raise StoreError(message) from error
