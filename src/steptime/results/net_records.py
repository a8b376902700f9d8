"""The record of one launch of the network benchmark, one line in a results folder's ``net.jsonl``."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from steptime.catalog.cluster import Cluster
from steptime.results.stored_record import (
    STRICT,
    Bytes,
    ClockReadings,
    Count,
    Duration,
    Facts,
    LaunchRecord,
    Option,
    Seconds,
    WorkerEvidence,
    record_reader,
)


class NetSetting(BaseModel):
    """What one launch measures: a back end, as a framework uses it, between so many workers."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True, allow_inf_nan=False)

    back_end: str
    framework: str
    strategy: str
    """Whose processes are started."""
    options: dict[str, Option]
    device: Literal["cpu", "cuda"]
    operations: tuple[Literal["allreduce", "allreduce_queued", "push_pull", "incast"], ...]
    sizes: tuple[Annotated[int, Field(gt=0, le=2**53)], ...]
    """Bytes of one message of one worker, ascending; multiples of 4."""
    workers: Count
    servers: Count = 0
    server_placement: Literal["own", "colocated"] | None = None
    threads: int = 1
    launcher: str = "local"
    cluster: Cluster | None = None
    rounds: int = 5
    runs: int = 10
    """Timed runs of a size in each round, at most."""
    seconds: float = 1.0
    """Spent on a size in each launch, about; slow sizes get fewer runs, but one in each round."""

    @property
    def cores_per_worker(self) -> None:
        """As many as threads: nothing but the messages is timed."""
        return None

    @property
    def hosts(self) -> int:
        """Of workers and servers."""
        return len(self.cluster.hosts) if self.cluster else 1

    @property
    def precision(self) -> Literal["fp32"]:
        """Of the values that are summed."""
        return "fp32"

    @property
    def environment_variables(self) -> dict[str, str]:
        """None: only a study sets variables."""
        return {}

    @property
    def id(self) -> str:
        """A readable name with a hash of all fields."""
        fields = self.model_dump(mode="json")
        digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:8]
        return f"{self.back_end}-w{self.workers}-{digest}"


@dataclass(frozen=True)
class Visit:
    """Runs of one message, one directly behind the other, as one worker saw them."""

    __pydantic_config__ = STRICT

    operation: str
    bytes: Bytes
    round: Count
    ends_s: list[Seconds]
    """Of the host's monotonic clock; the first is the end of a run that is not timed."""


@dataclass(frozen=True)
class WorkerVisits:
    """What one worker saw; visit k of all workers is the same."""

    __pydantic_config__ = STRICT

    rank: Count
    host: str
    visits: list[Visit]
    checks: Count
    """Visits whose result was compared with what it must be."""
    wrong: Count
    """Those of them in which a value was wrong."""
    facts: Facts


@dataclass(frozen=True, kw_only=True)
class NetLaunch(LaunchRecord):
    """One launch of a setting; the bytes of its ``cluster`` show that the messages crossed the links."""

    kind = "net"
    written_before: ClassVar = {"commands": "environment", "alphas_s": "stderr", "workers": "stderr"}

    setting: NetSetting
    status: Literal["ok", "failed", "wrong"]
    """``wrong``: it ended well, and a value was not what it must be."""
    commands: list[list[str]]
    """As in a timed launch."""
    alphas_s: list[Duration] = field(default_factory=list)
    """One way of one byte between worker 0 and each other worker, over a plain socket, in seconds."""
    workers: list[WorkerVisits] = field(default_factory=list)

    @property
    def configuration_id(self) -> str:
        return self.setting.id

    def evidence(self) -> Sequence[WorkerEvidence]:
        return [
            WorkerEvidence(
                rank=worker.rank,
                host=worker.host,
                facts=worker.facts,
                steps=[len(visit.ends_s) for visit in worker.visits],
                readings=[ClockReadings(visit.ends_s) for visit in worker.visits],
            )
            for worker in self.workers
        ]

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "setting": self.setting.model_dump(mode="json")}


def _visits_fit(launch: NetLaunch) -> None:
    """Raise ValueError where workers have other visits than the first, or a good launch has none."""
    if launch.status != "ok":
        return
    seen = [[(each.operation, each.bytes, len(each.ends_s)) for each in worker.visits] for worker in launch.workers]
    if not seen or any(each != seen[0] for each in seen):
        message = "workers: not the visits of the first worker"
        raise ValueError(message)
    if any(size < 1 or ends < _FEWEST_ENDS for _, size, ends in seen[0]):
        message = "workers.0.visits: a visit without bytes or without a timed run"
        raise ValueError(message)
    if any(0.0 < alpha < _LEAST_S for alpha in launch.alphas_s):
        message = "alphas_s: shorter than any clock shows"
        raise ValueError(message)
    if launch.setting.workers < _FEWEST_WORKERS:
        message = "setting.workers: one worker has no other to send to"
        raise ValueError(message)


_FEWEST_ENDS = 2
_LEAST_S = 1e-12
_FEWEST_WORKERS = 2

read_net = record_reader(NetLaunch, _visits_fit)
