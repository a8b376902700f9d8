"""The identity of a process: by it a later process knows whether this one still runs, or another has its number now."""

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

_STARTED = 19
"""Index of the start time among the fields of a process's stat file that follow its name."""
_ENDED = ("Z", "X")
_FIELDS = 4


@dataclass(frozen=True)
class ProcessIdentity:
    """A process of any PID namespace and any boot of this machine, as the marks of a launch name its runner."""

    pid: int
    """In its own PID namespace."""
    started: int
    """When the process started, in ticks since boot: process ids are given again, this pair is not."""
    namespace: int
    """The inode number of the PID namespace; the same process id is another process in another namespace."""
    boot: str
    """The boot's identifier, without which ticks since boot mean nothing."""

    @classmethod
    def own(cls) -> Self:
        """Return the identity of this process."""
        pid = os.getpid()
        return cls(pid, start_ticks(pid) or 0, pid_namespace(), _boot())

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the identity that ``str`` wrote; None for any other text, which somebody else may have crafted."""
        fields = text.split(":")
        numbers, boot = fields[:-1], fields[-1]
        if len(fields) != _FIELDS or not boot or not all(each.isascii() and each.isdigit() for each in numbers):
            return None
        try:
            pid, started, namespace = (int(each) for each in numbers)
        except ValueError:  # more digits than Python reads
            return None
        return cls(pid, started, namespace, boot)

    def __str__(self) -> str:
        """Return the four fields, joined by colons."""
        return f"{self.pid}:{self.started}:{self.namespace}:{self.boot}"

    @property
    def has_ended(self) -> bool:
        """Whether the process is known to have ended; False for one that cannot be seen from here."""
        own = self.own()
        seen_from_here = (self.namespace, self.boot) == (own.namespace, own.boot)
        return seen_from_here and start_ticks(self.pid) != self.started


def start_ticks(pid: int) -> int | None:
    """Return when a process of this PID namespace started, in ticks since boot; None if no such process runs.

    A zombie has ended; where process 1 reaps nothing, it stays.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return None if fields[0] in _ENDED else int(fields[_STARTED])
    except (OSError, ValueError, IndexError):
        return None


def pid_namespace(pid: int | None = None) -> int:
    """Return the inode number of a process's PID namespace, by default this process's; 0 where it cannot be read."""
    try:
        return Path(f"/proc/{pid or 'self'}/ns/pid").stat().st_ino
    except OSError:
        return 0


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"
