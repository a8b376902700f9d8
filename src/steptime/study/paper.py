"""The paper that a study follows: what it published, which models it compared with its steps, and what is predicted."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from steptime.study.quantities import (
    BitRate,
    Count,
    EfficiencyShare,
    OneOrMany,
    ProcessCount,
    Strict,
    WorkerCount,
    by_number,
)

ModelFamily = Literal["load_imbalance", "s_sgd"]
"""Performance models that published papers compare with measured steps: docs/paper-studies.md has their formulas."""


class Side(Strict):
    """Trials that a published ratio speaks of: those that have, on every axis named here, one of the values given."""

    frameworks: OneOrMany[str]
    """By name."""
    strategies: OneOrMany[str] | None = None
    """By name; all by default."""
    workloads: OneOrMany[str] | None = None
    """By name; all by default."""
    loaders: OneOrMany[str] | None = None
    """A claim about these, `workers` or batches compares trials that differ in nothing else."""
    workers: OneOrMany[ProcessCount] | None = None
    """A claim about workers compares the time of as many samples."""
    batch_per_worker: OneOrMany[Count] | None = None
    """Likewise."""


class Paper(Strict):
    """The paper whose question a study asks."""

    title: str
    """As published."""
    authors: str
    """As the report names them."""
    year: Annotated[int, Field(ge=1900, le=2100)]
    """Of publication."""
    address: Annotated[str, Field(pattern="^https?://")]
    """Where it, or its abstract, can be read."""


class Published(Strict):
    """A ratio that somebody published, to be compared with the one measured here."""

    claim: str
    """What was found."""
    source: str
    """Who published it, where."""
    slower: Side
    """The trials that took longer."""
    faster: Side
    """The trials that took less."""
    ratio: Annotated[float, Field(gt=0)] | None = None
    """Time of `slower` divided by time of `faster`; null where only the direction was published."""
    machine: str | None = None
    """On which; the report lists where this machine differs."""


class PublishedEfficiency(Strict):
    """Points of a scaling curve that somebody published, to be shown beside the study's predictions."""

    claim: str
    """What was found."""
    source: str
    """Who published it, where."""
    machine: str
    """On which."""
    workloads: OneOrMany[str] | None = None
    """That it may be compared with; all by default."""
    efficiency: Annotated[dict[int, EfficiencyShare], BeforeValidator(by_number), Field(min_length=1)]
    """By number of workers, throughput per worker relative to one worker's."""


class PredictionChoice(Strict):
    """Numbers of workers that a study predicts from what it measures, and the hosts that they would have."""

    workers: Annotated[OneOrMany[WorkerCount], Field(min_length=1)]
    """For every strategy, workload and batch that was measured."""
    strategies: OneOrMany[str] | None = None
    """Of those measured; all by default."""
    frameworks: OneOrMany[str] | None = None
    """Likewise."""
    workers_per_host: ProcessCount | None = None
    """As measured by default."""
    cores_per_host: ProcessCount | None = None
    """Of predicted emulated hosts; by default they share this machine's."""
    bandwidth: BitRate | None = None
    """Of each host's link; as measured by default."""
