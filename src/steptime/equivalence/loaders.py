"""The checks of loaders: whether the batches that arrive are those of the dataset, in the protocol's order.

A network of one layer trains on them, whose gradient is a sum of the images of each class: what a loader doubles, drops
or gives another label changes that sum, and a sum of pixels is the coarse picture that different decoders agree on. The
truth is the reference with its own loader. No loader has to say what it delivers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from steptime.catalog.choices import SINGLE, Answer, strategy_named
from steptime.catalog.manifest import Manifest
from steptime.catalog.optimizer import Optimizer
from steptime.catalog.workloads.layers import Loss, Network, Workload
from steptime.equivalence.probes import Probe, check_trial
from steptime.execution.jobs import epoch_steps, read_by
from steptime.study.trial import Trial
from steptime.validity.verdicts import loader_check
from steptime.worker.samples import MASKED_LOSS

_SIDE = 8
"""Of images, in pixels, at most, where they are averaged down: large ones, since the layer would be larger than most
networks, and those that were decoded."""
_LARGEST_LAYER = 4096
"""Inputs of a layer that takes images as they are."""
_IMAGE_AXES = 3
_FEATURES = 8
"""Of a token."""
_EPOCH = {"arrays": 300, "tokens": 300}
_EPOCH_OF_FILES = 40
"""Steps of an epoch, at most, that a check goes through whole, by the form of the dataset: images must be decoded."""
_BEYOND = 2
"""Steps of the next epoch."""
_OF_LARGE = 12
"""Steps of a check that cannot see a whole epoch."""
_ROUNDING = {"arrays": "fp32", "tokens": "fp32"}
_ROUNDING_OF_FILES = "bf16"
"""The precision in whose terms distances are allowed: decoders and filters differ in the last bits of a pixel."""


@dataclass(frozen=True)
class LoaderInput:
    """What one trial's loader reads."""

    loader: Mapping[str, Any]
    """The job's ``loader``."""
    reference: Mapping[str, Any]
    """The same samples, for the reference's own loader."""


@dataclass(frozen=True)
class LoaderCase:
    """One check: a small trial that stands for all trials with the same loader."""

    trial: Trial
    workload: Workload
    probe: Probe
    stands_for: tuple[str, ...]


def loader_cases(
    trials: Sequence[Trial], manifests: Mapping[str, Manifest], inputs: Mapping[str, LoaderInput]
) -> Iterator[LoaderCase]:
    """Yield the checks of loaders that ``trials`` need, one for each framework, dataset, loader and number of helpers.

    Args:
        trials: of the study.
        manifests: by framework.
        inputs: by trial id, of those trials that read a dataset.
    """
    groups: dict[tuple[object, ...], list[Trial]] = {}
    for trial in trials:
        if trial.id in inputs:
            key = (trial.framework, trial.device, trial.dataset, trial.loader, trial.loader_processes)
            hidden = _form(inputs[trial.id]) == "tokens" and trial.build().loss == MASKED_LOSS
            groups.setdefault((*key, trial.input_shape, hidden), []).append(trial)
    for group in groups.values():
        # Several workers show whether shards are disjoint; where workers do not wait for each other, one is exact.
        chosen = max(group, key=lambda trial: (_answer(trial) == "mean", _answer(trial) != "blocks", trial.workers))
        small = _small(chosen, manifests[chosen.framework])
        found = inputs[chosen.id]
        if _form(found) == "tokens":
            workload = pairs_of_tokens(chosen.input_shape, chosen.classes, chosen.build().loss)
        else:
            workload = one_layer(chosen.input_shape, chosen.classes, decoded=_form(found) not in _ROUNDING)
        read = LoaderInput(read_by(workload, found.loader), read_by(workload, found.reference))
        yield LoaderCase(small, workload, loader_probe(small, read), tuple(each.id for each in group))


def _small(trial: Trial, manifest: Manifest) -> Trial:
    """Return the check that stands for all trials with the loader of ``trial``."""
    small = check_trial(trial, manifest)
    update: dict[str, Any] = {
        "dataset": trial.dataset,
        "loader": trial.loader,
        "loader_processes": trial.loader_processes,
        "batch_per_worker": min(trial.batch_per_worker, small.batch_per_worker),
        "workload": loader_check(trial),
        "precision": "fp32",
        "training": None,
        "optimizer": Optimizer(momentum=0.0),
        "accumulation": 1,
    }
    if _answer(trial) != "mean":
        update["workers"] = 1
    if _answer(trial) == "blocks":  # which one worker has too
        options = manifest.tier_options("documented", SINGLE.name, trial.device)
        update |= {"strategy": SINGLE.name, "options": options, "launcher": manifest.launcher_for(SINGLE.name, options)}
    return small.model_copy(update=update)


def one_layer(input_shape: tuple[int, ...], classes: int, *, decoded: bool = False) -> Workload:
    """Return a network whose only weights are one layer of all pixels, or of averages of squares of them.

    Args:
        input_shape: of a sample.
        classes: outputs.
        decoded: whether images were decoded and resized, which libraries do with filters of their own: only the coarse
            picture is then the same, even of a small image.
    """
    net = Network(input_shape)
    values = net.input
    if len(input_shape) == _IMAGE_AXES:
        channels, height, width = input_shape
        if channels * height * width > _LARGEST_LAYER or (decoded and max(height, width) > _SIDE):
            kernel = (-(-height // _SIDE), -(-width // _SIDE))
            values = net.avg_pool("pool", values, kernel, stride=kernel)
        values = net.flatten("flatten", values)
    net.linear("fc", values, classes)
    return net.finish("one_layer", classes=classes)


def pairs_of_tokens(input_shape: tuple[int, ...], vocabulary: int, loss: Loss) -> Workload:
    """Return a network whose gradients are sums over pairs of a token and its target, and over places.

    Args:
        input_shape: of a sample: its tokens.
        vocabulary: how many tokens there are.
        loss: of the workload that it stands for.
    """
    net = Network(input_shape)
    x = net.positions("positions", net.embedding("embedding", net.input, vocabulary, _FEATURES))
    net.linear("fc", x, vocabulary)
    return net.finish("pairs_of_tokens", classes=vocabulary, loss=loss)


def loader_probe(trial: Trial, found: LoaderInput) -> Probe:
    """Return the probe of a loader: a whole epoch and the beginning of the next, where that is not too many steps."""
    form = _form(found)
    epoch = epoch_steps(trial, found.loader)
    steps = epoch + _BEYOND if epoch <= _EPOCH.get(form, _EPOCH_OF_FILES) else _OF_LARGE
    return Probe(
        "batches",
        trial,
        (1,) * steps,
        loader=found.loader,
        reference_loader=found.reference,
        rounding=_ROUNDING.get(form, _ROUNDING_OF_FILES),
    )


def _form(found: LoaderInput) -> str:
    """Return how the samples are kept: as arrays, or in files that must be decoded."""
    return str(found.loader["dataset"]["form"])


def _answer(trial: Trial) -> Answer:
    return strategy_named(trial.strategy).answer
