"""Traces of PyTorch's profiler (Kineto): which of their events compute, communicate, and mark steps and passes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from typing_extensions import TypeIs

from steptime.errors import UsageError
from steptime.imported.imported_run import LARGEST_STEP, ImportedSource, ImportedSteps
from steptime.imported.source import LIMITS, ReadLimits, open_source
from steptime.imported.trace_steps import AUTOGRAD, COMMUNICATES, MARKS, OPTIMIZER, TraceParts, divided_steps
from steptime.imported.trace_stream import TraceStream
from steptime.imported.transfers import TracedCollectives

_STEP = re.compile(r"ProfilerStep#(\d{1,9})$")
_RANK = re.compile(r"rank[-_.]?(\d{1,6})", re.IGNORECASE)
_GPU = {"kernel": "compute", "gpu_memcpy": "copy", "gpu_memset": "copy"}
_LAUNCHES = ("cuda_runtime", "cuda_driver", "hip_runtime")
_LATEST_US = 1e16
"""Older traces count from 1970."""


@dataclass
class _ReadTrace(TraceParts):
    """What was read of a trace."""

    def take(self, event: Any) -> None:  # noqa: ANN401 - whatever a file has
        """Keep what counts of an event."""
        if not isinstance(event, dict) or event.get("ph") != "X":
            return
        begin, lasted, name, kind = (event.get(key) for key in ("ts", "dur", "name", "cat"))
        if not _is_time(begin) or not _is_time(lasted) or not isinstance(name, str) or lasted < 0:
            return
        about = event.get("args")
        about = about if isinstance(about, dict) else {}
        role = self._role(str(kind), name, begin, begin + lasted)
        if role:
            self.add(role, begin, begin + lasted)
        if role in {"communicate", "processor communicates"}:
            self.collectives.setdefault(role, TracedCollectives()).add(name, begin, begin + lasted, about)
        elif kind == "cpu_op":
            self._take_pass(name, begin, begin + lasted, about)
        if (kind in _GPU or kind in _LAUNCHES) and _is_time(number := about.get("correlation")):
            if kind in _GPU:
                self.kernels.extend((number, begin, begin + lasted, role == "compute"))
            else:
                self.launches.extend((number, begin))

    def _take_pass(self, name: str, begin: float, end: float, about: Mapping[str, Any]) -> None:
        """Keep of which pass an operation is: autograd's functions name the thread of the forward pass."""
        backward = name.startswith(AUTOGRAD) or about.get("Fwd thread id")
        if backward or "Sequence number" in about:
            of_pass = f"processor {'backward' if backward else 'forward'}"
            self.add(of_pass, begin, end)

    def _role(self, kind: str, name: str, begin: float, end: float) -> str:
        """Return the set that an event belongs to; nothing for one that does not count."""
        if kind in _GPU:
            return "communicate" if kind == "kernel" and COMMUNICATES.search(name) else _GPU[kind]
        if kind == "gpu_user_annotation":
            return "update" if name.startswith(OPTIMIZER) else ""
        if kind not in {"user_annotation", "cpu_op"}:  # older traces have both as the latter
            return ""
        if known := _STEP.match(name):
            self.steps[int(known[1])] = (begin, end)
            return ""
        if COMMUNICATES.match(name):
            return "processor communicates"
        marked = next((role for start, role in MARKS.items() if name.startswith(start)), None)
        return marked if marked is not None else "operation" if kind == "cpu_op" else ""


def _is_time(value: Any) -> TypeIs[float]:  # noqa: ANN401 - whatever a file has
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and isfinite(value)
        and abs(value) < _LATEST_US
    )  # fmt: skip


def read_kineto(path: Path, limits: ReadLimits = LIMITS) -> ImportedSource:
    """Return the steps of a trace.

    Raises FileError where the file cannot be read, and UsageError where it has no step.
    """
    read = _ReadTrace()
    with open_source(path, limits) as source:
        stream = TraceStream(source)
        for batch in stream.batches():
            for event in batch:
                read.take(event)
    divided = divided_steps(read, stream.info.get("baseTimeNanoseconds"))
    if divided is None:
        message = f"{path} has neither a step (ProfilerStep#) nor an optimizer's step; call profiler.step() in the loop"
        raise UsageError(message)
    rank, workers, by = _place(stream.info, path)
    steps = ImportedSteps(divided.lines, rank, workers, by, unseen=divided.unseen, trace=divided.trace)
    return ImportedSource(
        path,
        "kineto",
        [steps],
        {"step_s": "ProfilerStep#" if read.steps else "ends of optimizers' steps", "parts": "unions of intervals"},
        {"hidden_communication_s": divided.hidden_s},
        {} if workers else {"workers": f"{path.name} has no world_size in a distributedInfo"},
    )


def _place(info: Mapping[str, Any], path: Path) -> tuple[int, int | None, str]:
    about = info.get("distributedInfo")
    about = about if isinstance(about, dict) else {}
    named = _RANK.search(path.name)
    rank, world = about.get("rank", int(named[1]) if named else 0), about.get("world_size")
    workers = world if isinstance(world, int) and 0 < world <= LARGEST_STEP else None
    if not isinstance(rank, int) or not 0 <= rank < (workers or LARGEST_STEP):
        message = f"{path}: rank {rank!r} of {world!r} in its distributedInfo cannot be"
        raise UsageError(message)
    return rank, workers, f"torch.distributed/{about['backend']}" if isinstance(about.get("backend"), str) else ""
