"""What a study chooses from: workloads, loaders, environments, hosts."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from steptime.study.notation import OneOrMany, by_number
from steptime.study.quantities import BitRate, Count, CpuShare, Delay, Sides, Strict


class WorkloadChoice(Strict):
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


class LoaderChoice(Strict):
    """How samples arrive."""

    name: str = "auto"
    """`native`, `synthetic`, or `auto`: native where the workload has a dataset, synthetic elsewhere."""
    processes: Annotated[int, Field(ge=0)] = 0
    """Helper processes of each worker; 0 loads in the training process."""


class EnvironmentChoice(Strict):
    """Where a framework runs, if not in the environment that steptime makes for it."""

    kind: str = "existing"
    """`existing` uses an interpreter that you have."""
    python: str | None = None
    """The interpreter of an `existing` environment."""


class ClusterChoice(Strict):
    """The hosts that the launcher `emulated` makes of this machine."""

    hosts: Count
    """For workers, at most: a trial has as many as its workers fill, and one more for each server of its own."""
    workers_per_host: Count = 1
    """Workers fill one host after the other."""
    bandwidth: BitRate | None = None
    """Of every host's link, in each direction; not limited by default."""
    host_bandwidth: Annotated[dict[int, BitRate], BeforeValidator(by_number)] = {}
    """For hosts of workers whose link has another bandwidth, from 0."""
    delay: Delay = 0.0
    """From one host to another, one way, on top of what the link takes anyway."""
    cpu_share: Annotated[dict[int, CpuShare], BeforeValidator(by_number)] = {}
    """For hosts of workers that are meant to be slow, from 0: the share of their cores that they may use."""
