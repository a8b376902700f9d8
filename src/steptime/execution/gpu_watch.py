"""What the GPUs of this host do while a user's command runs, read by a thread of steptime's own process.

Nothing of it runs in the user's processes, and no failure of it reaches the command.
"""

import json
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from steptime.errors import error_line
from steptime.plain_file import PlainFolder
from steptime.results.gpu_windows import OTHER, OWN, UNSEEN, WRITTEN, GpuProcess, GpuWindow, NoGpus
from steptime.results.gpus import GpuState, gpu_states, throttle_causes, why_no_gpus

_EVERY_S = 0.5
_SHORTEST_S, _PART = 2.0, 100
"""A stretch lasts so long, or this part of the run so far if that is longer."""
_ENDS_WITHIN_S = 2.0
"""The thread that reads is waited for, and then left to the driver that holds it."""
_LONGEST_REASON = 400
_MOST_LIMITS = 2.0
"""A counter of energy by which a GPU took so many times its limit was set anew."""
_NOT_OTHERS = ("nvidia-cuda-mps",)
"""Begins of names of processes through which others share a GPU."""


@dataclass
class _LooksAtGpu:
    """The looks at one GPU since the last line about it."""

    begin_ns: int
    """When the first state was read."""
    first: GpuState
    states: list[GpuState] = field(default_factory=list)
    last_ns: int = 0
    """When the last one was, to which its counter of energy counts."""


class GpuWatch:
    """Reads the GPUs that this process sees, from the first beat of a command on, and writes lines about them."""

    def __init__(
        self, folder: PlainFolder, place: Path, boot: str, is_own: Callable[[int, int], bool], every_s: float = _EVERY_S
    ) -> None:
        """Take where the lines go.

        Args:
            folder: that may be written to.
            place: in it, with the records of processes.
            boot: of this host.
            is_own: whether the command, by its process id, has started a process, by its own.
            every_s: seconds between two looks.
        """
        self._folder, self._is_own, self._every_s = folder, is_own, every_s
        self._host, self._boot = socket.gethostname(), boot
        self._path = place / f"{WRITTEN}{self._host}-{os.getpid()}.txt"
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._whose: dict[int, tuple[str, str]] = {}
        self.problem: str | None = None
        """Why the lines are not all there, once the reading has ended; the disk was full, or the folder gone."""

    def look(self, process: int) -> None:
        """Begin with the first beat, when the command is ``process``; a thread of before would take its signals."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, args=(process,), daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Read no more, and write what is left."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(_ENDS_WITHIN_S)

    def _watch(self, command: int) -> None:
        try:
            reason = why_no_gpus()
            if reason is None:
                self._read(command)
        except Exception as error:  # noqa: BLE001 - the command goes on
            reason = f"GPUs were not read to the end: {error_line(error)}"
        if reason is None:
            return
        try:
            self._write([asdict(NoGpus(self._host, self._boot, reason[:_LONGEST_REASON]))])
        except Exception as error:  # noqa: BLE001 - likewise
            self.problem = f"what the GPUs did is not on record to the end: {error_line(error)}"

    def _read(self, command: int) -> None:
        began = time.monotonic()
        stretches: dict[int, _LooksAtGpu] = {}
        written = began
        while not self._over.wait(self._every_s):
            at = time.monotonic()
            for place, state in enumerate(gpu_states()):
                now_ns = time.monotonic_ns()
                stretch = stretches.setdefault(place, _LooksAtGpu(now_ns, state))
                stretch.states.append(state)
                stretch.last_ns = now_ns
                self._learn_whose(state, command)
            if at - written >= max(_SHORTEST_S, (at - began) / _PART):
                self._write_stretches(stretches)
                written = at
        self._write_stretches(stretches)

    def _learn_whose(self, state: GpuState, command: int) -> None:
        for pid in (state.process_bytes or {}).keys() - self._whose.keys():
            self._whose[pid] = self._whose_is(pid, command)

    def _whose_is(self, pid: int, command: int) -> tuple[str, str]:
        """Return whose a process is, and its name."""
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:  # it ended, or the driver numbers processes as another namespace does
            return UNSEEN, ""
        return OWN if self._is_own(command, pid) else OTHER, name

    def _write_stretches(self, stretches: dict[int, _LooksAtGpu]) -> None:
        """Write a line for each GPU, whose next stretch begins with the last look of this one."""
        now_ns = time.monotonic_ns()
        lines = []
        for place, stretch in stretches.items():
            if stretch.states:
                lines.append(asdict(self._window(place, stretch, now_ns)))
                stretches[place] = _LooksAtGpu(stretch.last_ns, stretch.states[-1])
        self._write(lines)

    def _window(self, place: int, stretch: _LooksAtGpu, end_ns: int) -> GpuWindow:
        states, last = stretch.states, stretch.states[-1]
        reasons = [state.throttle_reasons for state in states if state.throttle_reasons is not None]
        causes = [throttle_causes(each) for each in reasons]
        return GpuWindow(
            host=self._host,
            boot=self._boot,
            begin_ns=stretch.begin_ns,
            end_ns=end_ns,
            index=place if last.index is None else last.index,
            looks=len(states),
            name=last.name,
            uuid=last.uuid,
            busy=_mean([state.busy_share for state in states]),
            power_w=_power(stretch, (stretch.last_ns - stretch.begin_ns) * 1e-9),
            limit_w=last.power_limit_w,
            sm_hz=_mean([state.sm_hz for state in states]),
            highest_sm_hz=last.highest_sm_hz,
            held_looks=sum(map(bool, causes)) if reasons else None,
            held_by=dict(Counter(cause for each in causes for cause in each)),
            used=max((round(state.memory_used_bytes) for state in states if state.memory_used_bytes), default=None),
            memory=None if last.memory_bytes is None else round(last.memory_bytes),
            processes=self._processes(states),
        )

    def _processes(self, states: Sequence[GpuState]) -> list[GpuProcess] | None:
        listed = [state.process_bytes for state in states if state.process_bytes is not None]
        if not listed:
            return None
        processes = []
        for pid in dict.fromkeys(pid for each in listed for pid in each):
            whose, name = self._whose[pid]
            known = [size for each in listed if (size := each.get(pid)) is not None]
            looks = sum(pid in each for each in listed)
            if not name.startswith(_NOT_OTHERS):
                processes.append(GpuProcess(pid, whose, name, max(known, default=None), looks))
        return processes

    def _write(self, lines: Sequence[dict[str, Any]]) -> None:
        if lines:
            text = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
            descriptor = self._folder.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(descriptor, text)
            finally:
                os.close(descriptor)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean(known) if known else None


def _power(stretch: _LooksAtGpu, seconds: float) -> float | None:
    """Return the mean power of a stretch, by the counter of energy if it has one and was not set back meanwhile."""
    first, last = stretch.first.energy_j, stretch.states[-1].energy_j
    sampled = _mean([state.power_w for state in stretch.states])
    if first is None or last is None or len(stretch.states) == 1 or seconds <= 0.0:
        return sampled
    counted, limit = (last - first) / seconds, stretch.states[-1].power_limit_w
    is_plausible = counted >= 0.0 and (limit is None or counted <= _MOST_LIMITS * limit)
    return counted if is_plausible else sampled
