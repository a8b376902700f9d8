"""Times on a CUDA device: events at the borders of regions, read some steps later when the device has passed them.

Nothing waits for the device, and no event is recorded or asked for while a graph is captured.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Callable

from . import patches

if TYPE_CHECKING:
    from .recorder import Recorder

REGIONS = frozenset({"forward", "nograd", "backward", "update", "gradient", "clip", "replay"})
# Steps whose events may wait; of a device that is further behind the oldest are given up.
WAITING_STEPS = 64
EVENTS_OF_A_STEP = 512


class DeviceEvents:
    """Pairs of events around regions, as a tree, so that the time of a region is without those inside of it."""

    def __init__(self, cuda: Any, recorder: Recorder) -> None:
        self.cuda = cuda
        self.recorder = recorder
        self.on = True
        self.name = device_name(cuda)  # written once
        self.free: list[Any] = []
        self.open: list[tuple[str, list[Any] | None]] = []
        self.pairs: list[list[Any]] = []  # name, first event, last event, the pair around it
        self.waiting: deque[tuple[int, list[list[Any]]]] = deque()
        self.parents: list[Any] = []

    def begin_again(self) -> None:
        """Use no event of a parent process in a forked child, nor have the child's interpreter destroy one."""
        self.parents.append((self.free, self.open, self.pairs, self.waiting))
        self.free, self.open, self.pairs, self.waiting = [], [], [], deque()

    def enter(self, name: str) -> None:
        """Record the first event of region ``name``."""
        if not self.on:
            return
        try:
            pair = None
            if self._wanted(name):
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
                    break
        except Exception as error:
            self._fault(error)

    def _record(self) -> Any:
        event = self.free.pop() if self.free else self.cuda.Event(enable_timing=True)
        event.record()
        return event

    def step_closed(self, number: int) -> None:
        """Set the events of the step before ``number`` aside, and write those that the device has passed."""
        if not self.on:
            return
        try:
            kept = [pair for pair in self.pairs if pair[2] is None]
            self.waiting.append((number - 1, [pair for pair in self.pairs if pair[2] is not None]))
            self.pairs = kept if self.open else []
            if self.cuda.is_current_stream_capturing():  # to ask for an event now would void the script's graph
                return
            while self.waiting and self._passed(self.waiting[0][1]):
                step, pairs = self.waiting.popleft()
                self._write(step, pairs)
            while len(self.waiting) > WAITING_STEPS:
                self.waiting.popleft()
        except Exception as error:
            self._fault(error)

    @staticmethod
    def _passed(pairs: list[list[Any]]) -> bool:
        return all(pair[2].query() for pair in reversed(pairs))

    def _write(self, step: int, pairs: list[list[Any]]) -> None:
        if not pairs:
            return
        regions: dict[str, int] = {}
        for name, first, last, around in pairs:
            duration = round(first.elapsed_time(last) * 1e6)
            regions[name] = regions.get(name, 0) + duration
            if around is not None:
                regions[around[0]] = regions.get(around[0], 0) - duration
        last_of_all = max((pair[2] for pair in pairs), key=pairs[0][1].elapsed_time)
        span = round(pairs[0][1].elapsed_time(last_of_all) * 1e6)
        named = {"name": self.name} if self.name else {}
        self.name = ""
        self.recorder.file.write({"kind": "device", "step": step, "regions": regions, "span_ns": span, **named})
        self.free += [event for pair in pairs for event in pair[1:3]]

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

    recorder.at_step.append(step_closed)
    graph = getattr(cuda, "CUDAGraph", None)
    if not callable(getattr(graph, "replay", None)):
        return

    def before(args: Any, kwargs: Any) -> Any:  # noqa: ARG001 - the form of all
        if not recorder.is_mine() or recorder.inside("replay"):
            return None
        recorder.replay_begin(id(args[0]))
        return True

    def after(mark: Any, returned: bool) -> None:  # noqa: ARG001 - the form of all
        recorder.replay_end()

    patches.measure(graph, "replay", before, after, compiling)
