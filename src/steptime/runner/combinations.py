"""One combination of a study's axes, and the trial that it is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal

from steptime.catalog.accelerators import Accelerators
from steptime.catalog.choices import OWN, SYNTHETIC
from steptime.catalog.cluster import Cluster, cluster_for
from steptime.catalog.manifest import Manifest
from steptime.catalog.options import Optimizer, OptionValue, Precision, Tuning
from steptime.catalog.site import Site
from steptime.runner.workload_shapes import WorkloadShapes
from steptime.study.hosts import ClusterChoice
from steptime.study.study import Axis, WorkloadChoice, further_settings
from steptime.study.training import Training
from steptime.study.trial import ServerPlacement, Trial


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
