"""A workload of a study with the data that it trains on, and how its samples arrive."""

from typing import Annotated, Literal

from pydantic import Field

from steptime.study.quantities import Count, OneOrMany, OwnModuleKeys, Sides, Strict


class WorkloadChoice(OwnModuleKeys):
    """One workload of a study and the data it trains on."""

    name: str
    """One of `steptime list workloads`, or with `module` a name of yours."""
    dataset: str | None = None
    """A built-in dataset, or a path (it holds a slash): a folder of images with one subfolder per class, or text."""
    validation: str | None = None
    """A folder of images with the same classes, to validate a training on; by default a fifth of the dataset."""
    image: Sides | None = None
    """Side in pixels, or [height, width]; by default the dataset's, else the workload's."""
    sequence: Count | None = None
    """Tokens of a sample; by default the workload's."""
    tokens: Literal["bytes", "bpe"] | None = None
    """Of your text: its bytes by default, or a byte-pair encoding trained on it."""
    vocabulary: Annotated[int, Field(ge=2, le=65_536)] | None = None
    """Of `bpe` 4096 by default; of token files the workload's."""
    text_field: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Of a `.jsonl` line; by default `text`."""
    skip_broken: bool = False
    """Leave out images that cannot be decoded, and list them; otherwise they are an error."""
    classes: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """By default the dataset's, else the workload's."""
    batch_per_worker: OneOrMany[Count] | None = None
    """Takes precedence over the study's."""
    global_batch: OneOrMany[Count] | None = None
    """Likewise."""


class LoaderChoice(Strict):
    """How samples arrive."""

    name: str = "auto"
    """One of `steptime list loaders`, or `auto`: native where the workload has a dataset, synthetic elsewhere."""
    processes: Annotated[OneOrMany[Annotated[int, Field(ge=0, le=1024)]], Field(min_length=1)] = [0]
    """Helper processes of each worker, an axis; 0 loads in the training process."""
