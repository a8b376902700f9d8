"""One launch of the network benchmark, as it stands in a results folder's ``net.jsonl``.

The schema is that of ``measurements/records.py``, with its diary.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from steptime.clusters.cluster import Cluster
from steptime.measurements.records import SCHEMA

OptionValue = bool | int | float | str


class NetSetting(BaseModel):
    """What one launch measures: a back end, as a framework uses it, between so many workers."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    back_end: str
    framework: str
    strategy: str
    """Whose processes are started."""
    options: dict[str, OptionValue]
    device: Literal["cpu", "cuda"]
    operations: tuple[str, ...]
    sizes: tuple[int, ...]
    """Bytes of one message of one worker, ascending; multiples of 4."""
    workers: int
    servers: int = 0
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
    def id(self) -> str:
        """A readable name with a hash of all fields."""
        fields = self.model_dump(mode="json")
        digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:8]
        return f"{self.back_end}-w{self.workers}-{digest}"


@dataclass(frozen=True)
class Visit:
    """Runs of one message, one directly behind the other, as one worker saw them."""

    operation: str
    bytes: int
    round: int
    ends_s: list[float]
    """Of the host's monotonic clock; the first is the end of a run that is not timed."""


@dataclass(frozen=True)
class WorkerVisits:
    """What one worker saw; visit k of all workers is the same."""

    rank: int
    host: str
    visits: list[Visit]
    checks: int
    """Visits whose result was held against what it must be."""
    wrong: int
    """Those of them in which a value was wrong."""
    facts: dict[str, Any]


@dataclass(frozen=True)
class NetLaunch:
    """One launch: fresh processes, one line."""

    setting: NetSetting
    launch: int
    """Index among the launches of this setting, from 0; launches of the same index are neighbours in time."""
    status: Literal["ok", "failed", "wrong"]
    """``wrong``: it ended well, and a value was not what it must be."""
    reason: str | None
    started_at: str
    wall_s: float
    commands: list[list[str]]
    environment: dict[str, Any]
    noise: dict[str, float | None]
    flags: list[str] = field(default_factory=list)
    alphas_s: list[float] = field(default_factory=list)
    """One way of one byte between worker 0 and each other worker, over a plain socket, in seconds."""
    workers: list[WorkerVisits] = field(default_factory=list)
    stderr: dict[str, str] = field(default_factory=dict)
    cluster: dict[str, Any] | None = None
    """As in ``records.Launch``; its bytes show that the messages crossed the links."""

    def to_json(self) -> dict[str, Any]:
        """The line's object."""
        fields = {name: value for name, value in vars(self).items() if name != "setting"}
        workers = [asdict(worker) for worker in self.workers]
        setting = self.setting.model_dump(mode="json")
        return {"schema": SCHEMA, "kind": "net", **fields, "setting": setting, "workers": workers}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "NetLaunch":
        """Read a line's object; raises KeyError or TypeError when it is none."""
        fields = {name: value for name, value in data.items() if name not in ("schema", "kind")}
        fields["setting"] = NetSetting.model_validate_json(json.dumps(fields["setting"]))
        fields["workers"] = [_worker(worker) for worker in fields["workers"]]
        return cls(**fields)


def _worker(data: dict[str, Any]) -> WorkerVisits:
    return WorkerVisits(**{**data, "visits": [Visit(**visit) for visit in data["visits"]]})
