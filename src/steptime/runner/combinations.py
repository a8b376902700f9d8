"""One combination of a study's axes, and the trial that it is.

Why no trial can be made of a combination: one rule after the other, each with its reason in words.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from steptime.clusters.cluster import Cluster, settled_cluster
from steptime.frameworks.manifest import Manifest, OptionValue
from steptime.runner.workload_shapes import Settings
from steptime.study.strategies import strategy_named
from steptime.study.study import ClusterChoice, LoaderChoice, WorkloadChoice
from steptime.study.trial import Optimizer, ServerPlacement, Trial


@dataclass(frozen=True)
class Surroundings:
    """What decides about a combination besides itself."""

    manifests: Mapping[str, Manifest]
    settings: Settings
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
    options: Mapping[str, OptionValue]

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
            "options": dict(self.options),
        }

    @property
    def batch_per_worker(self) -> float:
        """Samples per step of each worker; not whole where a global batch cannot be shared equally."""
        return self.batch / self.workers if self.batch_is_global else self.batch

    def trial(self, around: Surroundings) -> Trial:
        """Return the trial; only for what is not impossible."""
        manifest = around.manifests[self.framework]
        setting = around.settings.of(self.workload)
        native = self.loader.name != "synthetic"
        needed = manifest.launcher_for(self.strategy, self.options)
        cluster = _cluster(self, around)
        return Trial(
            framework=self.framework,
            strategy=self.strategy,
            workload=self.workload.name,
            input_shape=setting.input_shape,
            classes=setting.classes,
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
            threads=around.threads,
            options=dict(self.options),
            optimizer=around.optimizer,
            launcher=needed if around.launcher == "auto" else around.launcher,
            cluster=cluster,
            seed=around.seed,
        )


def _cluster(it: Combination, around: Surroundings) -> Cluster | None:
    """Return the hosts that the combination's processes need; a host that nobody runs on is not made."""
    chosen = around.cluster
    if chosen is None:
        return None
    return settled_cluster(
        workers=it.workers,
        own_servers=it.servers if it.server_placement == "own" else 0,
        workers_per_host=chosen.workers_per_host,
        bandwidth_bits_per_s=chosen.bandwidth,
        host_bandwidths=chosen.host_bandwidth,
        delay_s=chosen.delay,
        cpu_shares=chosen.cpu_share,
    )


def chosen_options(manifest: Manifest, strategy: str, values: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """Return every option of the framework that means something under ``strategy``: as chosen, or its default."""
    return {
        name: _typed(values.get(name, option.default), option.type)
        for name, option in manifest.options_for(strategy).items()
    }


def _typed(value: OptionValue, kind: str) -> OptionValue:
    """1 for a float option is 1.0, or the same trial would have two ids."""
    return float(value) if kind == "float" else value


def why_impossible(combination: Combination, around: Surroundings) -> str | None:
    """Say in words why no trial can be made of a combination; None where one can."""
    manifest = around.manifests[combination.framework]
    for rule in _RULES:
        reason = rule(combination, manifest, around)
        if reason:
            return reason
    return around.settings.of(combination.workload).reason


def _no_strategy(it: Combination, manifest: Manifest, _: Surroundings) -> str | None:
    if it.strategy in manifest.strategies:
        return None
    if it.strategy == "auto":
        return f"no synchronous strategy for {_workers(it.workers)}"
    return f"no strategy {it.strategy!r} (it has {', '.join(manifest.strategies)})"


def _wrong_workers(it: Combination, manifest: Manifest, _: Surroundings) -> str | None:
    support = manifest.strategies[it.strategy]
    if strategy_named(it.strategy).single_baseline and it.workers != 1:
        return f"{it.strategy!r} is one worker, not {it.workers}"
    if it.workers < support.min_workers:
        return f"{it.strategy!r} needs at least {_workers(support.min_workers)}, not {it.workers}"
    if support.max_workers is not None and it.workers > support.max_workers:
        return f"{it.strategy!r} takes at most {_workers(support.max_workers)}, not {it.workers}"
    return None


def _unsupported(it: Combination, manifest: Manifest, _: Surroundings) -> str | None:
    for what, value, known in (
        ("precision", it.precision, manifest.precisions),
        ("device", it.device, manifest.devices),
        ("loader", it.loader.name, manifest.loaders),
    ):
        if value not in known:
            return f"no {what} {value!r} (it has {', '.join(known)})"
    return None


def devices_of(manifest: Manifest, around: Surroundings) -> list[str]:
    """Return what a framework can train on here: in the user's interpreter, or in steptime's own environment."""
    return list(manifest.devices if manifest.name in around.interpreters else manifest.own_devices)


def _no_device(it: Combination, manifest: Manifest, around: Surroundings) -> str | None:
    if it.device not in devices_of(manifest, around):
        return (
            f"no {it.device!r} in the environment that steptime makes; name an interpreter of your own that has it: "
            f"environments: {{{it.framework}: {{kind: existing, python: /path/to/python}}}}"
        )
    if it.device != "cuda" or it.workers <= around.cuda_devices:
        return None
    if not around.cuda_devices:
        return "no CUDA device on this machine"
    return f"{_workers(it.workers)} need as many CUDA devices; this machine has {around.cuda_devices}"


def _no_data(it: Combination, _: Manifest, __: Surroundings) -> str | None:
    if it.loader.name == "synthetic" or it.workload.dataset is not None:
        return None
    return f"{it.workload.name} has no dataset for the loader {it.loader.name!r} to read"


def _wrong_launcher(it: Combination, manifest: Manifest, around: Surroundings) -> str | None:
    support = manifest.strategies[it.strategy]
    helpers = strategy_named(it.strategy).servers or support.scheduler
    if around.launcher == "local" and manifest.launcher_for(it.strategy, it.options) == "mpi":
        return f"{it.strategy!r} is started by the launcher 'mpi', not 'local'"
    if around.launcher == "mpi" and helpers:
        return f"{it.strategy!r} needs servers or a scheduler, which the launcher 'mpi' does not start"
    if around.launcher == "inline" and (manifest.environment != "core" or it.workers != 1 or helpers):
        return "the launcher 'inline' runs one worker in steptime's own interpreter"
    return None


def _too_few_hosts(it: Combination, _: Manifest, around: Surroundings) -> str | None:
    cluster = around.cluster
    if cluster is None or it.workers <= cluster.hosts * cluster.workers_per_host:
        return None
    room = cluster.hosts * cluster.workers_per_host
    return f"the cluster has room for {_workers(room)} on its hosts, not for {it.workers}"


def _uneven_batch(it: Combination, _: Manifest, __: Surroundings) -> str | None:
    if not it.batch_is_global or it.batch % it.workers == 0:
        return None
    return f"a global batch of {it.batch} cannot be shared equally by {_workers(it.workers)}"


_RULES: tuple[Callable[[Combination, Manifest, Surroundings], str | None], ...] = (
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
