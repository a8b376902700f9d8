"""Times on a CUDA device: events at the borders of regions, read some steps later when the device has passed them.

Nothing waits for the device, and no event is recorded or asked for while a graph is captured.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any, Callable

from .. import patches
from ..object_numbers import number_of
from ..record_file import now
from .device_clock import DeviceClock, DeviceMark

if TYPE_CHECKING:
    from ..recorder import Recorder

REGIONS = frozenset({"forward", "nograd", "backward", "update", "gradient", "clip", "replay"})
# Steps whose events may wait; of a device that is further behind the oldest are given up.
WAITING_STEPS = 64
EVENTS_OF_A_STEP = 512
# Events that are made at start-up: a new one costs a busy loop many times as much. Further ones are made when needed.
RING = 32
# In every so many steps events are asked for at once, so often: one that is passed then shows how clocks differ.
LOOKED_AT, LOOKS = 16, 4
# Events of parts cost at most this share of all steps, by what those of so many steps cost; an end is marked in each.
COST_SHARE, COSTED_STEPS, FEWEST_PARTED = 0.01, 16, 256
_SPREAD, _WHOLE = 2_654_435_761, 1 << 32  # Knuth's multiplier: parted steps follow no period of the script


class DeviceEvents:
    """Pairs of events around regions, as a tree, so that the time of a region is without those inside of it."""

    def __init__(self, cuda: Any, recorder: Recorder) -> None:
        self.cuda = cuda
        self.recorder = recorder
        self.on = True
        self.parents: list[Any] = []
        self.event_ns = 0  # that one costs the host, at start-up
        self._begin()
        self._fill_ring()
        known = {"name": device_name(cuda), "event_ns": self.event_ns}
        self.once = {name: value for name, value in known.items() if value}

    def _begin(self) -> None:
        self.free: list[Any] = []
        self.open: list[tuple[str, list[Any] | None]] = []
        self.pairs: list[list[Any]] = []  # name, first mark, last mark, the pair around it
        self.waiting: deque[tuple[int, list[list[Any]], int]] = deque()  # step, its pairs, cost of its parts or -1
        self.parted, self.every, self.ending = True, 1, ""  # whether this step is, one in how many, its last region
        self.cost, self.costs = 0, [0, 0, 0]  # of this step; of steps, how long these were, and how many
        self.costed = False  # whether so many steps have shown what their events cost
        self.clock = DeviceClock()
        self.ended_with = ""  # the last region of the step before
        self.looks = True

    def _fill_ring(self) -> None:
        """Make the events, which their first record does, and measure what the next one costs."""
        try:
            if self.cuda.is_current_stream_capturing():
                return
            ring = [self.cuda.Event(enable_timing=True) for _ in range(RING)]
            for event in ring:
                event.record()
            begun = now()
            for event in ring:
                event.record()
            self.event_ns = (now() - begun) // RING
            self.free = ring
        except Exception as error:
            self._fault(error)

    def begin_again(self) -> None:
        """Use no event of a parent process in a forked child, nor have the child's interpreter destroy one."""
        self.parents.append((self.free, self.open, self.pairs, self.waiting, self.clock))
        self._begin()

    def enter(self, name: str) -> None:
        """Record the first event of region ``name``."""
        if not self.on:
            return
        try:
            pair = None
            if self.parted and self._wanted(name):
                around = next((pair for _, pair in reversed(self.open) if pair is not None), None)
                pair = [name, self._record(), None, around]
                self.pairs.append(pair)
            self.open.append((name, pair))
        except Exception as error:
            self._fault(error)

    def _wanted(self, name: str) -> bool:
        few = len(self.pairs) * 2 < EVENTS_OF_A_STEP
        return name in REGIONS and few and not self.cuda.is_current_stream_capturing()

    def leave(self, name: str) -> None:
        """Record the last event of region ``name``."""
        if not self.on:
            return
        try:
            while self.open:
                found, pair = self.open.pop()
                if pair is not None and found == name and not self.cuda.is_current_stream_capturing():
                    pair[2] = self._record()
                if found == name:
                    self._mark_end(name)
                    break
        except Exception as error:
            self._fault(error)

    def _mark_end(self, name: str) -> None:
        """Mark where a step may end that is not timed in parts; its last mark alone is kept."""
        if self.parted or name != self.ending or any(each in REGIONS for each, _ in self.open):
            return
        if self.cuda.is_current_stream_capturing():
            return
        if self.pairs and self.pairs[-1][1] is None:
            self.free.append(self.pairs.pop()[2].event)
        self.pairs.append([name, None, self._record(), None])

    def _record(self) -> DeviceMark:
        event = self.free.pop() if self.free else self.cuda.Event(enable_timing=True)
        mark = DeviceMark(event, now())
        event.record()
        self.cost += now() - mark.handed
        if self.looks:
            any(mark.is_passed() for _ in range(LOOKS))
        return mark

    def step_closed(self, number: int) -> None:
        """Set the events of the step before ``number`` aside, and write those that the device has passed."""
        if not self.on:
            return
        try:
            kept = [pair for pair in self.pairs if pair[2] is None]
            done = [pair for pair in self.pairs if pair[2] is not None]
            self.waiting.append((number - 1, done, self.cost if self.parted else -1))
            self.pairs, self.cost = kept if self.open else [], 0
            self.parted = not self.ending or number * _SPREAD % _WHOLE * self.every < _WHOLE
            self.looks = number % LOOKED_AT == 0
            self.write_passed()
            while len(self.waiting) > WAITING_STEPS:
                self._release(self.waiting.popleft()[1])
                self.clock = DeviceClock()
        except Exception as error:
            self._fault(error)

    def ended(self) -> None:
        """Write what the device has passed by the end of the script."""
        try:
            if self.on:
                self.write_passed()
        except Exception as error:
            self._fault(error)

    def write_passed(self) -> None:
        """Write the steps whose events the device has passed."""
        if self.cuda.is_current_stream_capturing():  # to ask for an event now would void the script's graph
            return
        while self.waiting:
            asked = now()
            if not self._passed(self.waiting[0][1]):
                newest = self.waiting[-1][1]
                if newest:
                    newest[-1][2].earliest = asked
                return
            self._write(*self.waiting.popleft())

    @staticmethod
    def _passed(pairs: list[list[Any]]) -> bool:
        return all(pair[2].is_passed() for pair in reversed(pairs))

    def _write(self, step: int, pairs: list[list[Any]], cost: int) -> None:
        if not pairs:
            self.clock = DeviceClock()
            return
        before = self.clock.last
        marks = sorted((mark for pair in pairs for mark in pair[1:3] if mark is not None), key=lambda each: each.handed)
        self.clock.read(marks)
        end = max(marks, key=lambda mark: mark.at)
        line: dict[str, Any] = {"kind": "device", "step": step}
        if before is not None:
            line["step_ns"] = end.at - before.at
            self.free.append(before.event)
        if cost >= 0:
            line.update(self._parts(pairs, marks, before))
            line["cost_ns"] = cost
            self._count_cost(cost, line.get("step_ns", 0), len(marks))
        line.update(self.once)
        self.once = {}
        if ("step_ns" in line or cost >= 0) and step % self.recorder.lines.every == 0:
            self.recorder.file.write(line)
        self.clock.last, self.ended_with = end, pairs[-1][0]
        self._release(pairs)

    def _count_cost(self, cost: int, length: int, events: int) -> None:
        """Time parts so seldom that their events cost little: by what one did at start-up until steps have shown it."""
        if not length:
            return
        self.costs = [self.costs[0] + cost, self.costs[1] + length, self.costs[2] + 1]
        if self.costs[2] == COSTED_STEPS:
            self._space(*self.costs[:2])
            self.costs, self.costed = [0, 0, 0], True
        elif not self.costed:
            self._space(events * self.event_ns, length)

    def _space(self, cost: int, length: int) -> None:
        self.every = min(FEWEST_PARTED, max(1, math.ceil(cost / (COST_SHARE * length))))

    def _parts(self, pairs: list[list[Any]], marks: list[DeviceMark], before: DeviceMark | None) -> dict[str, Any]:
        """Return regions and gaps, and for how long the device waited; the last two where the step's begin is known."""
        regions: dict[str, int] = {}
        own = set(map(id, pairs))
        for name, first, last, around in pairs:
            duration = last.at - first.at
            regions[name] = regions.get(name, 0) + duration
            if id(around) in own:  # else that goes on into another step
                regions[around[0]] = regions.get(around[0], 0) - duration
        self.ending = next((pair[0] for pair in reversed(pairs) if pair[3] is None), "")
        parts: dict[str, Any] = {"regions": regions, "span_ns": max(mark.at for mark in marks) - pairs[0][1].at}
        if before is not None:
            parts["gaps"] = self._gaps(pairs, before)
            parts["waited_ns"] = self.clock.waited([before, *marks])
        return parts

    def _gaps(self, pairs: list[list[Any]], since: DeviceMark) -> dict[str, int]:
        """Return the times on the device between regions that lie in no other, named by both."""
        gaps: dict[str, int] = {}
        before, done = self.ended_with, since.at
        for name, first, last, around in pairs:
            if around is None:
                gap = f"{before}>{name}"
                gaps[gap] = gaps.get(gap, 0) + max(0, first.at - done)
                before, done = name, max(done, last.at)
        return {name: duration for name, duration in gaps.items() if duration}

    def _release(self, pairs: list[list[Any]]) -> None:
        """Use the events of ``pairs`` again, but for one that the next step is measured from."""
        last = self.clock.last
        self.free += [mark.event for pair in pairs for mark in pair[1:3] if mark not in {None, last}]

    def _fault(self, error: Exception) -> None:
        if patches.raised_by_signal_handler(error):
            raise error
        self.on = False
        patches.report("events of the device", error)


def device_name(cuda: Any) -> str:
    """Return the model of the device in use with its number in this process; "" where it cannot be told."""
    try:
        number = cuda.current_device()
        return f"{number}: {cuda.get_device_name(number)}"
    except Exception as error:
        if patches.raised_by_signal_handler(error):
            raise
        return ""


def install(torch: Any, recorder: Recorder, compiling: Callable[[], bool]) -> None:
    """Begin to record events once CUDA is in use, and make `CUDAGraph.replay` a region."""
    cuda = torch.cuda

    def step_closed(number: int) -> None:
        if recorder.device is not None:
            recorder.device.step_closed(number)
        elif cuda.is_initialized():
            recorder.device = DeviceEvents(cuda, recorder)

    def ended() -> None:
        if recorder.device is not None:
            recorder.device.ended()

    recorder.at_step.append(step_closed)
    recorder.at_end.append(ended)
    graph = getattr(cuda, "CUDAGraph", None)
    if not callable(getattr(graph, "replay", None)):
        return

    def before(args: Any, kwargs: Any) -> Any:  # noqa: ARG001 - the form of all
        if not recorder.is_mine() or recorder.stack:  # one inside an open region is a part of that
            return None
        recorder.replay_begin(number_of(args[0]))
        return True

    def after(mark: Any, returned: bool) -> None:  # noqa: ARG001 - the form of all
        recorder.replay_end()

    patches.measure(graph, "replay", before, after, compiling)
