"""How far a study is: the launches of each trial, counted from its records, and what its latest run reports.

Of the counts nothing is kept between two calls: a cache would be one more file of somebody else to be wary of.
"""

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict, cast

from pydantic import TypeAdapter

from steptime.catalog.options import Tuning
from steptime.errors import StoreError
from steptime.measurements.accuracy.records import TrainingRun
from steptime.measurements.jsonlines import json_text
from steptime.measurements.launch_times import step_times
from steptime.measurements.record_kinds import RecordKind
from steptime.measurements.records import Launch
from steptime.measurements.stored_record import STRICT, TrialLaunch
from steptime.plain_file import PlainFolder
from steptime.process_identity import ProcessIdentity
from steptime.study.trial import Trial


class TrialProgress(TypedDict):
    """The launches of one trial, as ``steptime status --json`` prints them."""

    trial: str
    tuning: Tuning
    """The tier of its options."""
    ok: int
    failed: int
    ablations_ok: int
    ablations_failed: int
    trainings_ok: int
    trainings_failed: int
    epochs: int
    """Of all trainings that ended well."""
    steps: int
    """Timed steps of all launches."""
    last_launch_at: str | None
    """UTC, ISO 8601."""
    reason: str | None
    """Why the trial is not launched again; without such a verdict, of its first failure."""
    unverified: int
    """Lines of its records without a checksum."""
    set_aside: list[dict[str, Any]]
    """Lines of its records that do not count, as in the report."""


PROGRESS = "progress.json"
"""The file of a results folder in which a run keeps how far it is; its time of change is the run's last heartbeat,
which needs no other write and is the file server's time, where a server keeps the folder."""
BEAT_S = 10.0
"""From one heartbeat to the next."""
SILENT_S = 120.0
"""After so long without a heartbeat a run is said to be silent: many times the beat, since a busy file server and a
cache of attributes, of a minute in NFS, hold signs up."""
RunState = Literal["running", "silent", "killed", "ended"]


@dataclass(frozen=True)
class RunProgress:
    """How far the latest run of a folder is, by its own report."""

    __pydantic_config__ = STRICT

    process: str = ""
    """Its ``ProcessIdentity``."""
    pid: int = 0
    host: str = ""
    job: str | None = None
    """The number of its Slurm job; None outside one."""
    stage: str = ""
    item: str = ""
    """That is worked on now; empty between two."""
    done: int = 0
    """Items of the stage."""
    least: int | None = None
    """Items of the stage in any case, those that are over included; None if that is not known."""
    most: int | None = None
    least_s: float | None = None
    """Seconds that the stage still takes, when its item began; None if unknown."""
    most_s: float | None = None
    at: str = ""
    """When the item began, or the run ended: UTC, ISO 8601."""
    ended: str | None = None
    """How the run ended; None while it runs, and where it was killed."""

    def to_json(self) -> bytes:
        """Return the file's content."""
        return (json_text(asdict(self), indent=1, sort_keys=True) + "\n").encode()

    @property
    def was_killed(self) -> bool:
        """Whether the run is known to have ended without saying so; False for one that cannot be seen from here."""
        identity = ProcessIdentity.parse(self.process)
        return self.ended is None and identity is not None and identity.has_ended


def run_progress(folder: Path) -> RunProgress | None:
    """Return how far the latest run of a results folder is; None if none has said so in a form that is known."""
    try:
        return TypeAdapter(RunProgress).validate_json(PlainFolder(folder).read(folder / PROGRESS))
    except (OSError, StoreError, ValueError):
        return None


def run_state(folder: Path, found: RunProgress) -> RunState:
    """Return what the latest run of a results folder is known to do, from any host."""
    if found.ended is not None:
        return "ended"
    if found.was_killed:
        return "killed"
    age_s = last_sign_age_s(folder)
    return "silent" if age_s is None or age_s > SILENT_S else "running"


def last_sign_age_s(folder: Path) -> float | None:
    """Return the seconds since the latest run of a results folder gave a heartbeat; None if none ever did.

    By the clock of the file system, which may differ from that of this host.
    """
    try:
        descriptor = PlainFolder(folder).open(
            folder / PROGRESS, os.O_RDONLY
        )  # NFS asks its server when a file is opened
    except (OSError, StoreError):
        return None
    try:
        return max(0.0, time.time() - os.fstat(descriptor).st_mtime)
    finally:
        os.close(descriptor)


def last_line_age_s(folder: Path) -> float | None:
    """Return the seconds since a launch was last kept in a results folder; None if none was.

    By the clock of the file system, which may differ from that of this host.
    """
    found = [path.stat().st_mtime for path in folder.glob("trials/*/*.jsonl")]
    return max(0.0, time.time() - max(found)) if found else None


def trial_progress(
    trial: Trial, records: Mapping[RecordKind[Any], Iterable[TrialLaunch]], verdict: Mapping[str, Any] | None
) -> TrialProgress:
    """Count the launches of ``trial``; ``verdict`` is why it is not launched again, if it is not.

    All ``records`` are read, those of kinds that are not counted too. What was set aside or has no checksum is for the
    caller to add: it is known afterwards.
    """
    steps, epochs, last = 0, 0, None
    counts: dict[str, int] = {}
    reason = verdict["reason"] if verdict else None
    for kind, found in records.items():
        if kind.counted is not None:
            counts |= {f"{kind.counted}{status}": 0 for status in ("ok", "failed")}
        for launch in found:
            if kind.counted is None:
                continue
            counts[f"{kind.counted}{launch.status}"] += 1
            last = max(last or launch.started_at, launch.started_at)
            if launch.status != "ok":
                reason = reason or launch.reason
            if isinstance(launch, Launch):
                steps += len(step_times(launch, trial.strategy))
            elif isinstance(launch, TrainingRun):
                epochs += len(launch.epochs)
    progress: dict[str, Any] = {
        "trial": trial.id,
        "tuning": trial.tuning,
        **counts,
        "epochs": epochs,
        "steps": steps,
        "last_launch_at": last,
        "reason": reason,
        "unverified": 0,
        "set_aside": [],
    }
    return cast("TrialProgress", progress)
