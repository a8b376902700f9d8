"""The form of a study: its keys, their types, ranges and defaults. What the values mean together is checked elsewhere.

Where a list is expected, a single value will do; durations and shares may be written as people write them.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from steptime.study.notation import (
    NameAllowed,
    OneOrMany,
    TrueAllowed,
    as_option_value,
    as_sides,
    as_text_of_option,
    bit_rate,
    by_number,
    form_if_true,
    from_name,
    seconds,
    share,
)
from steptime.study.trial import Optimizer, ServerPlacement

Count = Annotated[int, Field(ge=1)]
OptionValue = Annotated[Any, BeforeValidator(as_option_value), WithJsonSchema(as_text_of_option())]
Duration = Annotated[
    float,
    BeforeValidator(seconds),
    Field(gt=0),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "examples": ["8m"]}]}),
]
Share = Annotated[
    float,
    BeforeValidator(share),
    Field(gt=0, le=0.5),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "examples": ["1%"]}]}),
]
Delay = Annotated[
    float,
    BeforeValidator(seconds),
    Field(ge=0),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "examples": ["2ms"]}]}),
]
BitRate = Annotated[
    float,
    BeforeValidator(bit_rate),
    Field(ge=1e5),
    WithJsonSchema({"anyOf": [{"type": "string", "examples": ["200Mbit/s"]}, {"type": "number", "minimum": 1e5}]}),
]
CpuShare = Annotated[
    float,
    BeforeValidator(share),
    Field(ge=0.05, le=1),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "examples": ["50%"]}]}),
]
Sides = Annotated[
    tuple[Count, Count],
    BeforeValidator(as_sides),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 2, "maxItems": 2},
            ]
        }
    ),
]
Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["fp32", "bf16"]


class _Strict(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class WorkloadChoice(_Strict):
    """One workload of a study and the data it trains on."""

    name: str
    """One of `steptime list workloads`."""
    dataset: str | None = None
    """A built-in dataset, or a folder of images with one subfolder per class (a path: it holds a slash)."""
    image: Sides | None = None
    """Side of the image in pixels, or [height, width]; by default the dataset's own, or else the workload's."""
    classes: Count | None = None
    """Number of classes; by default the dataset's, or else the workload's."""
    batch_per_worker: OneOrMany[Count] | None = None
    """Wins over the study's batch for this workload."""
    global_batch: OneOrMany[Count] | None = None
    """Wins over the study's batch for this workload."""


class LoaderChoice(_Strict):
    """How samples arrive."""

    name: str = "auto"
    """`native`, `synthetic`, or `auto`: native where the workload has a dataset, synthetic elsewhere."""
    processes: Annotated[int, Field(ge=0)] = 0
    """Helper processes of each worker; 0 loads in the training process."""


class EnvironmentChoice(_Strict):
    """Where a framework runs, if not in the environment that steptime makes for it."""

    kind: str = "existing"
    """`existing` uses an interpreter that you have."""
    python: str | None = None
    """The interpreter of an `existing` environment."""


class ClusterChoice(_Strict):
    """The hosts that the launcher `emulated` makes of this machine."""

    hosts: Count
    """For workers, at most: a trial has as many as its workers fill, and one more for each server of its own."""
    workers_per_host: Count = 1
    """Workers fill one host after the other."""
    bandwidth: BitRate | None = None
    """Of every host's link, in each direction; not limited by default."""
    delay: Delay = 0.0
    """From one host to another, one way, on top of what the link takes anyway."""
    cpu_share: Annotated[dict[int, CpuShare], BeforeValidator(by_number)] = {}
    """For hosts of workers that are meant to be slow, from 0: the share of their cores that they may use."""


class Launches(_Strict):
    """How often a trial is launched in fresh processes."""

    min: Count = 3
    """At least so often, unless the budget ends before."""
    max: Count = 10
    """At most so often, even if the target is not reached."""


class Anatomy(_Strict):
    """Launches that say where the time of a step goes, apart from those that time it."""

    launches: Count = 3
    """Of each trial, in fresh processes."""
    seconds: Duration = 6.0
    """Time aimed for in each."""


class Steps(_Strict):
    """How many training steps a launch runs."""

    warmup: Count = 5
    """Steps that are run first and never counted."""
    min: Count = 10
    """Timed steps at least, however long they take."""
    max: Count = 2000
    """Timed steps at most, however short they are."""


class Gate(_Strict):
    """The equivalence gate: do all frameworks train the same thing?"""

    enabled: bool = True
    """False ranks frameworks that nobody compared; the report says so."""
    steps: Count = 5
    """Training steps that are compared with the reference."""
    repeats: Count = 3
    """Runs of each synchronous strategy; faults may be intermittent."""


_Workload = Annotated[WorkloadChoice, BeforeValidator(from_name), NameAllowed()]
_Loader = Annotated[LoaderChoice, BeforeValidator(from_name), NameAllowed()]
_Options = dict[str, dict[str, OneOrMany[OptionValue]]]


class Exclusion(_Strict):
    """Drops the combinations that have, on every axis named here, one of the values given."""

    frameworks: OneOrMany[str] | None = None
    strategies: OneOrMany[str] | None = None
    workloads: OneOrMany[str] | None = None
    loaders: OneOrMany[str] | None = None
    workers: OneOrMany[Count] | None = None
    servers: OneOrMany[Count] | None = None
    server_placement: OneOrMany[ServerPlacement] | None = None
    batch_per_worker: OneOrMany[Count] | None = None
    global_batch: OneOrMany[Count] | None = None
    precision: OneOrMany[Precision] | None = None
    device: OneOrMany[Literal["cpu", "cuda"]] | None = None
    options: _Options | None = None

    @model_validator(mode="after")
    def _names_an_axis(self) -> "Exclusion":
        if not named_axes(self):
            message = "names no axis; an empty exclusion would drop every combination"
            raise ValueError(message)
        return self


class Inclusion(_Strict):
    """Adds combinations: the study's axes, with the axes named here replaced. What is included cannot be excluded."""

    frameworks: OneOrMany[str] | None = None
    strategies: OneOrMany[str] | None = None
    workloads: OneOrMany[_Workload] | None = None
    """A name that the study lists keeps the settings it has there."""
    loaders: OneOrMany[_Loader] | None = None
    workers: OneOrMany[Count] | None = None
    servers: OneOrMany[Count] | None = None
    server_placement: OneOrMany[ServerPlacement] | None = None
    batch_per_worker: OneOrMany[Count] | None = None
    """Wins over a workload's own batch."""
    global_batch: OneOrMany[Count] | None = None
    """Wins over a workload's own batch."""
    precision: OneOrMany[Precision] | None = None
    device: OneOrMany[Device] | None = None
    options: _Options | None = None

    @model_validator(mode="after")
    def _names_an_axis(self) -> "Inclusion":
        if not named_axes(self):
            message = "names no axis; it would add nothing to the study"
            raise ValueError(message)
        return self


class Side(_Strict):
    """Trials that a published ratio speaks of: those that have, on every axis named here, one of the values given."""

    frameworks: OneOrMany[str]
    strategies: OneOrMany[str] | None = None
    workloads: OneOrMany[str] | None = None


class Published(_Strict):
    """A ratio that somebody published, to stand beside the one measured here."""

    claim: str
    """What was found, in a few words."""
    source: str
    """Who published it, where."""
    slower: Side
    faster: Side
    ratio: Annotated[float, Field(gt=0)]
    """Time of `slower` divided by time of `faster`, as published."""


AXES = tuple(Exclusion.model_fields)
"""The keys that may hold several values, each of which gives trials of its own."""


class Study(_Strict):
    """A question and the combinations that answer it."""

    version: Literal[1] = 1
    """Version of the form of this file."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    """Letters, digits, dot, dash and underscore; by default the name of the file."""
    question: str = ""
    """What you want to know, in your words; it heads the report."""
    workloads: Annotated[OneOrMany[_Workload], Field(min_length=1)]
    """What is trained, on which data."""
    frameworks: Annotated[OneOrMany[str], Field(min_length=1)]
    """Who trains it."""
    strategies: Annotated[OneOrMany[str], Field(min_length=1)] = ["auto"]
    """How workers agree; `auto` is `single` for one worker; for more, every synchronous one of the framework."""
    loaders: Annotated[OneOrMany[_Loader], Field(min_length=1)] = [LoaderChoice()]
    """How samples arrive."""
    workers: Annotated[OneOrMany[Count], Field(min_length=1)] = [1]
    """Training processes."""
    servers: Annotated[OneOrMany[Count], Field(min_length=1)] = [1]
    """Parameter-server processes, for the strategies that have them."""
    server_placement: Annotated[OneOrMany[ServerPlacement], Field(min_length=1)] = ["own"]
    """`own` gives each server a core that no worker has, where there is one; `colocated` gives it a worker's cores."""
    batch_per_worker: Annotated[OneOrMany[Count], Field(min_length=1)] | None = None
    """Samples per step of each worker: weak scaling. 32 if neither batch is given."""
    global_batch: Annotated[OneOrMany[Count], Field(min_length=1)] | None = None
    """Samples per step over all workers: strong scaling. Not together with `batch_per_worker`."""
    precision: Annotated[OneOrMany[Precision], Field(min_length=1)] = ["fp32"]
    """`bf16` is the framework's automatic mixed precision."""
    device: Annotated[OneOrMany[Device], Field(min_length=1)] = ["auto"]
    """`auto` is cuda where this machine has a device and the framework can use it, cpu elsewhere."""
    threads_per_worker: Count = 1
    """Compute threads of each worker, and cores that it is pinned to."""
    launcher: str = "auto"
    """How processes are started; `auto` is what the framework's strategy needs."""
    cluster: ClusterChoice | None = None
    """The hosts, for the launcher `emulated`."""
    options: _Options = {}
    """For each framework its own settings; each list is an axis of that framework alone."""
    environments: dict[str, EnvironmentChoice] = {}
    """For each framework, where it runs if not in the environment that steptime makes for it."""
    optimizer: Optimizer = Optimizer()
    """Stochastic gradient descent, the same for all."""
    include: OneOrMany[Inclusion] = []
    """Further combinations."""
    exclude: OneOrMany[Exclusion] = []
    """Combinations that are not wanted."""
    launches: Launches = Launches()
    """How often each trial is launched."""
    target: Share = 0.01
    """Half-width of the 95 % interval, relative to the median, at which a trial is measured well enough."""
    seconds_per_launch: Duration = 3.0
    """Timed seconds aimed for in each launch."""
    steps: Steps = Steps()
    """How many steps a launch runs."""
    anatomy: Annotated[Anatomy | None, BeforeValidator(form_if_true), TrueAllowed()] = None
    """`true`, or its settings, adds launches that take each step apart into its phases."""
    budget: Duration | None = None
    """Time for the launches of one run; environments, datasets and checks are made once and come on top."""
    time_limit: Duration = 300.0
    """Time for one launch, after which it is ended and counts as failed."""
    published: list[Published] = []
    """Ratios that others published, which the report shows beside the measured ones."""
    gate: Gate = Gate()
    """The equivalence gate."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Of the initial weights, the shuffling and the order of the launches."""

    @model_validator(mode="before")
    @classmethod
    def _some_batch(cls, data: Any) -> Any:  # noqa: ANN401 - whatever the file holds
        if isinstance(data, dict) and data.get("batch_per_worker") is None and data.get("global_batch") is None:
            return {**data, "batch_per_worker": [32]}
        return data


def named_axes(combination: Exclusion | Inclusion) -> dict[str, Any]:
    """Return the axes that ``combination`` names, with their values."""
    return {axis: value for axis in AXES if (value := getattr(combination, axis)) is not None}


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the study file, for editors that complete and check while one types."""
    form = Study.model_json_schema(mode="validation")
    form["required"].remove("name")  # reading fills it in from the name of the file
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **form}
