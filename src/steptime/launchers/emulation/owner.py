"""The owner of namespaces and control groups: the launch that made them, as their names say."""

import itertools
import os
import re
from dataclasses import dataclass
from pathlib import Path

_NAME = re.compile(r"steptime-(?P<pid>\d+)-(?P<started>\d+)-(?P<number>\d+)(?:-\w+)?")
_NUMBERS = itertools.count()
_STARTED = 19
"""Index of the start time among the fields of a process's stat file that follow its name."""


@dataclass(frozen=True)
class Owner:
    """One launch of one process, which owns everything that carries its mark."""

    pid: int
    started: int
    """When the process started, in ticks since boot: process ids are given again, this pair is not."""
    number: int
    """Of the launch, within the process."""

    @property
    def mark(self) -> str:
        """The name of what there is one of per launch, and the beginning of all other names."""
        return f"steptime-{self.pid}-{self.started}-{self.number}"

    def name(self, what: str) -> str:
        """The name of one of several things, as ``steptime-7-4711-0-h2``."""
        return f"{self.mark}-{what}"

    @property
    def lives(self) -> bool:
        """Whether the owning process still exists."""
        return _start_of(self.pid) == self.started


def new_owner() -> Owner:
    """Return the mark of a new launch of this process."""
    pid = os.getpid()
    return Owner(pid, _start_of(pid) or 0, next(_NUMBERS))


def owner_of(name: str) -> Owner | None:
    """Return the owner of what is called ``name``; None for a name that no launch gives."""
    match = _NAME.fullmatch(name)
    return Owner(*(int(match[part]) for part in ("pid", "started", "number"))) if match else None


def _start_of(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[_STARTED])
