"""Control groups: one per emulated host, under a parent whose share of the processor others' work cannot take.

The owner of namespaces and control groups: the launch that made them, as their names say.
"""

import contextlib
import itertools
import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from steptime.errors import LaunchError
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


PERIOD_US = 10_000
"""Of a quota: short against the step of a host that is meant to be slow."""
_GONE_S = 5.0
_LARGEST = {1: ("cpu.shares", "262144"), 2: ("cpu.weight", "10000")}


@dataclass(frozen=True)
class Throttling:
    """How a quota held a host back."""

    seconds: float
    throttled: int
    """Periods whose quota was used up."""
    periods: int
    """In which the host ran at all."""


@dataclass(frozen=True)
class Groups:
    """Where control groups of the processor are made, and by which version's rules."""

    version: int
    root: Path

    @property
    def words(self) -> str:
        """As records call it."""
        return f"cgroup v{self.version}"

    def make(self, owner: Owner, quotas: list[float | None]) -> list[Path]:
        """Make a group for each host and return their folders.

        Args:
            owner: whose they are.
            quotas: for each host how many cores' worth of time it may use; None for all that there is.

        Raises LaunchError when the kernel refuses something.
        """
        parent = self.root / owner.mark
        folders = [parent / f"h{index}" for index in range(len(quotas))]
        try:
            parent.mkdir()
            name, most = _LARGEST[self.version]
            (parent / name).write_text(most)
            if self.version == 2:  # noqa: PLR2004 - the version's number
                (parent / "cgroup.subtree_control").write_text("+cpu")
            for folder, quota in zip(folders, quotas, strict=True):
                folder.mkdir()
                if quota is not None:
                    self._limit(folder, round(quota * PERIOD_US))
        except OSError as error:
            message = f"no control groups could be made in {self.root}: {error.strerror} ({error.filename})"
            raise LaunchError(message) from error
        return folders

    def _limit(self, folder: Path, quota_us: int) -> None:
        if self.version == 1:
            (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (folder / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            (folder / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")

    def quota_of(self, folder: Path) -> float | None:
        """Read back how many cores' worth of time a group may use; None if it has no limit."""
        if self.version == 1:
            quota, period = ((folder / name).read_text() for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
        else:
            quota, period = (folder / "cpu.max").read_text().split()
        return None if quota.strip() in ("-1", "max") else int(quota) / int(period)

    def is_favoured(self, owner: Owner) -> bool:
        """Read back whether the parent of the hosts' groups has the largest share that there is."""
        name, most = _LARGEST[self.version]
        return (self.root / owner.mark / name).read_text().strip() == most

    def throttling(self, folder: Path) -> "Throttling":
        """Return how often and for how long the quota has held a host back."""
        lines = (line.split() for line in (folder / "cpu.stat").read_text().splitlines())
        stat = {name: int(value) for name, value in lines}
        seconds = stat.get("throttled_time", 0) / 1e9 if self.version == 1 else stat.get("throttled_usec", 0) / 1e6
        return Throttling(seconds, stat.get("nr_throttled", 0), stat.get("nr_periods", 0))

    def owners(self) -> Iterator[Owner]:
        """Yield whose groups are here."""
        for folder in self.root.glob("steptime-*"):
            owner = owner_of(folder.name)
            if owner:
                yield owner

    def remove(self, owner: Owner) -> None:
        """Kill what runs in the groups of ``owner``, and remove them."""
        parent = self.root / owner.mark
        for folder in [*parent.glob("h*/"), parent]:
            _empty(folder)


def find_groups() -> Groups | None:
    """Return where control groups of the processor can be made; None if the machine has none for us."""
    for version, root in _candidates():
        if os.access(root, os.W_OK):
            return Groups(version, root)
    return None


def _candidates() -> Iterator[tuple[int, Path]]:
    mine = _own_groups()
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, kind, options, *_ = line.split()
        if kind == "cgroup" and "cpu" in options.split(","):
            # Within the group that this process is in, whose limits were set for it.
            root = Path(mount + mine.get("cpu", "/"))
            yield 1, root if root.is_dir() else Path(mount)
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, kind, *_ = line.split()
        if kind == "cgroup2" and _has_cpu(Path(mount)):
            yield 2, Path(mount)


def _own_groups() -> dict[str, str]:
    rows = (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())
    return {name: path for _, names, path in rows for name in names.split(",")}


def _has_cpu(root: Path) -> bool:
    """Whether groups below the root can have the processor's controller, after it was asked for if need be."""
    with contextlib.suppress(OSError):
        if "cpu" not in (root / "cgroup.subtree_control").read_text().split():
            (root / "cgroup.subtree_control").write_text("+cpu")
        return "cpu" in (root / "cgroup.subtree_control").read_text().split()
    return False


def _empty(folder: Path) -> None:
    deadline = time.monotonic() + _GONE_S
    while folder.exists():
        with contextlib.suppress(OSError):
            for pid in (folder / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        with contextlib.suppress(OSError):
            folder.rmdir()
            return
        if time.monotonic() > deadline:
            return  # a process that even SIGKILL does not end yet; the next start tries again
        time.sleep(0.01)
