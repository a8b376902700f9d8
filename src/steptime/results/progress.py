"""How far a study is: the launches of each trial, counted from its records, and what its latest run reports.

Of the counts nothing is kept between two calls: a cache would be one more file of somebody else to be wary of.
"""

import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from steptime.errors import StoreError
from steptime.plain_file import PlainFolder
from steptime.process_identity import ProcessIdentity
from steptime.results.jsonlines import json_text
from steptime.results.stored_record import STRICT

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
    def who(self) -> str:
        """The process of the run, with its host and job."""
        return f"process {self.pid} on {self.host}{f', Slurm job {self.job}' if self.job else ''}"

    @property
    def killed_in_words(self) -> str:
        """What became of a run that was killed, and how to go on."""
        return f"{self.who} was killed; rerun steptime run to continue"

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
