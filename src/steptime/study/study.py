"""The form of a study: its keys, their types, ranges and defaults; ``contradictions`` checks what they mean together.

Where a list is expected, a single value will do; durations and shares may be written as people write them.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, create_model, field_serializer, model_validator

from steptime.catalog.choices import SINGLE, SYNTHETIC
from steptime.catalog.optimizer import Optimizer, OptimizerName
from steptime.catalog.options import Precision, Tuning
from steptime.file_name import FILE_NAME, MOST_CHARACTERS
from steptime.study.axis import KEPT, REFERENCE, Axis, loaders_alone, variables_alone
from steptime.study.host_lists import from_names
from steptime.study.hosts import ClusterChoice, HostsChoice, SlurmChoice
from steptime.study.launch_settings import BreakdownChoice, EquivalenceSettings, Launches, LoaderAloneChoice, Steps
from steptime.study.paper import ModelFamily, Paper, PredictionChoice, Published, PublishedEfficiency
from steptime.study.quantities import (
    Budget,
    Command,
    CommandLineAllowed,
    Count,
    Device,
    Duration,
    NameAllowed,
    NamesAllowed,
    OneOrMany,
    OptionValue,
    ProcessCount,
    Seed,
    Share,
    Strict,
    TrueAllowed,
    VariableValues,
    as_no_number,
    form_if_true,
    from_name,
    words_of,
)
from steptime.study.training import NamedSchedule, ScalingRule, ScheduleName, TrainChoice, WarmupEpochs
from steptime.study.trial import ServerPlacement, Trial
from steptime.study.workload_choice import LoaderChoice, WorkloadChoice

PYTHON_OF_CONTAINER = "python3"
"""The interpreter that is started in a container where the study names none."""


ENVIRONMENT_KEYS = ("environments", "named_environments")
"""The keys of a study that hold environments by name."""
ENVIRONMENT_KINDS = ("venv", "uv", "existing", "core")


class EnvironmentChoice(Strict):
    """Where a framework runs, if not in the environment that steptime makes for it."""

    kind: str = "existing"
    """`existing` uses an interpreter that you have."""
    python: str | None = None
    """The interpreter of an `existing` environment; in a container `python3` by default."""
    container: Annotated[Command | None, BeforeValidator(words_of), CommandLineAllowed()] = None
    """The command that starts a program in a container, as `[apptainer, exec, --nv, /shared/image.sif]`."""

    @property
    def interpreter(self) -> str | None:
        """The interpreter, of a container the one in it; None if steptime makes the environment."""
        return self.python or (PYTHON_OF_CONTAINER if self.container else None)

    @property
    def command(self) -> list[str]:
        """The words by which the interpreter is started; none where steptime makes the environment."""
        return [*(self.container or []), self.interpreter] if self.interpreter else []


NamedOptimizer = Annotated[Optimizer, BeforeValidator(from_name), NameAllowed()]
NamedWorkload = Annotated[WorkloadChoice, BeforeValidator(from_name), NameAllowed()]
NamedLoader = Annotated[LoaderChoice, BeforeValidator(from_name), NameAllowed()]
Variables = dict[str, VariableValues]
"""Values by the name of an environment variable, or a framework's own by the name of the framework."""
Options = dict[str, dict[str, Annotated[OneOrMany[OptionValue], Field(min_length=1)]]]


_TRAINING = "training"
_OWN_BATCH = "Takes precedence over a workload's own batch."
_LISTED = "A name that the study lists keeps the settings it has there."
_RATES = "Learning-rate schedules, by name."
AXES = (
    Axis(
        "frameworks",
        "framework",
        OneOrMany[str],
        neutral=REFERENCE,
        environment=True,
        options_follow=("launcher",),
        is_name=True,
    ),
    Axis(
        "strategies",
        "strategy",
        OneOrMany[str],
        neutral=SINGLE.name,
        options_follow=("launcher", "servers", "server_placement"),
        is_name=True,
    ),
    Axis(
        "workloads",
        "workload",
        OneOrMany[NamedWorkload],
        OneOrMany[str],
        "name",
        about_inclusion=_LISTED,
        in_group=True,
    ),
    Axis(
        "loaders",
        "loader",
        OneOrMany[NamedLoader],
        OneOrMany[str],
        of_trial=loaders_alone,
        neutral=SYNTHETIC.name,
        environment=True,
        title="{} loader",
        in_group=True,
    ),
    Axis("workers", "workers", OneOrMany[ProcessCount], neutral=1, in_group=True),
    Axis(
        "servers",
        "servers",
        OneOrMany[ProcessCount],
        of_trial=lambda trial: [trial.servers or 1],
        neutral=0,
        distinction=True,
    ),
    Axis(
        "server_placement",
        "server_placement",
        OneOrMany[ServerPlacement],
        of_trial=lambda trial: [trial.server_placement or "own"],
        neutral=None,
        distinction=True,
    ),
    Axis(
        "batch_per_worker",
        "batch_per_worker",
        OneOrMany[Count],
        about_inclusion=_OWN_BATCH,
        title="batch {} per worker",
        in_group=True,
    ),
    Axis(
        "global_batch",
        "global_batch",
        OneOrMany[Count],
        about_inclusion=_OWN_BATCH,
        of_trial=lambda _: None,
        in_group=True,
        column=False,
    ),
    Axis("precision", "precision", OneOrMany[Precision], as_given=True, neutral="fp32", title="{}", in_group=True),
    Axis(
        "device",
        "device",
        OneOrMany[Device],
        OneOrMany[Literal["cpu", "cuda"]],
        neutral="cpu",
        environment=True,
        title="{}",
        in_group=True,
    ),
    Axis(
        "optimizer",
        "optimizer",
        OneOrMany[NamedOptimizer],
        OneOrMany[OptimizerName],
        "name",
        as_given=True,
        about_exclusion="By name.",
        neutral=KEPT,
        in_group=True,
        column=False,
    ),
    # What micro-batches come to is right of the whole batch.
    Axis("accumulation", "accumulation", OneOrMany[Count], as_given=True),
    Axis(
        "schedules",
        _TRAINING,
        OneOrMany[NamedSchedule],
        OneOrMany[ScheduleName],
        "rate_schedule.name",
        about_exclusion=_RATES,
        column=False,
    ),
    Axis("scaling_rule", _TRAINING, OneOrMany[ScalingRule], part="scaling_rule", column=False),
    Axis("warmup_epochs", _TRAINING, OneOrMany[WarmupEpochs], part="warmup_epochs", column=False),
    Axis("tuning", "tuning", OneOrMany[Tuning], options_follow=()),
    Axis(
        "environment_names",
        "environment_name",
        OneOrMany[str | None],
        OneOrMany[str],
        as_given=True,
        environment=True,
        is_name=True,
    ),
    Axis("options", "options", Options, neutral={}, column=False),
    Axis(
        "environment_variables",
        "environment_variables",
        Variables,
        of_trial=variables_alone,
        neutral={},
        environment=True,
        column=False,
    ),
)
"""All axes, in the order in which an inclusion lists them.

A new one is a row here with a key of ``Study``, a field of ``Trial``, and a key of ``TrialSummary`` to be reported.
"""
AXIS_NAMES = tuple(axis.name for axis in AXES)
TRAIN_AXES = tuple(axis.name for axis in AXES if axis.field == _TRAINING)
"""The axes that a study has below ``train``."""
FURTHER_FIELDS = tuple(axis.field for axis in AXES if axis.is_further)
"""Fields of a trial that lists and reports write as ``field=value``, where they have words of their own for others."""


def further_settings(value_of: Callable[[str], Any]) -> dict[str, Any]:
    """Return, by name, the ``FURTHER_FIELDS`` that differ from their default, which goes without saying."""
    return {name: value for name in FURTHER_FIELDS if (value := value_of(name)) != Trial.model_fields[name].default}


def values_alone(trial: Trial) -> dict[str, Any]:
    """Return, by key, what a study of ``trial`` alone has of every axis but those of its training."""
    return {axis.name: axis.value_alone(trial) for axis in AXES if axis.name not in TRAIN_AXES}


def neutral_fields(trial: Trial, *, same_environment: bool = False) -> dict[str, Any]:
    """Return the fields by which the reference computes what is right of ``trial``.

    Args:
        trial: the configuration that is checked.
        same_environment: whether it runs in what ``trial`` runs in.
    """
    axes = [axis for axis in AXES if axis.field in Trial.model_fields and not (same_environment and axis.environment)]
    return {axis.field: axis.neutral_for(trial) for axis in axes}


def _form_of_axes(*, excluded: bool) -> type[Strict]:
    """Return the form of an inclusion's or an exclusion's axes, none of which has to be named."""
    keys: dict[str, Any] = {}
    for axis in AXES:
        values = axis.excluded if excluded and axis.excluded is not None else axis.values
        about = axis.about_exclusion if excluded else axis.about_inclusion
        keys[axis.name] = (values | None, Field(default=None, description=about))
    return create_model("Axes", __base__=Strict, **keys)


_ExcludedAxes = _form_of_axes(excluded=True)
_IncludedAxes = _form_of_axes(excluded=False)


class Exclusion(_ExcludedAxes):  # type: ignore[misc, valid-type]  # its keys are the rows of AXES
    """Drops the combinations that have, on every axis named here, one of the values given."""

    @model_validator(mode="after")
    def _names_an_axis(self) -> "Exclusion":
        if not named_axes(self):
            message = "names no axis; an empty exclusion would drop every combination"
            raise ValueError(message)
        return self


class Inclusion(_IncludedAxes):  # type: ignore[misc, valid-type]  # as above
    """Adds combinations: the study's axes, with the axes named here replaced. What is included cannot be excluded."""

    cluster: ClusterChoice | None = None
    """The hosts of these combinations, for the launcher ``emulated``."""
    train: TrainChoice | None = None
    """These combinations are trained until it is over, whatever the study does."""

    @model_validator(mode="after")
    def _names_an_axis(self) -> "Inclusion":
        if not named_axes(self):
            message = "names no axis; it would add nothing to the study"
            raise ValueError(message)
        return self


def variables_of(framework: str, variables: Mapping[str, Any]) -> dict[str, list[str | None]]:
    """Return the values of each environment variable for ``framework``: its own before those of all."""
    for_all = {name: values for name, values in variables.items() if isinstance(values, list)}
    return {**for_all, **variables.get(framework, {})}


def named_axes(combination: Exclusion | Inclusion) -> dict[str, Any]:
    """Return the axes that ``combination`` names, with their values."""
    return {axis: value for axis in AXIS_NAMES if (value := getattr(combination, axis)) is not None}


Name = Annotated[str, Field(pattern=FILE_NAME, max_length=MOST_CHARACTERS)]
"""Part of the name of a results folder."""
SMALL = "small"
"""The scale of a study that its own keys describe."""


class Study(Strict):
    """A question and the combinations that answer it."""

    version: Annotated[Literal[1], BeforeValidator(as_no_number)] = 1
    """Version of the form of this file."""
    name: Name
    """Letters, digits, dot, dash and underscore; by default the name of the file."""
    question: str = ""
    """What you want to know; it heads the report."""
    paper: Paper | None = None
    """Whose question this is."""
    scale: Name = SMALL
    """Which of `scales` is measured; `small` is the study without any of them."""
    scales: Annotated[
        dict[str, dict[str, Any]],
        Field(json_schema_extra={"propertyNames": {"pattern": FILE_NAME, "maxLength": MOST_CHARACTERS}}),
    ] = {}
    """By name, keys of a study that another scale replaces."""
    workloads: Annotated[OneOrMany[NamedWorkload], Field(min_length=1)]
    """What is trained, on which data."""
    frameworks: Annotated[OneOrMany[str], Field(min_length=1)]
    """Who trains it."""
    strategies: Annotated[OneOrMany[str], Field(min_length=1)] = ["auto"]
    """How workers agree; `auto` is `single` for one worker, else every synchronous one of the framework."""
    loaders: Annotated[OneOrMany[NamedLoader], Field(min_length=1)] = [LoaderChoice.model_construct()]
    """How samples arrive."""
    workers: Annotated[OneOrMany[ProcessCount], Field(min_length=1)] = [1]
    """Training processes."""
    servers: Annotated[OneOrMany[ProcessCount], Field(min_length=1)] = [1]
    """Parameter-server processes, for the strategies that have them."""
    server_placement: Annotated[OneOrMany[ServerPlacement], Field(min_length=1)] = ["own"]
    """`own`: on cores that no worker has, where there are any; `colocated`: on a worker's."""
    batch_per_worker: Annotated[OneOrMany[Count], Field(min_length=1)] | None = None
    """Samples per step of each worker; 32 if neither batch is given."""
    global_batch: Annotated[OneOrMany[Count], Field(min_length=1)] | None = None
    """Samples per step over all workers, instead of `batch_per_worker`."""
    precision: Annotated[OneOrMany[Precision], Field(min_length=1)] = ["fp32"]
    """Of products; `bf16` and `fp16` are automatic mixed precision; `tf32` and `fp16` need a GPU."""
    device: Annotated[OneOrMany[Device], Field(min_length=1)] = ["auto"]
    """`auto` is one device for the whole study: cuda where a framework of it can use a GPU here."""
    tuning: Annotated[OneOrMany[Tuning], Field(min_length=1)] = ["documented"]
    """Values of options that the study does not name: those of the framework's own guide, or the best ones."""
    threads_per_worker: ProcessCount = 1
    """Compute threads of each worker and server."""
    cores_per_worker: ProcessCount | None = None
    """For a worker, its loader helpers and communication threads; by default as many as threads, on GPUs its share."""
    launcher: str = "auto"
    """How processes are started; `auto` is what the strategy needs."""
    cluster: ClusterChoice | None = None
    """The hosts, for the launcher `emulated`."""
    hosts: Annotated[HostsChoice | None, BeforeValidator(from_names), NamesAllowed()] = None
    """The hosts of a real cluster: a list of names, or a mapping."""
    slurm: SlurmChoice | None = None
    """What `steptime submit` asks Slurm for."""
    isolation: Literal["required", "preferred"] = "preferred"
    """Whether launches run only where other users of the machine cannot reach their sockets."""
    options: Options = {}
    """For each framework its own settings, which take precedence over `tuning`; each list is an axis of that
    framework alone."""
    environment_variables: Variables = {}
    """By which libraries are tuned, for all frameworks or below the name of one; each list is an axis."""
    environments: dict[str, EnvironmentChoice] = {}
    """By framework, where it runs if not in the environment that steptime makes."""
    named_environments: dict[Name, EnvironmentChoice] = {}
    """By names of yours, environments of the only framework, measured in the same blocks; `venv` is its usual one."""
    environment_names: Annotated[OneOrMany[str | None], Field(min_length=1)] = [None]
    """Which of these are measured; all by default."""
    optimizer: Annotated[OneOrMany[NamedOptimizer], Field(min_length=1)] = [Optimizer()]
    """How gradients change weights: one for all trials, or a list."""
    accumulation: Annotated[OneOrMany[Count], Field(min_length=1)] = [1]
    """Equal micro-batches of a worker's step; gradients are added up and exchanged once."""
    train: TrainChoice | None = None
    """Trains every trial until it is over, and measures accuracy too."""
    include: OneOrMany[Inclusion] = []
    """Further combinations."""
    exclude: OneOrMany[Exclusion] = []
    """Combinations that are not wanted."""
    launches: Launches = Launches()
    """How often each trial is launched."""
    target: Share = 0.01
    """Half-width of the 95 % interval, relative to the step time, at which a trial is measured well enough."""
    seconds_per_launch: Duration = 3.0
    """Timed seconds aimed for."""
    steps: Steps = Steps()
    """How many steps a launch runs."""
    breakdown: Annotated[BreakdownChoice | None, BeforeValidator(form_if_true), TrueAllowed()] = None
    """Adds launches that break each step down into its phases."""
    loader_alone: Annotated[LoaderAloneChoice | None, BeforeValidator(form_if_true), TrueAllowed()] = None
    """Adds launches of every loader alone, and a verdict on who limits: loader or training."""
    budget: Budget | None = None
    """Time of one run, without making environments and datasets."""
    time_limit: Duration = 300.0
    """Of one launch, after which it is ended and counts as failed."""
    published: list[Published] = []
    """Ratios that others published, shown beside the measured ones."""
    published_efficiency: list[PublishedEfficiency] = []
    """Points of published scaling curves, shown beside the predicted ones."""
    performance_models: OneOrMany[ModelFamily] = []
    """Families of models that the report compares with the measured steps."""
    predictions: PredictionChoice | None = None
    """What the report predicts from the measurements."""
    equivalence: EquivalenceSettings = EquivalenceSettings()
    """The equivalence check."""
    seed: Seed = 0
    """Of the initial weights, the shuffling and the order of the launches."""

    @field_serializer("optimizer")
    def _one_optimizer(self, optimizers: list[Optimizer]) -> Any:  # noqa: ANN401 - one, or a list of them
        """Write a single optimizer as itself, as the form had it before there could be several."""
        written = [optimizer.model_dump() for optimizer in optimizers]
        return written[0] if len(written) == 1 else written

    @property
    def training(self) -> TrainChoice | None:
        """How trainings are repeated and limited: the study's `train`, or that of the first inclusion that has one."""
        return self.train or next((each.train for each in self.include if each.train), None)

    @model_validator(mode="before")
    @classmethod
    def _some_batch(cls, data: Any) -> Any:  # noqa: ANN401 - whatever the file holds
        if isinstance(data, dict) and data.get("batch_per_worker") is None and data.get("global_batch") is None:
            return {**data, "batch_per_worker": [32]}
        return data

    @model_validator(mode="before")
    @classmethod
    def _all_named_environments(cls, data: Any) -> Any:  # noqa: ANN401 - whatever the file holds
        named = data.get("named_environments") if isinstance(data, dict) else None
        if isinstance(named, dict) and named and data.get("environment_names") is None:
            return {**data, "environment_names": list(named)}
        return data

    def environment_choice(self, framework: str, name: str | None) -> EnvironmentChoice | None:
        """Return where a framework's trials run in the environment of a name; None if steptime makes it."""
        named = self.named_environments[name] if name is not None else None
        return named if named is not None and named.kind == "existing" else self.environments.get(framework)


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the study file, for editors that complete and check while one types."""
    form = Study.model_json_schema(mode="validation")
    form["required"].remove("name")  # reading fills it in from the name of the file
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **form}
