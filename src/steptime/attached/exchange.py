"""What the ranks of an attached job exchange: how long each waits, and how long the transfer itself takes.

A rank waits until the last of all has come; what is left of its time in the exchange is transfer.

- Where DDP synchronises a backward pass, a rank comes when its last gradient is ready: from then until the latest last
  gradient of all ranks it waits, and until the end of the pass the transfer is exposed.
  Collectives that a hook of DDP starts meanwhile are inside of that.
- Elsewhere, ranks go through the same sequence of collectives: one waits until the latest of all has started the
  collective that it waits for, at most for as long as its own call took.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from steptime.attached.attempts import Attempt, have_one_order, send_alone
from steptime.attached.compiled_exchange import device_spans, exchange_nothing, waiting_of_devices, waiting_of_hosts
from steptime.attached.form import CollectiveCount
from steptime.results.attached_files import ProcessLines
from steptime.results.attached_lines import CollectiveInterval, StepLine

Array = NDArray[np.float64]

_PER_S = 1e-9
CallKind = Literal["gather", "scatter", "reduce", "wait"]
_KINDS: Mapping[str, CallKind] = {
    **dict.fromkeys(("_allgather_base", "all_gather_single", "allgather_into_tensor_coalesced"), "gather"),
    **dict.fromkeys(("_reduce_scatter_base", "reduce_scatter_single", "reduce_scatter_tensor_coalesced"), "scatter"),
    "allreduce": "reduce",
    "wait": "wait",
}
"""What methods of process groups do."""
_SHARDED = {("forward", "gather"), ("backward", "scatter")}
_OTHERS = {("forward", "scatter"), ("forward", "reduce"), ("backward", "reduce")}
"""Of activations that are split (tensor and sequence parallel)."""
_WAIT = "wait"
_NO_EXCHANGE = "no exchange between the ranks was seen"
_MOST_DRIFT = 500e-6
"""Of clocks that are set by NTP, which slews them at most so much."""
_FEWEST_OF_DRIFT = 4
"""Passes at both ends of a run by which drift is known."""


class ExchangeCall(NamedTuple):
    """A call of a step that starts a collective, or waits for the oldest one still under way."""

    kind: CallKind
    bytes: int
    """Of the whole, that all ranks gather or reduce."""
    after_s: float
    """Since the call before returned."""


@dataclass(frozen=True)
class ClockBounds:
    """Between which bounds the clocks of an attempt's hosts are known; nothing is sent for it.

    No exchange ends before all came. DDP's, of which each rank needs all gradients, ends on all ranks within the
    shortest time that one of them was in it: a rank that is late in every step is known by that alone. Of processes
    with one clock all are 0.
    """

    offsets_s: Array
    """What is added to the clock of each rank."""
    drifts: Array
    """And that for each second since ``origin_s`` on the clock of the first rank."""
    origin_s: float
    uncertainty_s: float
    """Half the distance of the bounds, of the host of which least is known."""

    def corrections_s(self, meeting: "_Meeting") -> Array:
        """Return what is added to the clock of each rank at the time of a meeting."""
        return np.asarray(self.offsets_s + self.drifts * (meeting.ends[0] - self.origin_s), dtype=np.float64)


@dataclass(frozen=True)
class Exchange:
    """Waiting and exposed transfer of each step that shows them."""

    numbers: list[int]
    """Of these steps."""
    waiting_s: Array
    """Ranks x steps."""
    exposed_s: Array
    caused_s: Array
    """Ranks x steps: the mean waiting of the others while they waited for this one."""
    within_backward_s: Array
    """Ranks x steps: what of both lies inside backward passes."""
    clock: ClockBounds
    met: NDArray[np.bool_]
    """Of each step, whether the ranks exchange anything in it: weights averaged now and then are, in few."""
    is_compiled: bool = False
    """Whether the transfer is hidden in a step that is compiled whole, and ``exposed_s`` is 0 for that."""


@dataclass(frozen=True)
class _Meeting:
    """One exchange of all ranks, in seconds: when each came, and when each could go on."""

    came: Array
    begins: Array
    """From when on each rank stood in it."""
    ends: Array
    within_backward: bool
    waits: bool = True
    """Whether ranks go on when all have come, and not before, as they do from the mere start of a collective."""


def split_exchange(attempt: Attempt, numbers: Sequence[int]) -> Exchange | str:
    """Return waiting and transfer of the steps of an attempt, or why they cannot be told apart.

    Args:
        attempt: of at least two ranks.
        numbers: the steps that are looked at.
    """
    if (reason := attempt.mismatch(numbers) or _hidden(attempt, numbers)) is not None:
        return reason
    met = {number: found for number in numbers if (found := _meetings(attempt.steps[number])) is not None}
    if not any(met.values()):
        return _split_compiled(attempt, numbers)
    clock = _clock(attempt, [each for meetings in met.values() for each in meetings])
    if isinstance(clock, str):
        return clock
    parts = [_parted(meetings, clock) for meetings in met.values()]
    waiting, exposed, caused, within = (np.stack([part[index] for part in parts], axis=1) for index in range(4))
    held = np.array([bool(meetings) for meetings in met.values()])
    return Exchange(list(met), waiting, exposed, caused, within, clock, held)


def _split_compiled(attempt: Attempt, numbers: Sequence[int]) -> Exchange | str:
    """Return the waiting in steps that are compiled whole, or why it is not known."""
    spans = device_spans(attempt, numbers)
    if not spans:
        return _NO_EXCHANGE
    meetings = [_Meeting(begins, begins, ends, within_backward=False) for begins, ends in spans.values()]
    clock = _clock(attempt, meetings)
    if isinstance(clock, str):
        return clock
    corrections = np.stack([clock.corrections_s(each) for each in meetings], axis=1)
    begins, ends = (np.stack([span[index] for span in spans.values()], axis=1) + corrections for index in (0, 1))
    if (reason := exchange_nothing(begins, ends, clock.uncertainty_s)) is not None:
        return reason
    by_device = waiting_of_devices(begins, ends)
    waiting = waiting_of_hosts(by_device, [attempt.steps[number] for number in spans])
    caused, none = np.zeros_like(waiting), np.zeros_like(waiting)
    last = begins.argmax(axis=0)
    shown = waiting.sum() / max(float(by_device.sum()), np.finfo(float).tiny)
    caused[last, np.arange(len(last))] = shown * by_device.sum(axis=0) / max(1, len(waiting) - 1)
    return Exchange(
        list(spans), waiting, none, caused, none, clock, np.full(len(last), fill_value=True), is_compiled=True
    )


def _hidden(attempt: Attempt, numbers: Sequence[int]) -> str | None:
    """Return why the exchange of steps cannot be seen as waiting and transfer; None if it can."""
    steps = [step for number in numbers for step in attempt.steps[number]]
    if attempt.is_pipeline(numbers):
        return "ranks send to one another between forward and backward, as a pipeline, whose bubble is waiting too"
    if any("blind" in step.flags for step in steps):
        compiles = any(line.graphs for process in attempt.processes.values() for line in process.graphs)
        whole = ", as in a step that torch.compile compiles whole" if compiles else ""
        return f"no update was seen{whole}, and where steps end is not known"
    if any("replay" in step.regions for step in steps):
        return "the step is a captured CUDA graph, inside which nothing can be seen"
    return None


def _meetings(steps: Sequence[StepLine]) -> list[_Meeting] | None:
    """Return the exchanges of one step of all ranks; None if some of them were not kept."""
    passes = list(_of_passes(steps))
    if any(not meeting.came.all() for meeting in passes):
        return None
    if not any(step.collectives for step in steps):
        return passes
    own = [[call for call in step.intervals if not step.is_in_exchange(call)] for step in steps]
    if not all(step.all_intervals for step in steps):
        return None
    if have_one_order(own) and len(set(map(len, own))) == 1:
        return [*passes, *_of_collectives(own)]
    return [*passes, _of_neighbours(own)] if all(map(send_alone, own)) else None


def _of_passes(steps: Sequence[StepLine]) -> Iterator[_Meeting]:
    """Yield the synchronised backward passes; a last gradient that was not seen came at 0."""
    for passes in zip(*(step.backwards for step in steps), strict=False):
        if all(synchronised is True for _, _, _, synchronised in passes):
            came, ends = (np.array([each[index] for each in passes]) * _PER_S for index in (1, 2))
            yield _Meeting(came, came, ends, within_backward=True)


def _of_collectives(intervals: Sequence[Sequence[CollectiveInterval]]) -> Iterator[_Meeting]:
    """Yield the collectives and the waits for them: a wait is for the one that was started first and not waited for."""
    started: list[Array] = []
    waits = any(kind == _WAIT for kind, _, _, _ in intervals[0])
    for calls in zip(*intervals, strict=True):
        begins, ends = (np.array([each[index] for each in calls]) * _PER_S for index in (2, 3))
        if calls[0][0] == _WAIT:
            yield _Meeting(started.pop(0) if started else begins, begins, ends, within_backward=False)
        else:
            started.append(begins)
            yield _Meeting(begins, begins, ends, within_backward=False, waits=not waits)


def _of_neighbours(calls: Sequence[Sequence[CollectiveInterval]]) -> _Meeting:
    """Return the one meeting of ranks that send and receive in different orders: from its first call on each waits."""
    came = np.array([min(begin for _, _, begin, _ in own) for own in calls]) * _PER_S
    lasted = np.array([sum(end - begin for _, _, begin, end in own) for own in calls]) * _PER_S
    return _Meeting(came, came, came + lasted, within_backward=False)


def _parted(meetings: Sequence[_Meeting], clock: ClockBounds) -> Array:
    """Return waiting, transfer, caused waiting, and what of both lies in backward passes, over all meetings of a step.

    A row for each, a column for each rank.
    """
    ranks = len(clock.offsets_s)
    waiting, exposed, caused, within = found = np.zeros((4, ranks))
    for each in meetings:
        correction = clock.corrections_s(each)
        came = each.came + correction
        lasted = np.maximum(each.ends - each.begins, 0.0)
        waited = np.clip(came.max() - (each.begins + correction), 0.0, lasted)
        waiting += waited
        exposed += lasted - waited
        within += lasted if each.within_backward else 0.0
        last = int(came.argmax())
        caused[last] += (waited.sum() - waited[last]) / max(1, ranks - 1)
    return found


def _clock(attempt: Attempt, meetings: Sequence[_Meeting]) -> ClockBounds | str:
    """Return by how much clocks differ, from what all meetings allow, or why that is not known."""
    boots = list(attempt.boots.values())
    offsets, drifts, uncertainty = np.zeros(len(boots)), np.zeros(len(boots)), 0.0
    origin = min((each.ends[0] for each in meetings), default=0.0)
    first = [index for index, boot in enumerate(boots) if boot == boots[0]]
    for boot in dict.fromkeys(boots):
        if boot == boots[0]:
            continue
        own = [index for index, each in enumerate(boots) if each == boot]
        between = _ClocksOfTwo([each for each in meetings if each.waits], first, own)
        drift = between.drift()
        low, high = between.bounds(drift, origin)
        if not np.isfinite((low, high)).all():
            return "no exchange shows how far the clocks of the hosts are apart"
        if low > high:
            return "the clocks of the hosts drift, so that the last rank to come is not known"
        offsets[own], drifts[own] = (low + high) / 2.0, drift
        uncertainty = max(uncertainty, (high - low) / 2.0)
    return ClockBounds(offsets, drifts, origin, uncertainty)


class _ClocksOfTwo:
    """What meetings show of how far the clock of a host is behind that of the first one."""

    def __init__(self, meetings: Sequence[_Meeting], first: Sequence[int], own: Sequence[int]) -> None:
        self._at = np.array([each.ends[0] for each in meetings])
        self._low = np.array([each.came[first].max() - each.ends[own].min() for each in meetings])
        self._high = np.array([each.ends[first].min() - each.came[own].max() for each in meetings])
        passes = [each for each in meetings if each.within_backward]
        self._pass_at = np.array([each.ends[0] for each in passes])
        self._ends_apart = np.array([np.mean(each.ends[first]) - np.mean(each.ends[own]) for each in passes])
        self._shortest = np.array([(each.ends - each.begins).min() for each in passes])

    def drift(self) -> float:
        """Return by how much they part in a second, by the ends of passes in the first and the last third; else 0."""
        third = len(self._pass_at) // 3
        if third < _FEWEST_OF_DRIFT:
            return 0.0
        both = (self._pass_at, self._ends_apart)
        times, apart = (float(np.median(series[-third:]) - np.median(series[:third])) for series in both)
        drift = apart / times if times > 0.0 else 0.0
        return drift if abs(drift) <= _MOST_DRIFT else 0.0

    def bounds(self, drift: float, origin: float) -> tuple[float, float]:
        """Return between what the distance is at ``origin``; the first is larger where no distance fits all."""
        moved = drift * (self._at - origin)
        low = float((self._low - moved).max(initial=-np.inf))
        high = float((self._high - moved).min(initial=np.inf))
        if len(self._pass_at) and low <= high:
            middle = float(np.median(self._ends_apart - drift * (self._pass_at - origin)))
            open_s = float(np.median(self._shortest))
            nearer = max(low, middle - open_s), min(high, middle + open_s)
            low, high = nearer if nearer[0] <= nearer[1] else (low, high)
        return low, high


def sharded_calls(
    world: int, collectives: Sequence[CollectiveCount], processes: Sequence[ProcessLines]
) -> list[ExchangeCall]:
    """Return the collectives of the median step if they are those of sharded parameters (FSDP); none if they are not.

    Those are gathered in forward and backward passes, and gradients scattered in the backward pass alone.
    """
    kinds = {(each.region, _KINDS.get(each.kind)) for each in collectives if each.region != "none"}
    if not kinds >= _SHARDED or any(kind is None or (region, kind) in _OTHERS for region, kind in kinds):
        return []
    known = (step for each in processes[:1] for step in each.steps if step.all_intervals and step.intervals)
    steps = sorted((step for step in known if not step.holds_other_work), key=lambda step: step.active_s)
    if not steps:
        return []
    found: list[ExchangeCall] = []
    step = steps[len(steps) // 2]
    before = step.begin_ns
    for name, size, begin, end in step.intervals:
        kind = _KINDS[name]
        whole = size * max(1, world) if kind == "scatter" else size  # what a rank keeps is on record
        found.append(ExchangeCall(kind, whole, max(0, begin - before) * _PER_S))
        before = end
    return found
