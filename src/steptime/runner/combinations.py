"""One combination of a study's axes, and the trial that it is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from steptime.clusters.cluster import Cluster, settled_cluster
from steptime.frameworks.manifest import Manifest, OptionValue
from steptime.runner.settling import Settings
from steptime.study.choices import ClusterChoice, LoaderChoice, WorkloadChoice
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
