"""What a study chooses by name: strategies, loaders and launchers.

The strategies: how the workers of a trial come to the same weights, or do not.

Whatever depends on the kind of a strategy asks its ``Strategy``; no other module compares names of strategies. Which
framework has which strategy, and who must be started for it, is in the framework's manifest.

The loaders that feed a trial: what each is, and which stored form of a folder of images it reads.

A framework has the loaders that its manifest lists. Each gives the same samples: the protocol's augmentation
(``worker/stored_images.py``) of every image once an epoch.

steptime's own launchers, by name, and the keys of a study that mean something to each; their code is elsewhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from steptime.errors import StudyError, choices_message

State = Literal["optimizer", "gradients", "weights"]
Answer = Literal["mean", "any_order", "error_feedback", "blocks"]
"""What is right of several workers' weights, which the equivalence check asks:

``mean``
    Each update uses the mean of all workers' gradients: the weights are those of one worker with all batches.
``any_order``
    Each gradient updates once, in whatever order they come.
``error_feedback``
    What was sent so far is the mean of all gradients but for a residue that does not grow.
``blocks``
    Each worker updates alone for a block of samples; then all take the mean of their weights, with momentum.
"""


@dataclass(frozen=True)
class Strategy:
    """What is true of a strategy in every framework that has it."""

    name: str
    summary: str
    """One line for ``steptime list strategies``."""
    synchronous: bool = True
    """Whether the workers wait for each other, so that all of them end a step together."""
    exact: bool = True
    """Whether p workers compute the weights that one worker computes with p times the batch: such a strategy can be
    checked against the reference weight by weight, and is one of those that ``auto`` stands for."""
    answer: Answer = "mean"
    servers: bool = False
    """Whether processes of their own hold the weights: parameter servers."""
    shards: tuple[State, ...] = ()
    """The state of training that is split over the workers instead of being held by each."""
    single_baseline: bool = False
    """Whether this is one worker by itself: the first point of every other strategy's curve."""
    aliases: tuple[str, ...] = ()
    """Other names of it in tables of published points."""
    curve_model: bool = True
    """Whether the model of scaling curves describes its exchange."""


SINGLE = Strategy("single", "one worker that trains by itself", single_baseline=True)

STRATEGIES: dict[str, Strategy] = {
    strategy.name: strategy
    for strategy in (
        SINGLE,
        Strategy("allreduce", "every worker averages its gradients with all others in each step"),
        Strategy(
            "ps_sync",
            "servers hold the weights; each step waits for the gradients of all workers",
            servers=True,
            aliases=("parameter_server_sync",),
        ),
        Strategy(
            "ps_async",
            "servers hold the weights; each worker pushes and pulls at its own pace",
            servers=True,
            synchronous=False,
            exact=False,
            answer="any_order",
            aliases=("parameter_server_async",),
        ),
        Strategy(
            "fsdp",
            "weights, gradients and optimizer state are split over the workers and gathered when needed",
            shards=("optimizer", "gradients", "weights"),
        ),
        Strategy(
            "zero1",
            "the optimizer's state is split over the workers, which average their gradients as in allreduce",
            shards=("optimizer",),
            aliases=("zero",),
        ),
        Strategy(
            "zero2",
            "optimizer state and gradients are split over the workers; each updates its part of the weights",
            shards=("optimizer", "gradients"),
        ),
        Strategy(
            "zero3",
            "weights, gradients and optimizer state are split; weights are gathered layer by layer when needed",
            shards=("optimizer", "gradients", "weights"),
        ),
        Strategy(
            "block_momentum",
            "workers train alone for a block of samples, then average their weights with momentum",
            exact=False,
            answer="blocks",
            curve_model=False,
        ),
        Strategy(
            "onebit",
            "as allreduce, but gradients travel as one bit per value, and the error is added to the next",
            exact=False,
            answer="error_feedback",
            curve_model=False,
        ),
    )
}
"""All strategies, by name."""


def strategy_named(name: str) -> Strategy:
    """Return the strategy ``name``.

    A name that is not in the table, as in results that a newer steptime wrote, is taken for a synchronous strategy
    without servers, which most are: its records can then still be reported.
    """
    return STRATEGIES.get(name) or Strategy(name, "")


@dataclass(frozen=True)
class Loader:
    """One way from images on disk to batches."""

    name: str
    summary: str
    form: str | None = "image_folder"
    """The form of ``Dataset`` that it reads images in; None if nothing is read."""
    reads_arrays: bool = False
    """Whether a dataset that is one small array in memory can be its input."""
    reads_tokens: bool = False
    """Whether it reads text."""


SYNTHETIC = Loader("synthetic", "random batches made once, in memory: no input pipeline at all", None)
NATIVE = Loader(
    "native", "the framework's own input pipeline over a dataset on disk", reads_arrays=True, reads_tokens=True
)
CACHED = Loader(
    "cached",
    "images decoded once, their pixels mapped from a file: crop, resize and flip are left; or tokens mapped",
    "decoded",
    reads_tokens=True,
)

OWN = Loader("own", "the iterable of the user's own module", None)
"""Of workloads that are modules of the user's; no study chooses it."""

LOADERS: Mapping[str, Loader] = {
    loader.name: loader
    for loader in (
        SYNTHETIC,
        NATIVE,
        Loader("dali", "NVIDIA's DALI over a folder of images, in an environment of its own"),
        CACHED,
        Loader("webdataset", "JPEG files in tar shards, as WebDataset reads them", "tar_shards"),
        Loader("tfrecord", "JPEG files in TFRecord shards, read by tf.data", "tfrecord"),
        Loader("recordio", "JPEG files in MXNet's RecordIO, read by their numbers", "recordio"),
    )
}


def loader_named(name: str) -> Loader:
    """Return a loader; raises StudyError with the choices for an unknown name."""
    if name == OWN.name:
        return OWN
    if name not in LOADERS:
        raise StudyError([choices_message("loader", name, LOADERS)])
    return LOADERS[name]


AUTO = "auto"
"""What fits, of launchers as of the other things that a study names: here, what its hosts and strategies need."""
EMULATED = "emulated"
LAUNCHERS: Mapping[str, tuple[str, ...]] = {
    "allocation": ("hosts",),
    EMULATED: ("cluster",),
    "inline": (),
    "local": (),
    "mpi": ("hosts", "slurm"),
    "ray": ("hosts",),
    "slurm": ("hosts", "slurm"),
    "ssh": ("hosts",),
}


def launchers_with(key: str) -> list[str]:
    """Return ``auto`` and the launchers to which a ``key`` of a study means something."""
    return [AUTO, *(name for name, keys in LAUNCHERS.items() if key in keys)]
