"""One combination of a study's axes, the trial that it is, or the reason why no trial can be made of it.

The reasons come from rules that are asked one after the other; each gives its reason in words.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from steptime.clusters.cluster import Cluster, cluster_for
from steptime.frameworks.manifest import Manifest
from steptime.runner.workload_shapes import WorkloadShapes
from steptime.study.strategies import strategy_named
from steptime.study.study import ClusterChoice, LoaderChoice, WorkloadChoice
from steptime.study.trial import Optimizer, OptionValue, ServerPlacement, Trial, Tuning


@dataclass(frozen=True)
class ExpansionContext:
    """The manifests, datasets and settings that decide which combinations can be trials."""

    manifests: Mapping[str, Manifest]
    shapes: WorkloadShapes
    cuda_devices: int
    interpreters: frozenset[str]
    """Frameworks that run in an interpreter of the user's own."""
    launcher: str
    threads: int
    optimizer: Optimizer
    seed: int
    cluster: ClusterChoice | None = None
    """The hosts that the launcher ``emulated`` may make."""


@dataclass(frozen=True)
class Combination:
    """One value of every axis; nothing is ``auto`` except a strategy that the framework has no answer to."""

    workload: WorkloadChoice
    framework: str
    strategy: str
    loader: LoaderChoice
    device: Literal["cpu", "cuda"]
    precision: Literal["fp32", "bf16"]
    workers: int
    servers: int
    server_placement: ServerPlacement | None
    """None where there are no servers."""
    batch: int
    batch_is_global: bool
    tuning: Tuning
    """The tier that was asked for; the trial's own is ``documented`` where ``tuned`` changes nothing."""
    options: Mapping[str, OptionValue]
    documented_options: Mapping[str, OptionValue]
    """The documented values of the options that the tier changes."""

    def to_json(self) -> dict[str, Any]:
        """The axes, as they are listed for the user."""
        return {
            "framework": self.framework,
            "strategy": self.strategy,
            "workload": self.workload.name,
            "dataset": self.workload.dataset,
            "loader": self.loader.name,
            "device": self.device,
            "precision": self.precision,
            "workers": self.workers,
            "servers": self.servers,
            "server_placement": self.server_placement,
            "global_batch" if self.batch_is_global else "batch_per_worker": self.batch,
            "tuning": self.tier,
            "options": dict(self.options),
        }

    @property
    def tier(self) -> Tuning:
        """The tier of the trial."""
        return "tuned" if self.documented_options else "documented"

    @property
    def batch_per_worker(self) -> float:
        """Samples per step of each worker; not whole where a global batch cannot be shared equally."""
        return self.batch / self.workers if self.batch_is_global else self.batch

    def trial(self, context: ExpansionContext) -> Trial:
        """Return the trial; only for what is not impossible."""
        manifest = context.manifests[self.framework]
        shape = context.shapes.of(self.workload)
        native = self.loader.name != "synthetic"
        needed = manifest.launcher_for(self.strategy, self.options)
        cluster = _cluster(self, context)
        return Trial(
            framework=self.framework,
            strategy=self.strategy,
            workload=self.workload.name,
            input_shape=shape.input_shape,
            classes=shape.classes,
            dataset=self.workload.dataset if native else None,
            loader=self.loader.name,
            loader_processes=self.loader.processes if native else 0,
            device=self.device,
            precision=self.precision,
            workers=self.workers,
            servers=self.servers,
            server_placement=self.server_placement,
            hosts=len(cluster.hosts) if cluster else 1,
            batch_per_worker=int(self.batch_per_worker),
            threads=context.threads,
            tuning=self.tier,
            options=dict(self.options),
            documented_options=dict(self.documented_options),
            optimizer=context.optimizer,
            launcher=needed if context.launcher == "auto" else context.launcher,
            cluster=cluster,
            seed=context.seed,
        )


def _cluster(combination: Combination, context: ExpansionContext) -> Cluster | None:
    """Return the hosts that the combination's processes need; a host that nobody runs on is not made."""
    chosen = context.cluster
    if chosen is None:
        return None
    return cluster_for(
        workers=combination.workers,
        own_servers=combination.servers if combination.server_placement == "own" else 0,
        workers_per_host=chosen.workers_per_host,
        bandwidth_bits_per_s=chosen.bandwidth,
        host_bandwidths=chosen.host_bandwidth,
        delay_s=chosen.delay,
        cpu_shares=chosen.cpu_share,
    )


def why_impossible(combination: Combination, context: ExpansionContext) -> str | None:
    """Say in words why no trial can be made of a combination; None where one can."""
    manifest = context.manifests[combination.framework]
    for rule in _RULES:
        reason = rule(combination, manifest, context)
        if reason:
            return reason
    return context.shapes.of(combination.workload).reason


def _no_strategy(combination: Combination, manifest: Manifest, _: ExpansionContext) -> str | None:
    if combination.strategy in manifest.strategies:
        return None
    if combination.strategy == "auto":
        return f"no synchronous strategy for {_workers(combination.workers)}"
    return f"no strategy {combination.strategy!r} (it has {', '.join(manifest.strategies)})"


def _wrong_workers(combination: Combination, manifest: Manifest, _: ExpansionContext) -> str | None:
    support = manifest.strategies[combination.strategy]
    if strategy_named(combination.strategy).single_baseline and combination.workers != 1:
        return f"{combination.strategy!r} is one worker, not {combination.workers}"
    if combination.workers < support.min_workers:
        return f"{combination.strategy!r} needs at least {_workers(support.min_workers)}, not {combination.workers}"
    if support.max_workers is not None and combination.workers > support.max_workers:
        return f"{combination.strategy!r} takes at most {_workers(support.max_workers)}, not {combination.workers}"
    return None


def _unsupported(combination: Combination, manifest: Manifest, _: ExpansionContext) -> str | None:
    for what, value, known in (
        ("precision", combination.precision, manifest.precisions),
        ("device", combination.device, manifest.devices),
        ("loader", combination.loader.name, manifest.loaders),
    ):
        if value not in known:
            return f"no {what} {value!r} (it has {', '.join(known)})"
    return None


def devices_of(manifest: Manifest, context: ExpansionContext) -> list[str]:
    """Return the devices of a framework here: in the user's interpreter, or in steptime's own environment."""
    return list(manifest.devices if manifest.name in context.interpreters else manifest.own_devices)


def _no_device(combination: Combination, manifest: Manifest, context: ExpansionContext) -> str | None:
    if combination.device not in devices_of(manifest, context):
        return (
            f"no {combination.device!r} in the environment that steptime makes; "
            "name an interpreter of your own that has it: "
            f"environments: {{{combination.framework}: {{kind: existing, python: /path/to/python}}}}"
        )
    if combination.device != "cuda" or combination.workers <= context.cuda_devices:
        return None
    if not context.cuda_devices:
        return "no CUDA device on this machine"
    return f"{_workers(combination.workers)} need as many CUDA devices; this machine has {context.cuda_devices}"


def _no_data(combination: Combination, _: Manifest, __: ExpansionContext) -> str | None:
    if combination.loader.name == "synthetic" or combination.workload.dataset is not None:
        return None
    return f"{combination.workload.name} has no dataset for the loader {combination.loader.name!r} to read"


def _wrong_launcher(combination: Combination, manifest: Manifest, context: ExpansionContext) -> str | None:
    support = manifest.strategies[combination.strategy]
    helpers = strategy_named(combination.strategy).servers or support.scheduler
    if context.launcher == "local" and manifest.launcher_for(combination.strategy, combination.options) == "mpi":
        return f"{combination.strategy!r} is started by the launcher 'mpi', not 'local'"
    if context.launcher == "mpi" and helpers:
        return f"{combination.strategy!r} needs servers or a scheduler, which the launcher 'mpi' does not start"
    if context.launcher == "inline" and (manifest.environment != "core" or combination.workers != 1 or helpers):
        return "the launcher 'inline' runs one worker in steptime's own interpreter"
    return None


def _too_few_hosts(combination: Combination, _: Manifest, context: ExpansionContext) -> str | None:
    cluster = context.cluster
    if cluster is None or combination.workers <= cluster.hosts * cluster.workers_per_host:
        return None
    most = cluster.hosts * cluster.workers_per_host
    return f"the cluster has room for {_workers(most)} on its hosts, not for {combination.workers}"


def _uneven_batch(combination: Combination, _: Manifest, __: ExpansionContext) -> str | None:
    if not combination.batch_is_global or combination.batch % combination.workers == 0:
        return None
    return f"a global batch of {combination.batch} cannot be shared equally by {_workers(combination.workers)}"


_RULES: tuple[Callable[[Combination, Manifest, ExpansionContext], str | None], ...] = (
    _no_strategy,
    _wrong_workers,
    _unsupported,
    _no_device,
    _no_data,
    _wrong_launcher,
    _too_few_hosts,
    _uneven_batch,
)
"""Asked in this order; a later rule may rely on what an earlier one let pass."""


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"
