"""The ablation run: blocks of steps with stages taken away, interleaved, in one process per worker.

The stages (see ``AblatedStep.stages``) take turns in blocks, in an order that is random and the same on all workers,
so that drift hits all alike and every phase is a difference of neighbours in time. A timing run has none of this.

On processors the workers begin each step of an unsynchronised stage together. On devices they begin each block
together, and steps follow each other as in training: a step that begins on an idle device would have the time in which
the host issues its first kernels, which the steps of the other stages hide behind the step before.

Each step of each stage ends with one mark of the clock, which differences of stages are free of: of the phases, only
the first has it. Its cost is in the record (``tick_s``).
"""

import random
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, cast

from steptime.worker.clock import StepClock
from steptime.worker.handshake import Rendezvous
from steptime.worker.process_context import Job, ProcessContext
from steptime.worker.session import MARKS, AblatedStep, Session
from steptime.worker.shared_file import RecordFile
from steptime.worker.timing import MOST_STRETCHES, more_warmup, seconds_of_tick

NESTED_STAGES = ("forward", "backward", "local", "exchange", "h2d", "step")
"""Each does what the one before does, and one thing more."""
SEPARATE_STAGES = ("input", "communication", "marked")
_UNSYNCHRONIZED = ("forward", "backward", "local", "input")
"""Stages in which workers do not wait for each other."""
_FROM_THE_LOADER = ("step", "marked", "input")
_WARM_STEPS = 3


def run_ablation(session: Session, job: Job, context: ProcessContext, records: RecordFile) -> None:
    """Time all stages of ``session``'s step in interleaved blocks, and write every step's duration to ``records``."""
    schedule = job["schedule"]
    ablated = session.ablate()
    marked = _MarkedSteps(ablated)
    stages = dict(ablated.stages()) if ablated is not None else {}
    stages["step"] = session.step
    if marked.phases:
        stages["marked"] = marked.step
    names = [name for name in NESTED_STAGES + SEPARATE_STAGES if name in stages]
    uncounted = {name: 1 + (session.batches_ahead() if name in _FROM_THE_LOADER else 0) for name in names}
    with Rendezvous(context) as rendezvous:
        clock = session.clock()
        timer = _StageTimer(clock, rendezvous, stages, on_device=job["device"] != "cpu")
        warm = timer.run("step", schedule["warmup_steps"])
        for _ in range(MOST_STRETCHES if "warmup_seconds" in schedule else 0):
            warm += timer.run("step", rendezvous.from_first(more_warmup(warm, schedule)))
        costs = {name: min(timer.run(name, _WARM_STEPS)) for name in names}
        blocks, steps = rendezvous.from_first(_plan(costs, uncounted, schedule))
        before = rendezvous.clock_offset()
        durations: Dict[str, List[List[float]]] = {name: [] for name in names}
        order: List[List[str]] = []
        shuffled = random.Random(job["seed"])  # noqa: S311 - reproducible, not secret
        for _ in range(blocks):
            turn = list(names)
            shuffled.shuffle(turn)
            order.append(turn)
            for name in turn:
                ahead = uncounted[name]
                rendezvous.barrier()
                if name == "marked":
                    timer.run(name, ahead)
                    marked.begin_block()
                    ahead = 0
                durations[name].append(timer.run(name, steps[name], ahead))
                if name == "marked":
                    marked.end_block()
        clocks = [before, rendezvous.clock_offset()]
    records.write(
        "ablation",
        stages=durations,
        order=order,
        clocks=clocks,
        marks=list(marked.phases),
        marked=marked.ends,
        transfers=marked.transfers,
        native=marked.native,
        tick_s=seconds_of_tick(clock),
    )


class _StageTimer(object):
    """Runs and times steps of any stage; a device is idle before and after ``run``, since the clock's drain waits."""

    def __init__(
        self, clock: StepClock, rendezvous: Rendezvous, stages: Dict[str, Callable[[], Any]], on_device: bool
    ) -> None:
        """Take the clock, the rendezvous, the stages, and whether a device computes what the host issues."""
        self._clock = clock
        self._rendezvous = rendezvous
        self._stages = stages
        self._on_device = on_device

    def run(self, name: str, count: int, ahead: int = 0) -> List[float]:
        """Run ``ahead`` steps of a stage and ``count`` more; return how long each of the latter took, in seconds."""
        function, clock = self._stages[name], self._clock
        together = name in _UNSYNCHRONIZED and not self._on_device
        clock.drain()
        clock.tick()
        for _ in range(ahead + count):
            if together:
                clock.tick()
                self._rendezvous.barrier()
                clock.tick()
            function()
            clock.tick()
        ends = clock.drain()
        stride = 3 if together else 1
        return [ends[index] - ends[index - 1] for index in range(stride * (ahead + 1), len(ends), stride)]


class _MarkedSteps(object):
    """What the marked steps of all blocks showed, in the form of the record.

    ``phases``
        The phases that are marked; empty where there are no marked steps.
    ``ends``
        For each counted step when it began and when each phase ended, in seconds.
    ``transfers``, ``native``
        As ``AblatedStep`` gives them: the transfers of all blocks, the native durations block by block.
    """

    def __init__(self, ablated: Optional[AblatedStep]) -> None:
        self._ablated = cast("AblatedStep", ablated)  # None only where no step is marked
        self.phases = tuple(ablated.marks) if ablated is not None else ()
        # Without the arrival of each worker the wait for slower ones would count as communication.
        alone = "exchange" in self.phases and "backward" not in self.phases
        if list(self.phases) != [mark for mark in MARKS if mark in self.phases] or alone:
            raise ValueError(
                "marks of a step are some of %s, in this order, and 'exchange' needs 'backward'; %s gives %s"
                % (", ".join(MARKS), type(ablated).__name__, _listed(self.phases))
            )
        self.ends: List[List[float]] = []
        self.transfers: List[List[Any]] = []
        self.native: List[Dict[str, Any]] = []
        self._counting = False
        self._newest: List[float] = []
        self._named: List[str] = []

    def begin_block(self) -> None:
        """Count the steps that follow, and forget what the framework saw of those before."""
        self._counting = True
        self._ablated.transfers()
        self._ablated.native()

    def end_block(self) -> None:
        """Count no more steps."""
        self._counting = False
        self.transfers += self._ablated.transfers() or []
        self.native.append(self._ablated.native())

    def step(self) -> None:
        """Run one marked step."""
        self._newest, self._named = [time.monotonic()], []
        self._ablated.marked_step(self._mark)
        if tuple(self._named) != self.phases:
            raise ValueError(
                "marked_step of %s marked %s where its marks are %s"
                % (type(self._ablated).__name__, _listed(self._named), _listed(self.phases))
            )
        if self._counting:
            self.ends.append(self._newest)

    def _mark(self, name: str, at_s: Optional[float] = None) -> None:
        self._newest.append(time.monotonic() if at_s is None else at_s)
        self._named.append(name)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "nothing"


def _plan(costs: Dict[str, float], uncounted: Dict[str, int], schedule: Dict[str, Any]) -> Tuple[int, Dict[str, int]]:
    """Return how many blocks there are, and how many steps of each stage a block has.

    Every stage gets about the same time; slow steps get fewer blocks, but not fewer than ``min_blocks``, since the
    blocks are the sample that the intervals come from.
    """
    whole_s = sum((uncounted[name] + 1) * max(costs[name], 1e-6) for name in costs)
    blocks = int(max(schedule["min_blocks"], min(schedule["max_blocks"], schedule["seconds"] / whole_s)))
    share_s = schedule["seconds"] / (blocks * len(costs))
    steps = {}
    for name, cost_s in costs.items():
        wanted = share_s / max(cost_s, 1e-6) - uncounted[name]
        steps[name] = int(max(1, min(schedule["max_steps"], wanted)))
    return blocks, steps
