"""The record of one process: JSON lines, a file that is opened when there is something to say."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

FORMAT = 1
HELD_LINES = 64
# A file may grow to this and then by so much a second: 200 MB in ten hours.
FREE_BYTES = 2_000_000
BYTES_PER_SECOND = 5_000
READ_AT_ONCE = 1 << 14
ENVIRONMENT = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "SLURM_PROCID",
    "SLURM_STEP_ID",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "PMIX_RANK",
    "HOROVOD_RANK",
    "SLURM_NTASKS",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "HOROVOD_SIZE",
    "MASTER_PORT",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_RUN_ID",
)

_CONTROLLER = "cpu"
_MOUNTS = ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup")
_THROTTLED = {"throttled_time": 1, "throttled_usec": 1000}

now = time.monotonic_ns
# One for all lines: `json.dumps` would make an encoder for each.
encoded = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class ProcessRecord:
    """The file of this process in ``folder``; ``entry`` is how the hook came into the process."""

    def __init__(self, folder: str, entry: str) -> None:
        self.folder = folder
        self.entry = entry
        self.begin = now()
        self.begin_again()

    def begin_again(self) -> None:
        """Forget the file: a forked child writes its own."""
        self.pid = os.getpid()
        self.path = ""
        self.descriptor = -1
        self.identity = (0, 0)
        self.held: list[str] = []
        self.written = 0
        self.lost = 0
        self.ahead: Callable[[], object] | None = None  # writes what waits, which goes before any other line
        self.cut = self.closed = False  # whether the last line was, and whether no line may follow

    def forked(self) -> None:
        """Begin anew in a forked child, whose record is another."""
        if self.descriptor >= 0 and self._is_mine():
            os.close(self.descriptor)
        self.entry = self.entry.split("+")[0] + "+fork"
        self.begin = now()
        self.begin_again()

    def write(self, line: dict[str, Any], *, opens: bool = True) -> int:
        """Append ``line``, and return its bytes; one that does not open the file is held until another does."""
        if self.ahead is not None:
            self.ahead()
        return self.write_text(encoded(line), opens=opens)

    def write_text(self, text: str, *, opens: bool = True) -> int:
        """Append lines that are JSON already."""
        if self.closed:
            return 0
        if not self.path and not opens:
            if len(self.held) < HELD_LINES:
                self.held.append(text)
            return 0
        data, written = b"", self.written
        try:
            if not self.path:
                text = self._open(text)
            elif not self._is_mine():
                # A script may close what it did not open; another file of its own may then have our number.
                self.descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            data = (("\n" if self.cut else "") + text + "\n").encode()
            while data:
                count = os.write(self.descriptor, data)
                self.written += count
                data = data[count:]
                self.cut = bool(data)
        except OSError:
            self.lost += data.count(b"\n") or text.count("\n") + 1
        return self.written - written

    def affords(self, size: int) -> bool:
        """Return whether ``size`` more bytes are within the limit of a file that is as old as this one."""
        return self.written + size <= FREE_BYTES + (now() - self.begin) * BYTES_PER_SECOND // 1_000_000_000

    def _open(self, text: str) -> str:
        os.makedirs(self.folder, exist_ok=True)
        path = os.path.join(self.folder, f"{socket.gethostname()}-{self.pid}-{self.begin}.jsonl")
        self.descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        status = os.fstat(self.descriptor)
        self.identity = (status.st_dev, status.st_ino)
        self.path = path
        head = encoded(self._head())
        lines, self.held = [head, *self.held, text], []
        return "\n".join(lines)

    def _is_mine(self) -> bool:
        try:
            status = os.fstat(self.descriptor)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self.identity

    def _head(self) -> dict[str, Any]:
        return {
            "kind": "process",
            "format": FORMAT,
            "host": socket.gethostname(),
            "boot": boot_id(),
            "pid": self.pid,
            "parent": os.getppid(),
            "begin_ns": self.begin,
            "clock": {"wall_ns": time.time_ns(), "monotonic_ns": now()},
            "entry": self.entry,
            "python": sys.version.split()[0],
            "program": [str(argument)[:500] for argument in getattr(sys, "argv", [])[:8]],
            "environment": {name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
            "niceness": niceness(),
        }


def niceness() -> int:
    """Return how far others come before this process: 0 unless it was asked for, at most 19; 0 if unknown."""
    try:
        return os.getpriority(os.PRIO_PROCESS, 0)
    except (AttributeError, OSError):  # not on every system
        return 0


def boot_id() -> str | None:
    """Return the kernel's name for the time since it was started, or None if it has none.

    In a time namespace, whose monotonic clock is another one (time_namespaces(7)), the distance goes with it.
    """
    started = read_text("/proc/sys/kernel/random/boot_id").strip()
    offsets = dict(line.split(None, 1) for line in read_text("/proc/self/timens_offsets").splitlines() if " " in line)
    ahead = offsets.get("monotonic", "").split()
    return f"{started}+{'.'.join(ahead)}" if started and any(map(_differs, ahead)) else started or None


def _differs(number: str) -> bool:
    return number.strip("-0") != ""


class ProcessorUse:
    """How much of the processor this process had, and how long others kept its first thread from running."""

    def __init__(self) -> None:
        self._delayed, self._throttled = delayed_ns(), _throttled_ns()

    def to_line(self) -> dict[str, int]:
        """Return keys of the line ``end``; without the delay where the kernel does not count it."""
        found = {"processor_ns": round(sum(os.times()[:4]) * 1e9)}
        delayed = delayed_ns()
        if delayed is not None and self._delayed is not None:
            # A task whose group has used up its quota waits in its queue like any other (kernel/sched/fair.c).
            held_back = _throttled_ns() - self._throttled
            found["delayed_ns"] = max(0, delayed - self._delayed - held_back)
        return found


def delayed_ns() -> int | None:
    """Return for how long the first thread could have run and did not (Documentation/scheduler/sched-stats.rst)."""
    words = read_text("/proc/self/schedstat").split()
    return int(words[1]) if len(words) > 1 else None


def _throttled_ns() -> int:
    """Return for how long the quota of this process's control group has held it back; 0 where that is not known."""
    for line in read_text("/proc/self/cgroup").splitlines():
        number, controllers, group = line.split(":", 2)
        if number == "0" or _CONTROLLER in controllers.split(","):
            for mount in _MOUNTS:
                for each in read_text(f"{mount}{group}/cpu.stat").splitlines():
                    name, _, value = each.partition(" ")
                    if name in _THROTTLED:
                        return int(value) * _THROTTLED[name]
    return 0


def read_text(path: str) -> str:
    """Return what a file of the system holds; "" where there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # `open` makes three objects, for twice the time
    except OSError:
        return ""
    parts = []
    try:
        while part := os.read(descriptor, READ_AT_ONCE):
            parts.append(part)
    except OSError:
        return ""
    finally:
        os.close(descriptor)
    return b"".join(parts).decode("utf-8", "replace")
