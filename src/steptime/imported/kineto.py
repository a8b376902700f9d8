"""Traces of PyTorch's profiler (Kineto): which of their events compute, communicate, and mark steps and passes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
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
_LAUNCHES = frozenset(("cuda_runtime", "cuda_driver", "hip_runtime"))
_MARKED = frozenset(("user_annotation", "cpu_op"))  # older traces have both as the latter
_KINDS = frozenset((*_GPU, *_LAUNCHES, *_MARKED, "gpu_user_annotation"))
_COLLECTIVES = frozenset(("communicate", "processor communicates"))
_MOST_ROLES = 100_000
_NUMBERS = frozenset((int, float))
_LATEST_US = 1e16
"""Older traces count from 1970."""


@dataclass
class _ReadTrace(TraceParts):
    """What was read of a trace."""

    roles: dict[tuple[str, str], str] = field(default_factory=dict)
    """By kind and name of events, since both repeat."""

    def take(self, event: Any) -> None:  # noqa: ANN401 - whatever a file has
        """Keep what counts of an event."""
        if not isinstance(event, dict) or event.get("ph") != "X":
            return
        kind, begin, lasted, name = event.get("cat"), event.get("ts"), event.get("dur"), event.get("name")
        if not (isinstance(kind, str) and kind in _KINDS and isinstance(name, str)):
            return
        if not _is_time(begin) or not _is_time(lasted) or lasted < 0:
            return
        about = event.get("args")
        self._take_interval(kind, name, begin, begin + lasted, about if isinstance(about, dict) else {})

    def _take_interval(self, kind: str, name: str, begin: float, end: float, about: Mapping[str, Any]) -> None:
        if kind in _LAUNCHES:
            if _is_time(number := about.get("correlation")):
                self.launches.extend((number, begin))
            return
        if kind in _MARKED and name.startswith("ProfilerStep#") and (known := _STEP.match(name)):
            self.steps[int(known[1])] = (begin, end)
            return
        role = self._role_of_name(kind, name)
        if role:
            self.add(role, begin, end)
        if role in _COLLECTIVES:
            self.collectives.setdefault(role, TracedCollectives()).add(name, begin, end, about)
        elif kind == "cpu_op":
            self._take_pass(name, begin, end, about)
        if kind in _GPU and _is_time(number := about.get("correlation")):
            self.kernels.extend((number, begin, end, role == "compute"))

    def _role_of_name(self, kind: str, name: str) -> str:
        role = self.roles.get((kind, name))
        if role is None:
            role = _role(kind, name)
            if len(self.roles) < _MOST_ROLES:
                self.roles[kind, name] = role
        return role

    def _take_pass(self, name: str, begin: float, end: float, about: Mapping[str, Any]) -> None:
        """Keep of which pass an operation is: autograd's functions name the thread of the forward pass."""
        backward = name.startswith(AUTOGRAD) or about.get("Fwd thread id")
        if backward or "Sequence number" in about:
            self.add("processor backward" if backward else "processor forward", begin, end)


def _role(kind: str, name: str) -> str:
    """Return the set that events of a name belong to; nothing for those that do not count."""
    if kind in _GPU:
        return "communicate" if kind == "kernel" and COMMUNICATES.search(name) else _GPU[kind]
    if kind == "gpu_user_annotation":
        return "update" if name.startswith(OPTIMIZER) else ""
    if COMMUNICATES.match(name):
        return "processor communicates"
    marked = next((role for start, role in MARKS.items() if name.startswith(start)), None)
    return marked if marked is not None else "operation" if kind == "cpu_op" else ""


def _is_time(value: Any) -> TypeIs[float]:  # noqa: ANN401 - whatever a file has
    return type(value) in _NUMBERS and -_LATEST_US < value < _LATEST_US


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
