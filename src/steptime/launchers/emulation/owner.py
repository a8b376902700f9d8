"""The owner of namespaces and control groups: the launch that made them, as their names say."""

import itertools
import os
import re
from dataclasses import dataclass

from steptime.process_identity import pid_namespace, start_ticks

_NAME = re.compile(r"steptime-(?P<namespace>\d+)-(?P<pid>\d+)-(?P<started>\d+)-(?P<number>\d+)(?:-\w+)?", re.ASCII)
_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Owner:
    """One launch of one process, which owns everything that carries its mark."""

    namespace: int
    """The inode number of the process's PID namespace: a container may share the folders of namespaces and groups."""
    pid: int
    started: int
    """When the process started, in ticks since boot: process ids are given again, this pair is not."""
    number: int
    """Of the launch, within the process."""

    @property
    def mark(self) -> str:
        """The name of what there is one of per launch, and the beginning of all other names."""
        return f"steptime-{self.namespace}-{self.pid}-{self.started}-{self.number}"

    def name(self, what: str) -> str:
        """The name of one of several things, as ``steptime-4026531836-7-4711-0-h2``."""
        return f"{self.mark}-{what}"

    @property
    def lives(self) -> bool:
        """Whether the owning process still runs, or cannot be seen from here."""
        return self.namespace != pid_namespace() or start_ticks(self.pid) == self.started


def new_owner() -> Owner:
    """Return the mark of a new launch of this process."""
    pid = os.getpid()
    return Owner(pid_namespace(), pid, start_ticks(pid) or 0, next(_NUMBERS))


def owner_of(name: str) -> Owner | None:
    """Return the owner of what is called ``name``; None for a name that no launch gives."""
    match = _NAME.fullmatch(name)
    return Owner(*(int(match[part]) for part in ("namespace", "pid", "started", "number"))) if match else None
