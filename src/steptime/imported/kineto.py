"""Traces of PyTorch's profiler (Kineto) as steps, divided by the union of intervals on the device.

The time of a step on a device is what computes, then what communicates and is not covered by that, then copies, then
what waits for input; the rest is idle. Of a trace of processors alone the operations compute, and waiting for input
comes first, since it holds operations of its own. Kernels come behind their launch: a step's window on the device is
its window on the processor, as much later as its first kernel is.

What computes is of the pass in which it was launched: of the optimizer's step, of autograd's functions, or of a forward
pass: marked as one, or an operation with the number by which autograd finds it again.
"""

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeIs

from steptime.errors import UsageError
from steptime.imported.imported_run import LARGEST_STEP, ImportedSource, ImportedSteps
from steptime.imported.intervals import Intervals, common, difference, length, union, within
from steptime.imported.source import LIMITS, ReadLimits, open_source
from steptime.imported.trace_stream import TraceStream
from steptime.imported.transfers import RankTrace, TracedCollectives
from steptime.results.attached_lines import StepLine

_STEP = re.compile(r"ProfilerStep#(\d{1,9})$")
_RANK = re.compile(r"rank[-_.]?(\d{1,6})", re.IGNORECASE)
_COMMUNICATES = re.compile(r"nccl|rccl|gloo:|mpi:|ucc:|oneccl|hccl", re.IGNORECASE)
_OPTIMIZER = "Optimizer.step#"
_AUTOGRAD = "autograd::engine::evaluate_function"
_MARKS = {
    _OPTIMIZER: "processor update",
    "enumerate(DataLoader)": "input",
    "## backward ##": "processor backward",
    "## forward ##": "processor forward",
    "DistributedDataParallel.forward": "processor forward",
    "FullyShardedDataParallel.forward": "processor forward",
    **dict.fromkeys(("##", "c10d::", "record_param_comms", "DistributedDataParallel."), ""),
}
"""By how its name begins, the set of what does not operate: marks around others, and what starts a collective."""
_GPU = {"kernel": "compute", "gpu_memcpy": "copy", "gpu_memset": "copy"}
_LAUNCHES = ("cuda_runtime", "cuda_driver", "hip_runtime")
_LATEST_US, _LATEST_NS = 1e16, 1 << 62
"""Older traces count from 1970."""
_PASSES = ("update", "backward", "forward")
"""In this order: what is launched in several is of the first."""
_UNMARKED = {
    "input_wait": "the trace marks no DataLoader",
    "forward": "the trace shows no forward pass: neither a mark nor operations with autograd's numbers",
    "backward": "the trace shows no function of autograd",
    "update": "the trace does not mark the optimizer",
}
_NS = 1e3


@dataclass
class _Intervals:
    """Begins and ends, as they come."""

    values: "array[float]" = field(default_factory=lambda: array("d"))

    def add(self, begin: float, end: float) -> None:
        self.values.extend((begin, end))

    @property
    def rows(self) -> Intervals:
        return np.frombuffer(self.values, dtype=np.float64).reshape(-1, 2) if self.values else np.empty((0, 2))


@dataclass
class _ReadTrace:
    """What was read of a trace, in microseconds."""

    sets: dict[str, _Intervals] = field(default_factory=dict)
    steps: dict[int, tuple[float, float]] = field(default_factory=dict)
    launches: "array[float]" = field(default_factory=lambda: array("d"))
    """Correlation and begin of each launch."""
    kernels: "array[float]" = field(default_factory=lambda: array("d"))
    """Correlation, begin, end and whether it computes, of each."""
    collectives: dict[str, TracedCollectives] = field(default_factory=dict)
    """By the set that they are in: on a device, and the calls of a processor."""

    def intervals(self, name: str) -> Intervals:
        return self.sets[name].rows if name in self.sets else np.empty((0, 2))

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
            self.sets.setdefault(role, _Intervals()).add(begin, begin + lasted)
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
        backward = name.startswith(_AUTOGRAD) or about.get("Fwd thread id")
        if backward or "Sequence number" in about:
            of_pass = f"processor {'backward' if backward else 'forward'}"
            self.sets.setdefault(of_pass, _Intervals()).add(begin, end)

    def _role(self, kind: str, name: str, begin: float, end: float) -> str:
        """Return the set that an event belongs to; nothing for one that does not count."""
        if kind in _GPU:
            return "communicate" if kind == "kernel" and _COMMUNICATES.search(name) else _GPU[kind]
        if kind == "gpu_user_annotation":
            return "update" if name.startswith(_OPTIMIZER) else ""
        if kind not in {"user_annotation", "cpu_op"}:  # older traces have both as the latter
            return ""
        if known := _STEP.match(name):
            self.steps[int(known[1])] = (begin, end)
            return ""
        if _COMMUNICATES.match(name):
            return "processor communicates"
        marked = next((role for start, role in _MARKS.items() if name.startswith(start)), None)
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
    on_device = bool(read.kernels) or bool(len(read.intervals("compute")))
    windows = _windows(read)
    if not windows:
        message = f"{path} has neither a step (ProfilerStep#) nor an optimizer's step; call profiler.step() in the loop"
        raise UsageError(message)
    rank, workers, by = _place(stream.info, path)
    first = min(begin for begin, _ in windows.values())
    late = _lateness(read, list(windows.values())) if on_device else [0.0] * len(windows)
    passes = {name: _intervals_in_pass(read, name, on_device=on_device) for name in _PASSES}
    ends = [(begin + shift, end + shift) for (begin, end), shift in zip(windows.values(), late, strict=True)]
    divided = list(_divided(read, ends, passes, on_device=on_device))
    lines = [
        StepLine(
            number=number,
            begin_ns=round((begin - first) * _NS),
            duration_ns=round((end - begin) * _NS),
            regions={name: round(value * _NS) for name, value in regions.items() if name != "hidden" and value > 0},
        )
        for (number, (begin, end)), regions in zip(windows.items(), divided, strict=True)
    ]
    hidden = [each["hidden"] for each in divided]
    trace = _rank_trace(read, stream.info.get("baseTimeNanoseconds"), ends, on_device=on_device)
    steps = ImportedSteps(lines, rank, workers, by, unseen=_unseen(read, passes), trace=trace)
    return ImportedSource(
        path,
        "kineto",
        [steps],
        {"step_s": "ProfilerStep#" if read.steps else "ends of optimizers' steps", "parts": "unions of intervals"},
        {"hidden_communication_s": float(np.mean(hidden)) * 1e-6},
        {} if workers else {"workers": f"{path.name} has no world_size in a distributedInfo"},
    )


def _unseen(read: _ReadTrace, passes: Mapping[str, Intervals]) -> dict[str, str]:
    """Return the parts that the trace does not mark, with the reason."""
    known = {name for name, own in passes.items() if len(own)} | ({"input_wait"} if "input" in read.sets else set())
    return {part: reason for part, reason in _UNMARKED.items() if part not in known}


def _rank_trace(
    read: _ReadTrace,
    base: Any,  # noqa: ANN401 - whatever a file has
    windows: Sequence[tuple[float, float]],
    *,
    on_device: bool,
) -> RankTrace:
    """Return the collectives of the trace; of a trace with a device those that this runs."""
    base_ns = base if isinstance(base, int) and abs(base) < _LATEST_NS else 0
    if on_device:
        computing, role = read.intervals("compute"), "communicate"
    else:
        computing = np.concatenate((read.intervals("operation"), read.intervals("input")))
        role = "processor communicates"
    return read.collectives.get(role, TracedCollectives()).traced(base_ns, windows, union(computing))


def _windows(read: _ReadTrace) -> Mapping[int, tuple[float, float]]:
    """Return the steps on the processor, by number: as marked, else from one update to the next."""
    if read.steps:
        return dict(sorted(read.steps.items()))
    ends = sorted(read.intervals("processor update")[:, 1])
    return dict(enumerate(pairwise(ends)))


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


def _intervals_in_pass(read: _ReadTrace, name: str, *, on_device: bool) -> Intervals:
    """Return what computes in a pass: on a device, the kernels that were launched in it."""
    own = union(read.intervals(f"processor {name}"))
    if not on_device:
        return own
    marked = union(read.intervals(name))  # on the device itself
    if len(marked) or not len(own) or not read.kernels:
        return marked
    launched, kernels = _launched(read)
    places = np.searchsorted(own[:, 0], launched, side="right") - 1
    inside = (places >= 0) & (launched < own[np.maximum(places, 0), 1])
    return union(kernels[inside & (kernels[:, 3] > 0)][:, 1:3])


def _divided(
    read: _ReadTrace, windows: Sequence[tuple[float, float]], passes: Mapping[str, Intervals], *, on_device: bool
) -> Iterator[dict[str, float]]:
    """Yield the parts of each step in microseconds, and what of its communication is hidden."""
    names = ("compute", "communicate", "copy") if on_device else ("operation", "processor communicates", "copy")
    computes, communicates, copies = (union(read.intervals(name)) for name in names)
    waits = union(read.intervals("input"))
    for since, until in windows:
        computing, communicating, copying, fetching = (
            within(own, since, until) for own in (computes, communicates, copies, waits)
        )
        if not on_device:
            computing, communicating = difference(computing, fetching), difference(communicating, fetching)
        exposed = difference(communicating, computing)
        copied = difference(difference(copying, computing), communicating)
        busy = union(np.concatenate((computing, exposed, copied)))
        parts, left = {}, computing
        for name, own in passes.items():
            parts[name] = length(common(left, within(own, since, until)))
            left = difference(left, within(own, since, until))
        yield {
            "compute": length(left),
            **parts,
            "collective": length(exposed),
            "copy": length(copied),
            "input": length(difference(fetching, busy)),
            "hidden": length(communicating) - length(exposed),
        }


def _launched(read: _ReadTrace) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return when kernels were launched, and these kernels, each with a launch."""
    launches = np.frombuffer(read.launches, dtype=np.float64).reshape(-1, 2)
    kernels = np.frombuffer(read.kernels, dtype=np.float64).reshape(-1, 4)
    if not len(launches):
        return np.empty(0), kernels[:0]
    launches = launches[np.argsort(launches[:, 0], kind="stable")]
    places = np.minimum(np.searchsorted(launches[:, 0], kernels[:, 0]), len(launches) - 1)
    known = launches[places, 0] == kernels[:, 0]
    return launches[places[known], 1], kernels[known]


def _lateness(read: _ReadTrace, windows: Sequence[tuple[float, float]]) -> list[float]:
    """Return by how much the device is behind the processor in each step: its first kernel behind its launch."""
    launched, kernels = _launched(read)
    begun = kernels[:, 1]
    late = []
    for begin, end in windows:
        own = np.flatnonzero((launched >= begin) & (launched < end))
        first = own[np.argmin(begun[own])] if len(own) else None
        late.append(max(0.0, float(begun[first] - launched[first])) if first is not None else 0.0)
    return late
