"""Steps of a trace, divided by the union of intervals on the device.

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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from steptime.imported.intervals import Intervals, common, difference, length, union, within
from steptime.imported.transfers import RankTrace, TracedCollectives
from steptime.results.attached_lines import StepLine

COMMUNICATES = re.compile(r"nccl|rccl|gloo:|mpi:|ucc:|oneccl|hccl", re.IGNORECASE)
OPTIMIZER = "Optimizer.step#"
AUTOGRAD = "autograd::engine::evaluate_function"
MARKS = {
    OPTIMIZER: "processor update",
    "enumerate(DataLoader)": "input",
    "## backward ##": "processor backward",
    "## forward ##": "processor forward",
    "DistributedDataParallel.forward": "processor forward",
    "FullyShardedDataParallel.forward": "processor forward",
    **dict.fromkeys(("##", "c10d::", "record_param_comms", "DistributedDataParallel."), ""),
}
"""By how its name begins, the set of what does not operate: marks around others, and what starts a collective."""
_LATEST_NS = 1 << 62
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
class _GrowingIntervals:
    """Begins and ends, as they come."""

    values: "array[float]" = field(default_factory=lambda: array("d"))

    @property
    def rows(self) -> Intervals:
        return np.frombuffer(self.values, dtype=np.float64).reshape(-1, 2) if self.values else np.empty((0, 2))


@dataclass
class TraceParts:
    """What was read of a trace, in microseconds."""

    sets: dict[str, _GrowingIntervals] = field(default_factory=dict)
    """``compute``, ``communicate``, ``copy`` of a device, ``operation``, ``processor communicates``, ``input``, …"""
    steps: dict[int, tuple[float, float]] = field(default_factory=dict)
    launches: "array[float]" = field(default_factory=lambda: array("d"))
    """Correlation and begin of each launch."""
    kernels: "array[float]" = field(default_factory=lambda: array("d"))
    """Correlation, begin, end and whether it computes, of each."""
    collectives: dict[str, TracedCollectives] = field(default_factory=dict)
    """By the set that they are in: on a device, and the calls of a processor."""

    def add(self, name: str, begin: float, end: float) -> None:
        """Add an interval to a set."""
        own = self.sets.get(name)
        if own is None:
            own = self.sets[name] = _GrowingIntervals()
        own.values.extend((begin, end))

    def intervals(self, name: str) -> Intervals:
        """Return a set as it was read."""
        return self.sets[name].rows if name in self.sets else np.empty((0, 2))

    @property
    def on_device(self) -> bool:
        """Whether a device computes."""
        return bool(self.kernels) or "compute" in self.sets

    @property
    def device_span(self) -> tuple[float, float] | None:
        """From the first to the last of what a device does."""
        rows = union(np.concatenate([self.intervals(name) for name in ("compute", "communicate", "copy")]))
        return (float(rows[0, 0]), float(rows[-1, 1])) if len(rows) else None


class DividedSteps(NamedTuple):
    """The steps of a rank."""

    lines: list[StepLine]
    hidden_s: float
    """Communication while something computes, mean of a step."""
    unseen: dict[str, str]
    trace: RankTrace


def divided_steps(read: TraceParts, base_ns: Any = 0) -> DividedSteps | None:  # noqa: ANN401 - whatever a file has
    """Return the steps of a trace with their parts; None if it has no step.

    Args:
        read: what the trace has.
        base_ns: what makes its clock that of the host.
    """
    windows = _windows(read)
    if not windows:
        return None
    on_device = read.on_device
    first = min(begin for begin, _ in windows.values())
    late = _lateness(read, list(windows.values())) if on_device else [0.0] * len(windows)
    ends = [(begin + shift, end + shift) for (begin, end), shift in zip(windows.values(), late, strict=True)]
    passes = {name: _intervals_in_pass(read, name, on_device=on_device) for name in _PASSES}
    divided = list(divided_windows(read, ends, passes))
    lines = [
        StepLine(
            number=number,
            begin_ns=round((begin - first) * _NS),
            duration_ns=round((end - begin) * _NS),
            regions={name: round(value * _NS) for name, value in regions.items() if name != "hidden" and value > 0},
        )
        for (number, (begin, end)), regions in zip(windows.items(), divided, strict=True)
    ]
    hidden_s = float(np.mean([parts["hidden"] for parts in divided])) * 1e-6
    trace = _rank_trace(read, base_ns, ends, on_device=on_device)
    return DividedSteps(lines, hidden_s, _unseen(read, passes), trace)


def _unseen(read: TraceParts, passes: Mapping[str, Intervals]) -> dict[str, str]:
    """Return the parts that the trace does not mark, with the reason."""
    known = {name for name, own in passes.items() if len(own)} | ({"input_wait"} if "input" in read.sets else set())
    return {part: reason for part, reason in _UNMARKED.items() if part not in known}


def _rank_trace(
    read: TraceParts,
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


def _windows(read: TraceParts) -> Mapping[int, tuple[float, float]]:
    """Return the steps on the processor, by number: as marked, else from one update to the next."""
    if read.steps:
        return dict(sorted(read.steps.items()))
    ends = sorted(read.intervals("processor update")[:, 1])
    return dict(enumerate(pairwise(ends)))


def _intervals_in_pass(read: TraceParts, name: str, *, on_device: bool) -> Intervals:
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


def divided_windows(
    read: TraceParts, windows: Sequence[tuple[float, float]], passes: Mapping[str, Intervals]
) -> Iterator[dict[str, float]]:
    """Yield the parts of each step in microseconds, and what of its communication is hidden."""
    on_device = read.on_device
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


def _launched(read: TraceParts) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return when kernels were launched, and these kernels, each with a launch."""
    launches = np.frombuffer(read.launches, dtype=np.float64).reshape(-1, 2)
    kernels = np.frombuffer(read.kernels, dtype=np.float64).reshape(-1, 4)
    if not len(launches):
        return np.empty(0), kernels[:0]
    launches = launches[np.argsort(launches[:, 0], kind="stable")]
    places = np.minimum(np.searchsorted(launches[:, 0], kernels[:, 0]), len(launches) - 1)
    known = launches[places, 0] == kernels[:, 0]
    return launches[places[known], 1], kernels[known]


def _lateness(read: TraceParts, windows: Sequence[tuple[float, float]]) -> list[float]:
    """Return by how much the device is behind the processor in each step: its first kernel behind its launch."""
    launched, kernels = _launched(read)
    begun = kernels[:, 1]
    late = []
    for begin, end in windows:
        own = np.flatnonzero((launched >= begin) & (launched < end))
        first = own[np.argmin(begun[own])] if len(own) else None
        late.append(max(0.0, float(begun[first] - launched[first])) if first is not None else 0.0)
    return late
