"""The form of a study: its keys, their types, ranges and defaults. What the values mean together is checked elsewhere.

Where a list is expected, a single value will do; durations and shares may be written as people write them.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from steptime.study.choices import ClusterChoice, EnvironmentChoice, LoaderChoice
from steptime.study.claims import Published
from steptime.study.combining import Exclusion, Inclusion, NamedLoader, NamedWorkload, Options
from steptime.study.limits import Anatomy, Gate, Launches, Steps
from steptime.study.notation import OneOrMany, TrueAllowed, form_if_true
from steptime.study.quantities import Count, Device, Duration, Precision, Share, Strict
from steptime.study.trial import Optimizer, ServerPlacement


class Study(Strict):
    """A question and the combinations that answer it."""

    version: Literal[1] = 1
    """Version of the form of this file."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    """Letters, digits, dot, dash and underscore; by default the name of the file."""
    question: str = ""
    """What you want to know, in your words; it heads the report."""
    workloads: Annotated[OneOrMany[NamedWorkload], Field(min_length=1)]
    """What is trained, on which data."""
    frameworks: Annotated[OneOrMany[str], Field(min_length=1)]
    """Who trains it."""
    strategies: Annotated[OneOrMany[str], Field(min_length=1)] = ["auto"]
    """How workers agree; `auto` is `single` for one worker; for more, every synchronous one of the framework."""
    loaders: Annotated[OneOrMany[NamedLoader], Field(min_length=1)] = [LoaderChoice()]
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
    options: Options = {}
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


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the study file, for editors that complete and check while one types."""
    form = Study.model_json_schema(mode="validation")
    form["required"].remove("name")  # reading fills it in from the name of the file
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **form}
