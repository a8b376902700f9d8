"""Memory and processor time of the process, and pages that it waited for: looked at between steps, ever more seldom."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from .record_file import delayed_ns, now, read_text

if TYPE_CHECKING:
    from .recorder import Recorder

try:
    import resource
except ImportError:  # not on every system
    resource = None  # type: ignore[assignment]

# The distance of two looks: at first, and as a part of the time since the first; every so many look at the system, too.
EVERY_NS, PART, SYSTEM = 750_000_000, 100, 6
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
KIB = 1024
# Of control groups: mount, limit, use, and what of the use can be had back.
GROUPS = (
    ("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
# Of /proc/PID/stat behind the name: processor time of a process and of its awaited children, in ticks.
TIMES = slice(11, 15)
TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
MOST_CHILDREN = 256
# More than any machine has: version 1 of control groups writes a larger number for none.
UNLIMITED = 1 << 60


class MemoryLooks:
    """Writes a line whenever a look is due."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.process = -1
        self.first = self.next = self.looks = 0
        self.groups: list[tuple[str, str, str, str]] = []

    def step_closed(self, number: int) -> None:
        """Look, if it is time."""
        at = now()
        if at < self.next and self.process == self.recorder.file.begin:
            return
        if self.process != self.recorder.file.begin:  # at first, and in a forked child
            self.process, self.first, self.looks = self.recorder.file.begin, at, 0
            self.groups = limited_groups()
        self._write(number, at, system=self.looks % SYSTEM == 0)
        self.looks += 1
        self.next = at + max(EVERY_NS, (at - self.first) // PART)

    def ended(self) -> None:
        """Look for the last time."""
        if self.looks:
            self._write(self.recorder.number, now(), system=True)

    def _write(self, number: int, at: int, *, system: bool) -> None:
        line: dict[str, Any] = {"kind": "memory", "step": number, "at_ns": at}
        line["processor_ns"], line["delayed_ns"] = processor_ns(), delayed_ns()
        words = read_text("/proc/self/statm").split()
        if len(words) > 1:
            line["resident"] = int(words[1]) * PAGE
        if resource is not None:
            used = resource.getrusage(resource.RUSAGE_SELF)
            line["faults"] = used.ru_majflt
        if system:
            status = read_text("/proc/self/status")  # the peak of getrusage is inherited
            line["peak"], line["swapped"] = _kib(status, "VmHWM:"), _kib(status, "VmSwap:")
            available = [_kib(read_text("/proc/meminfo"), "MemAvailable:"), *map(_left, self.groups)]
            line["available"] = min((each for each in available if each is not None), default=None)
            line["devices"] = devices(sys.modules.get("torch"))
        self.recorder.file.write({key: value for key, value in line.items() if value not in (None, {})})


def processor_ns() -> int:
    """Return the processor time so far of this process and its children, such as those of loaders, ended or not."""
    own = os.times()
    return round((sum(own[:4]) + sum(map(_processor_s, _children(os.getpid())))) * 1e9)


def _children(pid: int) -> list[int]:
    """Return the children that the first threads of a process and of its children started; none where unknown."""
    children: list[int] = []
    asked = [pid]
    while asked and len(children) < MOST_CHILDREN:
        parent = asked.pop()
        own = [int(word) for word in read_text(f"/proc/{parent}/task/{parent}/children").split()]
        children += own
        asked += own
    return children


def _processor_s(pid: int) -> float:
    words = read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return sum(map(int, words[TIMES])) / TICKS


def devices(torch: Any) -> dict[str, list[int]]:
    """Return the most bytes that were allocated and reserved on each CUDA device in use, and all that it has."""
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized() or cuda.is_current_stream_capturing():
        return {}
    peaks = {}
    for index in range(cuda.device_count()):
        counts = cuda.memory_stats(index)
        reserved = counts.get("reserved_bytes.all.peak", 0)
        if reserved:
            whole = cuda.get_device_properties(index).total_memory
            peaks[str(index)] = [counts.get("allocated_bytes.all.peak", 0), reserved, whole]
    return peaks


def limited_groups() -> list[tuple[str, str, str, str]]:
    """Return the files of the control groups around this process that have a limit: limit, use, counts, and a key."""
    groups = []
    for line in read_text("/proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number != "0" and "memory" not in controllers.split(","):
            continue
        mount, limit, use, key = GROUPS[number != "0"]
        while True:  # a container may not see its group by this name, but as the mount itself
            folder = mount + path.rstrip("/")
            known = read_text(f"{folder}/{limit}").strip()
            if known.isdigit() and int(known) < UNLIMITED:
                groups.append((f"{folder}/{limit}", f"{folder}/{use}", f"{folder}/memory.stat", key))
            if not path.strip("/"):
                break
            path = path.rpartition("/")[0]
    return groups


def _left(group: tuple[str, str, str, str]) -> int | None:
    """Return what a group may still take, what it can have back included."""
    limit, used = (read_text(path).strip() for path in group[:2])
    if not (limit.isdigit() and used.isdigit()):
        return None
    back = [line.split()[1] for line in read_text(group[2]).splitlines() if line.startswith(group[3] + " ")]
    return max(0, int(limit) - int(used) + (int(back[0]) if back else 0))


def _kib(text: str, name: str) -> int | None:
    for line in text.splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * KIB
    return None


def watch(recorder: Recorder) -> None:
    """Have the memory looked at between steps and at the end."""
    looks = MemoryLooks(recorder)
    recorder.at_step.append(looks.step_closed)
    recorder.at_end.append(looks.ended)
