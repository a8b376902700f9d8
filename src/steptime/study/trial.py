"""The trial: one configuration with every field given, which a study expands into and results are filed under."""

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, computed_field, model_serializer

from steptime.catalog.cluster import Cluster
from steptime.catalog.optimizer import Optimizer
from steptime.catalog.options import OptionValue, Precision, Tuning
from steptime.catalog.workloads.layers import Workload
from steptime.catalog.workloads.own_module import OwnModule
from steptime.catalog.workloads.table import LIBRARY, build_workload, own_workload
from steptime.datasets.builtins import BUILTINS
from steptime.errors import PluginError
from steptime.study.training import Training
from steptime.units import format_count

ServerPlacement = Literal["own", "colocated"]
"""Whether parameter servers have cores (hosts) of their own, or share those of the workers."""


class Trial(BaseModel):
    """One configuration to be run several times in fresh processes.

    Every field has its final value: ``device`` is never ``auto``, ``options`` holds every option of the framework that
    applies, and ``servers`` is 0 where the strategy has none.
    """

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True)

    framework: str
    strategy: str
    workload: str
    input_shape: tuple[int, ...]
    """Per sample, channels first."""
    classes: int
    dataset: str | None
    """A built-in dataset's name or a folder; None with the synthetic loader."""
    tokens: str | None = None
    """How the dataset's text is read, as ``bpe 4096 of the field body``; None for bytes of the usual field, or none."""
    loader: str
    loader_processes: int = 0
    device: Literal["cpu", "cuda"]
    precision: Precision
    workers: int
    servers: int = 0
    server_placement: ServerPlacement | None = None
    """None if the strategy has no servers."""
    hosts: int = 1
    batch_per_worker: int
    threads: int = 1
    """Compute threads of each worker and each server."""
    cores_per_worker: int | None = None
    """Cores that a worker and its helpers run on; None if they are as many as its compute threads."""
    environment_variables: dict[str, str] = Field(default_factory=dict)
    """Variables that the study sets for the processes of a launch, by name."""
    container: tuple[str, ...] = ()
    """The words by which its interpreter is started in a container; empty where it runs in none."""
    environment_name: str | None = None
    """Of the study's named environments; None if the study names none."""
    tuning: Tuning = "documented"
    """``tuned`` where that tier changes an option; a trial in which it changes nothing is the documented one."""
    options: dict[str, OptionValue] = Field(default_factory=dict)
    documented_options: dict[str, OptionValue] = Field(default_factory=dict)
    """Of a tuned trial: the values in the tier ``documented`` of the options that the tier ``tuned`` changes."""
    optimizer: Optimizer = Optimizer()
    accumulation: int = 1
    """Micro-batches of a step, each an equal part of the batch per worker."""
    training: Training | None = None
    """None if steps are timed and accuracy is not asked for."""
    launcher: str = "local"
    cluster: Cluster | None = None
    """The hosts and links that the launcher makes; None if the launcher takes what is there."""
    seed: int = 0
    own: OwnModule | None = None
    """The user's module that the workload is; None of those that have layers."""

    @model_serializer(mode="wrap")
    def _without_own(self, serialized: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write the form that there was before there were modules of users, where there is none."""
        written: dict[str, Any] = serialized(self)
        if self.own is None:
            written.pop("own", None)
        return written

    @computed_field  # type: ignore[prop-decorator]  # mypy cannot see through two decorators
    @property
    def id(self) -> str:
        """A readable name with a hash of all fields: the same configuration has the same id in every study."""
        return self._id

    @cached_property
    def _id(self) -> str:
        readable = f"{self.framework}-{self.strategy}-{self.workload}-w{self.workers}-b{self.batch_per_worker}"
        return f"{readable}-{self._digest()}"

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with other values of some fields, whose id is its own."""
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("_id", None)
        return copied

    @property
    def global_batch(self) -> int:
        """Samples per step over all workers."""
        return self.workers * self.batch_per_worker

    @property
    def group(self) -> str:
        """What must be equal for two trials to be ranked against each other."""
        size = self.own.in_words if self.own else "x".join(str(size) for size in self.input_shape)
        if not self.own and self.classes != self._usual_classes():
            size += f", {self.classes} classes"
        data = (f"{self.dataset} dataset" if self.dataset else "synthetic data") + (
            f" as {self.tokens}" if self.tokens else ""
        )
        data = f"batches of {self.own.data}" if self.own else f"{data}, {loader_in_words(self.loader)}"
        workers = format_count(self.workers, "worker")
        cluster = f", {self.cluster.in_words()}" if self.cluster else ""
        optimizer = "" if self.optimizer == Optimizer() else f", {self.optimizer.in_words}"
        return (
            f"{self.workload} ({size}), {data}, {workers}, "
            f"batch {self.batch_per_worker} per worker, {self.precision}, {self.device}{optimizer}{cluster}"
        )

    def _usual_classes(self) -> int | None:
        """Return the number of classes that goes without saying; None of a folder, whose classes only records know.

        It is a built-in dataset's, or without a dataset the workload's.
        """
        try:
            if self.dataset is not None:
                return len(BUILTINS[self.dataset].classes)
            return LIBRARY[self.workload].classes
        except (KeyError, PluginError):
            return None

    def build(self) -> Workload:
        """Return its workload; raises WorkloadError or PluginError where that is not installed here."""
        if self.own:
            return own_workload(self.workload, self.own)
        return build_workload(self.workload, self.input_shape, self.classes)

    @property
    def configuration(self) -> str:
        """The id without the tier: trials of both tiers that run the same have the same."""
        return self.model_copy(update={"tuning": "documented"}).id

    @property
    def in_words(self) -> str:
        """The trial in a few words, for progress; of loaders all but the native one without helpers."""
        workers = format_count(self.workers, "worker")
        tier = " tuned" if self.tuning == "tuned" else ""
        parts = [f"{self.framework} {self.strategy}{tier}", self.workload]
        if self.loader != "native" or self.loader_processes:
            helpers = {0: "", 1: " with 1 helper"}.get(self.loader_processes, f" with {self.loader_processes} helpers")
            parts.append(f"{self.loader} loader{helpers}")
        return ", ".join([*parts, workers])

    def with_learning_rate(self, learning_rate: float) -> "Trial":
        """Return the same configuration with another learning rate."""
        return self.model_copy(update={"optimizer": self.optimizer.model_copy(update={"learning_rate": learning_rate})})

    def _digest(self) -> str:
        fields: dict[str, Any] = self.model_dump(mode="json", exclude={"id", "documented_options"})
        if self.cluster is not None and self.cluster.kind == "emulated":
            del fields["cluster"]["kind"]
        if self.own is not None:
            del fields["own"]["folder"]  # the same files elsewhere are the same
        kept = {
            name: each for name, each in fields.items() if getattr(self, name) != _LEFT_OUT.get(name, _NEVER_LEFT_OUT)
        }
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:8]


_HASHED_BY_DEFAULT = frozenset(
    ("loader_processes", "servers", "server_placement", "hosts", "threads", "options", "optimizer", "launcher", "seed")
)
_NEVER_LEFT_OUT = object()
_LEFT_OUT = {
    name: field.get_default(call_default_factory=True)
    for name, field in Trial.model_fields.items()
    if not field.is_required() and name not in _HASHED_BY_DEFAULT
}
"""Defaults that no id depends on, so that a trial keeps the id that it had before there was the field."""


def loader_in_words(loader: str) -> str:
    """Return what a reader calls a loader: ``framework's own loader``, ``dali loader``."""
    return "framework's own loader" if loader == "native" else f"{loader} loader"
