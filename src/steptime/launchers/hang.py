"""The cause of a hang: which process of a launch keeps the others waiting, as far as the system and its records show.

A launch that reaches its time limit has processes that wait for each other, and one that they all wait for. That is,
in this order of certainty: a process that a signal or a debugger has stopped; one that waits for a disk that does not
answer; a worker whose records end before those of the others. If none of these helps, it is only reported which
processes compute and which wait.
"""

import contextlib
import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil

from steptime.worker.tether import last_line

_WIDEST = 300
"""Characters of a line that are quoted."""
_MOST_LINES = 3
_SAMPLE_S = 0.2
_BUSY = 0.25
"""Of a core, during the sample: a process that only waits takes less."""
_KINDS = ("process", "session", "warmup", "steps", "check", "ablation", "net", "done")
_REACHED = {"process": "its start", "session": "the opening of its session", "warmup": "its warm-up"}


def last_words(folder: Path) -> str | None:
    """Return the last line of standard error of each process of a launch, the first few of those that differ.

    None if none of them wrote any.
    """
    writers: dict[str, list[str]] = {}
    for path in sorted(folder.glob("*.err")):
        writers.setdefault(last_line(str(path))[:_WIDEST], []).append(path.stem)
    writers.pop("", None)
    shown = list(writers.items())[:_MOST_LINES]
    return "; ".join(f"last line of {', '.join(names)}: {line}" for line, names in shown) or None


def cause_of_hang(running: Mapping[str, int], folder: Path, *, here: bool = True) -> str | None:
    """Say which of the processes that still run keeps the launch from its end; None if unknown.

    Args:
        running: process numbers by name; those of workers that an mpiexec started are in their records.
        folder: the run folder, with the records of all processes.
        here: whether the processes run on this host; of others only their records tell something.
    """
    records = _records(folder)
    if not here:
        return _least_advanced(sorted({*running, *records}), records)
    below = _below(running.values())
    told = {name: kinds["process"] for name, kinds in records.items() if kinds.get("process") in below}
    numbers = {**running, **told}
    states = {name: status for name, number in numbers.items() if (status := _status(number))}
    for status, what in (
        (psutil.STATUS_STOPPED, "is stopped by a signal"),
        (psutil.STATUS_TRACING_STOP, "is stopped by a debugger"),
        (psutil.STATUS_DISK_SLEEP, "waits for a disk"),
    ):
        found = [name for name, each in states.items() if each == status]
        if found:
            return f"{', '.join(sorted(found))} {what}"
    return _least_advanced(sorted(states), records) or _activity({name: numbers[name] for name in sorted(states)})


def _below(running: Iterable[int]) -> set[int]:
    """Return the numbers of processes and of all below them: a container may give its processes other numbers."""
    found = set(running)
    for number in running:
        with contextlib.suppress(psutil.Error):
            found |= {each.pid for each in psutil.Process(number).children(recursive=True)}
    return found


def _records(folder: Path) -> dict[str, dict[str, int]]:
    """Return the kinds of the records that each process has written, with the process number if it has one."""
    found: dict[str, dict[str, int]] = {}
    for path in folder.glob("*.jsonl"):
        try:
            lines = [json.loads(line) for line in path.read_text(errors="replace").splitlines()]
            found[path.stem] = {str(line["kind"]): int(line.get("pid", 0)) for line in lines}
        except (OSError, ValueError, TypeError, KeyError, AttributeError):  # a half-written line
            continue
    return found


def _status(number: int) -> str | None:
    try:
        status: str = psutil.Process(number).status()
    except psutil.Error:
        return None
    return None if status == psutil.STATUS_ZOMBIE else status


def _least_advanced(names: list[str], records: Mapping[str, Mapping[str, int]]) -> str | None:
    workers = [name for name in names if name.startswith("worker")]
    reached = {
        name: max((_KINDS.index(kind) for kind in records.get(name, {}) if kind in _KINDS), default=-1)
        for name in workers
    }
    behind = [name for name in workers if reached[name] == min(reached.values())]
    if len(behind) == len(workers):
        return None
    kind = _KINDS[reached[behind[0]]] if reached[behind[0]] >= 0 else None
    where = "has recorded nothing" if kind is None else f"got no further than {_REACHED.get(kind, kind)}"
    return f"{', '.join(behind)} {where}, the others did"


def _activity(numbers: Mapping[str, int]) -> str | None:
    before = {name: _cpu_s(number) for name, number in numbers.items()}
    time.sleep(_SAMPLE_S)
    shares = {name: (_cpu_s(number) - before[name]) / _SAMPLE_S for name, number in numbers.items()}
    busy = [name for name, share in shares.items() if share > _BUSY]
    waiting = [name for name in shares if name not in busy]
    return f"{', '.join(busy)} computing, {', '.join(waiting)} waiting" if busy and waiting else None


def _cpu_s(number: int) -> float:
    try:
        times = psutil.Process(number).cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)
