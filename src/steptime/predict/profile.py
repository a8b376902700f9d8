"""A profile: a performance model fitted to a results folder, as it stands in its file.

Schema diary (``SCHEMA`` grows by one whenever an older reader would misread a file):

1. First version: groups with parameters and their draws, links, and the errors on points held out.
"""

from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from steptime.predict.observation import Key, Setting

SCHEMA = 1

How = Literal["measured", "split", "believed"]
"""``measured``: fitted to records of that phase; ``split``: a measured total, divided by the workload's arithmetic;
``believed``: no record says anything of it, and its draws are wide."""


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Parameter(_Form):
    """One number of a model with its interval of 90 %; SI units, shares of 1."""

    value: float
    low: float
    high: float
    how: How
    draws: list[float]
    """What it may be, each with the same probability; the k-th draws of all parameters of a group belong together."""

    @cached_property
    def array(self) -> NDArray[np.float64]:
        """The draws."""
        return np.asarray(self.draws, dtype=np.float64)


class LinkFacts(_Form):
    """What joins workers, before the factors that a group's own records put on it."""

    start_s: float
    """Seconds of one step of the exchange's algorithm before its bytes."""
    rate: float
    """Bytes per second."""
    source: Literal["net", "cluster", "believed"]
    """``net``: micro-benchmark of the back end; ``cluster``: plain sockets before each launch; or nobody measured."""
    between_hosts: bool
    nominal_rate: float | None = None
    """That was asked for, where somebody asked."""
    alpha_s: float | None = None
    """One way of one byte over a plain socket."""
    error: float = 0.0
    """Largest relative error of the line through the micro-benchmark's sizes."""


class NetLink(_Form):
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
    start_s: float
    rate: float
    alpha_s: float | None
    worst_error: float


class Measured(_Form):
    """One configuration that the group rests on."""

    trial: str
    strategy: str
    setting: Setting
    step_s: float
    low_s: float
    high_s: float
    launches: int
    ablation_launches: int
    phases: dict[str, float | None]
    """Means of its ablation launches, seconds; empty where there are none."""
    link: LinkFacts | None
    """None where its workers have nothing between them."""
    pieces: list[tuple[float, float]]
    """Bytes of each piece of gradients, and the share of the backward pass after which it went; empty if unknown."""


class Expected(_Form):
    """Predicted seconds with an interval of 90 %."""

    value_s: float
    low_s: float
    high_s: float


class Held(_Form):
    """A configuration that was left out, and what the rest says of it; seconds."""

    trial: str
    workers: int
    batch: int
    measured_s: float
    predicted: Expected
    phases: dict[str, Expected | None]
    """What the rest predicts of each phase."""
    verdict: Literal["normal", "suspicious", "broken"]
    off: str | None
    """The phase to look at where the step is not normal; see ``band``."""
    nulls: dict[str, float]
    """What the null models make of the same rest."""


class Group(_Form):
    """The model of one framework, strategy, workload, loader, device and precision."""

    key: Key
    measured: list[Measured]
    """Configurations of this strategy, then others that tell what its workers compute."""
    parameters: dict[str, Parameter]
    spread: float
    """Relative standard deviation of a launch around the model of its phase."""
    held: list[Held]
    notes: list[str]
    """What the data did not have, in sentences."""
    refused: str | None = None
    """Why nothing can be predicted at all, and which measurement would help; None where something can."""


class Machine(_Form):
    """Where it was measured."""

    cpu: str | None
    cores: int
    gpus: int
    gpu: str | None = None
    """The devices' name as their driver has it."""


class Profile(_Form):
    """Everything that prediction needs; no records are read again."""

    format_version: int = Field(SCHEMA, alias="schema")
    written_by: str
    results: str
    """The folder's study, by name."""
    machine: Machine
    steps: int
    """Step records that were read."""
    groups: list[Group]
    net: list[NetLink]

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
