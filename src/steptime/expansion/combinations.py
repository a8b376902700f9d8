"""One combination of a study's axes, and the trial that it is.

The shape of a workload on its dataset: input shape and classes, or why the two do not go together.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from steptime.catalog.accelerators import Accelerators
from steptime.catalog.choices import OWN, SYNTHETIC
from steptime.catalog.cluster import Cluster, cluster_for
from steptime.catalog.found_site import Site
from steptime.catalog.manifest import Manifest
from steptime.catalog.optimizer import Optimizer
from steptime.catalog.options import OptionValue, Precision, Tuning
from steptime.catalog.workloads.layers import Workload
from steptime.catalog.workloads.own_module import OwnModule, find_own_module
from steptime.catalog.workloads.table import LIBRARY, build_workload
from steptime.datasets.corpus import Corpus
from steptime.datasets.dataset import Contents
from steptime.errors import WorkloadError
from steptime.study.axis import Axis
from steptime.study.hosts import ClusterChoice
from steptime.study.study import further_settings
from steptime.study.training import Training
from steptime.study.trial import ServerPlacement, Trial
from steptime.study.workload_choice import WorkloadChoice
from steptime.units import format_count
from steptime.worker.samples import MASKED_LOSS

_PLANE = 3  # axes of an image: channels, height, width
_Key = tuple[str, str | None, str | None, str | None, tuple[int, int] | None, int | None, int | None]


@dataclass(frozen=True)
class DatasetFacts:
    """The facts of a dataset that decide whether a workload can train on it."""

    shape: tuple[int, ...] | None = None
    """Of every sample, channels first; None for image files, which are resized and decoded as the workload needs."""
    classes: int | None = None
    """How many classes its labels name; None if that is not known yet."""
    contents: Contents | None = None
    """What of a folder of the user's is used, and what is not."""
    of_tokens: bool = False
    """Whether it is one row of tokens, of which a workload takes sequences of its own length."""
    corpus: Corpus | None = None
    """A user's own text."""


@dataclass(frozen=True)
class WorkloadShape:
    """The input shape and classes of a workload on its dataset, or why there are none."""

    input_shape: tuple[int, ...] = ()
    classes: int = 0
    reason: str | None = None
    own: OwnModule | None = None
    """The user's module, where the workload is one: it has neither shape nor classes."""


@dataclass(frozen=True)
class WorkloadShapes:
    """The workloads of a study on its datasets."""

    datasets: Mapping[str, DatasetFacts]
    _found: dict[_Key, WorkloadShape] = field(default_factory=dict)
    """Those of earlier calls: building a workload takes a while."""

    def of(self, choice: WorkloadChoice) -> WorkloadShape:
        """Return input shape and classes of a workload on its dataset, or why they do not go together."""
        key = (
            choice.module or choice.name,
            choice.data,
            choice.loss,
            choice.dataset,
            choice.image,
            choice.sequence,
            choice.classes,
        )
        if key not in self._found:
            facts = self.datasets.get(choice.dataset, DatasetFacts()) if choice.dataset else DatasetFacts()
            try:
                self._found[key] = _shape_on(choice, facts)
            except WorkloadError as error:
                self._found[key] = WorkloadShape(reason=f"{choice.name}: {error}")
        return self._found[key]

    def tokens_of(self, choice: WorkloadChoice) -> str | None:
        """Return how a workload's own text is read, where it is unlike the usual way; None for any other data."""
        corpus = self.datasets.get(choice.dataset or "", DatasetFacts()).corpus
        return corpus.reading.name if corpus else None


def module_of(choice: WorkloadChoice) -> OwnModule | None:
    """Return the user's module that a workload of a study is; None of others.

    Raises WorkloadError where its files cannot be read, or do not have what is named.
    """
    if choice.module is None or choice.data is None:
        return None
    folder, _, build = choice.module.rpartition("/")
    return find_own_module(Path(folder), build, choice.data, choice.loss)


def has_classes(choice: WorkloadChoice) -> bool:
    """Whether a workload has classes, so that it has an accuracy; of sequences, each next token has one."""
    if choice.module is not None:
        return False
    return build_workload(choice.name).loss in {"softmax_cross_entropy", "next_token_cross_entropy"}


def has_layer(choice: WorkloadChoice, kinds: Container[str]) -> bool:
    """Whether a workload has a layer of one of the kinds."""
    if choice.module is not None:
        return False
    return any(layer.kind in kinds for layer in build_workload(choice.name).layers)


def _shape_on(choice: WorkloadChoice, facts: DatasetFacts) -> WorkloadShape:
    if own := module_of(choice):
        return WorkloadShape(own=own)
    default = build_workload(choice.name, sequence=choice.sequence)
    reason = _mismatch(choice, facts, default)
    if reason:
        return WorkloadShape(reason=reason)
    classes = choice.classes or (facts.classes + _hiding(default) if facts.classes else default.classes)
    shape = facts.shape or (_resized(default, choice.image) if choice.image else default.input_shape)
    workload = build_workload(choice.name, shape, classes)
    return WorkloadShape(workload.input_shape, workload.classes)


def _hiding(workload: Workload) -> int:
    """Return how many tokens a workload needs beyond those of its text: one, where it predicts what that hides."""
    return int(workload.loss == MASKED_LOSS)


def _mismatch(choice: WorkloadChoice, facts: DatasetFacts, default: Workload) -> str | None:
    name, data = choice.name, choice.dataset
    if data and (of_other_kind := _of_other_kind(choice, data, facts, default)):
        return of_other_kind
    if facts.shape and len(default.input_shape) == len(facts.shape) and facts.shape[0] != default.input_shape[0]:
        taken, there = (format_count(each[0], "channel") for each in (default.input_shape, facts.shape))
        return f"{name} takes {taken}, and {data} has {there}"
    if facts.shape and choice.image and choice.image != facts.shape[-2:]:
        asked, there = ("x".join(map(str, sides)) for sides in (choice.image, facts.shape[-2:]))
        return f"{data} is stored as {there} and is not resized to {asked}"
    if choice.image and len(default.input_shape) != _PLANE:
        return f"{name} takes no images, so an image size has no meaning"
    if facts.classes and choice.classes and choice.classes < facts.classes + _hiding(default):
        kinds = "tokens in its vocabulary" if facts.of_tokens else "classes"
        kinds += " and one that hides them" if _hiding(default) else ""
        return f"{data} has {facts.classes} {kinds}, more than the {choice.classes} asked of {name}"
    return None


def _of_other_kind(choice: WorkloadChoice, data: str, facts: DatasetFacts, default: Workload) -> str | None:
    name = choice.name
    if LIBRARY[name].of_tokens != facts.of_tokens:
        kinds = ("images", "tokens")
        return f"{name} takes {kinds[not facts.of_tokens]}, and {data} has {kinds[facts.of_tokens]}"
    if not facts.of_tokens and (choice.tokens or choice.vocabulary):
        return f"{name} takes no tokens, so a vocabulary has no meaning"
    return _unfit_text(facts.corpus, default, choice.classes) if facts.corpus else None


def _unfit_text(corpus: Corpus, default: Workload, asked: int | None) -> str | None:
    """Return why a user's own text does not fit a workload: too large a vocabulary, or too little text."""
    name, data, largest = default.name, corpus.name, corpus.largest
    vocabulary = asked or corpus.vocabulary or default.classes
    if largest and largest.token >= vocabulary - _hiding(default):
        return (
            f"{data} has the token {largest.token} ({largest.file}, at place {largest.place}), outside of the "
            f"vocabulary of {vocabulary} of {name}; raise classes"
        )
    length, sequence = corpus.length_of(corpus.training), default.input_shape[0]
    if length is not None and length <= sequence:
        return f"{data} has {length} tokens, fewer than a sequence of {sequence} of {name} and the token after it"
    return None


def _resized(default: Workload, sides: tuple[int, int]) -> tuple[int, ...]:
    return (default.input_shape[0], *sides)


@dataclass(frozen=True)
class ExpansionContext:
    """The manifests, datasets and settings that decide which combinations can be trials."""

    manifests: Mapping[str, Manifest]
    shapes: WorkloadShapes
    accelerators: Accelerators
    """The CUDA devices of this machine, or of the site's hosts; unknown before the probe."""
    interpreters: frozenset[str]
    """Frameworks that run in an interpreter of the user's own."""
    launcher: str
    threads: int
    cores_per_worker: int | None
    """None if they are as many as threads."""
    seed: int
    site: Site | None = None
    """The hosts that there are, for the launchers that use some."""
    automatic_device: Literal["cpu", "cuda"] = "cpu"
    """What ``auto`` means, for all frameworks alike."""
    containers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By framework, the words by which the user's interpreter is started in a container."""
    named_containers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Likewise, by the name of an environment."""

    def container_of(self, framework: str, environment_name: str | None) -> tuple[str, ...]:
        """Return the words by which the interpreter of a trial is started in a container; none if it runs in none."""
        if environment_name is None:
            return self.containers.get(framework, ())
        return self.named_containers.get(environment_name, ())


@dataclass(frozen=True)
class Combination:
    """One value of every axis; nothing is ``auto`` except a strategy that the framework has no answer to."""

    workload: WorkloadChoice
    framework: str
    strategy: str
    loader: str
    loader_processes: int
    device: Literal["cpu", "cuda"]
    workers: int
    servers: int
    server_placement: ServerPlacement | None
    """None if there are no servers."""
    batch: int
    batch_is_global: bool
    given: Mapping[str, Any]
    """By field of the trial, the values of the axes that it has as the study gives them."""
    training: Training | None
    tuning: Tuning
    """The tier that was asked for; the trial's own is ``documented`` where ``tuned`` changes nothing."""
    options: Mapping[str, OptionValue]
    documented_options: Mapping[str, OptionValue]
    """The documented values of the options that the tier changes."""
    environment_variables: Mapping[str, str]
    cluster: ClusterChoice | None = None
    """The hosts that the launcher ``emulated`` may make."""

    @property
    def precision(self) -> Precision:
        """Of products."""
        found: Precision = self.given["precision"]
        return found

    @property
    def optimizer(self) -> Optimizer:
        """How gradients change weights."""
        found: Optimizer = self.given["optimizer"]
        return found

    @property
    def accumulation(self) -> int:
        """Micro-batches of a step."""
        found: int = self.given["accumulation"]
        return found

    def value_of(self, axis: Axis) -> Any:  # noqa: ANN401 - whatever values the axis has
        """Return what an exclusion compares with its values; None on the axes of a training if it is not trained."""
        value = self.given[axis.field] if axis.as_given else getattr(self, axis.field)
        return value if value is None or axis.part is None else attrgetter(axis.part)(value)

    def to_json(self) -> dict[str, Any]:
        """The axes, as they are listed for the user."""
        return {
            "framework": self.framework,
            "strategy": self.strategy,
            "workload": self.workload.name,
            "dataset": self.workload.dataset,
            "loader": self.loader,
            "device": self.device,
            "precision": self.precision,
            "workers": self.workers,
            "servers": self.servers,
            "server_placement": self.server_placement,
            "global_batch" if self.batch_is_global else "batch_per_worker": self.batch,
            "tuning": self.tier,
            **further_settings(self.given.__getitem__),
            **self._learning_json(),
            "options": dict(self.options),
            **({"environment_variables": dict(self.environment_variables)} if self.environment_variables else {}),
        }

    def _own_training(self) -> Training | None:
        """The training with the validation folder of this workload."""
        folder = self.workload.validation
        return self.training.model_copy(update={"validation": folder}) if self.training and folder else self.training

    def _learning_json(self) -> dict[str, Any]:
        """What the study's training varies; nothing of a study without training."""
        training = self.training
        if training is None:
            return {} if self.optimizer.name == "sgd" else {"optimizer": self.optimizer.name}
        return {
            "optimizer": self.optimizer.name,
            "schedule": training.rate_schedule.in_words,
            "scaling_rule": training.scaling_rule,
            "warmup_epochs": training.warmup_epochs,
        }

    @property
    def tier(self) -> Tuning:
        """The tier of the trial."""
        return "tuned" if self.documented_options else "documented"

    @property
    def batch_per_worker(self) -> float:
        """Samples per step of each worker; not whole where a global batch cannot be shared equally."""
        return self.batch / self.workers if self.batch_is_global else self.batch

    @property
    def global_batch(self) -> float:
        """Samples per step over all workers."""
        return self.batch_per_worker * self.workers

    def trial(self, context: ExpansionContext) -> Trial:
        """Return the trial; only for what is not impossible."""
        manifest = context.manifests[self.framework]
        shape = context.shapes.of(self.workload)
        native = self.loader not in (SYNTHETIC.name, OWN.name)
        needed = manifest.launcher_for(self.strategy, self.options)
        cluster = self.cluster_in(context)
        return Trial(
            framework=self.framework,
            strategy=self.strategy,
            workload=self.workload.name,
            input_shape=shape.input_shape,
            classes=shape.classes,
            own=shape.own,
            dataset=self.workload.dataset if native else None,
            tokens=context.shapes.tokens_of(self.workload) if native else None,
            loader=self.loader,
            loader_processes=self.loader_processes if native else 0,
            device=self.device,
            workers=self.workers,
            servers=self.servers,
            server_placement=self.server_placement,
            hosts=len(cluster.hosts) if cluster else 1,
            batch_per_worker=int(self.batch_per_worker),
            threads=context.threads,
            tuning=self.tier,
            cores_per_worker=context.cores_per_worker,
            options=dict(self.options),
            environment_variables=dict(self.environment_variables),
            container=context.container_of(self.framework, self.given["environment_name"]),
            documented_options=dict(self.documented_options),
            training=self._own_training(),
            launcher=needed if context.launcher == "auto" else context.launcher,
            cluster=cluster,
            seed=context.seed,
            **self.given,
        )

    def cluster_in(self, context: ExpansionContext) -> Cluster | None:
        """Return the hosts that its processes need; a host without a process is not made."""
        chosen, site = self.cluster, context.site
        own_servers = self.servers if self.server_placement == "own" else 0
        if site is not None:
            return cluster_for(
                workers=self.workers,
                own_servers=own_servers,
                workers_per_host=site.workers_per_host,
                kind="found",
            )
        if chosen is None:
            return None
        return cluster_for(
            workers=self.workers,
            own_servers=own_servers,
            workers_per_host=chosen.workers_per_host,
            bandwidth_bits_per_s=chosen.bandwidth,
            host_bandwidths=chosen.host_bandwidth,
            delay_s=chosen.delay,
            cpu_shares=chosen.cpu_share,
        )
