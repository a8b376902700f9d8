"""The loops of timed runs, the same for every framework: whole steps and nothing else, or the loader alone."""

import os
import sys
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional

from steptime.worker.clock import HostClock, StepClock
from steptime.worker.handshake import Rendezvous
from steptime.worker.kernel_marks import KernelMarks
from steptime.worker.process_context import Job, ProcessContext
from steptime.worker.session import KeptLosses, Session
from steptime.worker.shared_file import RecordFile, await_file, read_json, write_json
from steptime.worker.usage import usage, used_since

if TYPE_CHECKING:
    from steptime.worker.timed_evidence import Pause

FIRST, LATER = "first", "later"
"""The two stretches: within the first epoch, and in epochs behind it."""


def run_loader(session: Session, job: Job, context: ProcessContext, records: RecordFile) -> None:
    """Take batches of the first epoch, then of later ones, and write their ends and their cost to ``records``.

    A stretch lasts ``schedule["seconds"]`` at most; where the first epoch takes longer, no later one is timed. In each
    stretch, the batches that may have been ready before it began are taken first and not counted.

    Raises RuntimeError where the framework cannot take a batch without training on it.
    """
    ablated = session.ablate()
    take = ablated.stages().get("input") if ablated is not None else None
    if take is None:
        raise RuntimeError(
            "%s cannot take a batch without training on it under the strategy %r, so that its loader cannot be timed "
            "alone" % (job["framework"], job["strategy"])
        )
    from steptime.worker.samples import steps_per_epoch  # it needs numpy, which a timed launch may lack

    schedule, loader = job["schedule"], job["loader"]
    ready = 1 + session.batches_ahead()
    epoch = steps_per_epoch(loader["dataset"]["samples"], context.workers, job["batch_per_worker"])
    # The session may have taken a batch of the epoch already.
    counted = max(1, epoch - ready - 1)
    stretches, clock = [], session.clock()
    with Rendezvous(context) as rendezvous:
        rendezvous.barrier()
        stretches.append(_stretch(FIRST, take, clock, ready, counted, schedule["seconds"]))
        # All or none: a worker that is behind the others would be alone in the second stretch.
        if rendezvous.from_first(len(stretches[0]["ends_s"]) == counted):
            rendezvous.barrier()
            stretches.append(_stretch(LATER, take, clock, ready, None, schedule["seconds"]))
        rendezvous.barrier()  # no worker ends its helpers while others are timed
    ahead, tick_s = session.batches_ahead(), seconds_of_tick(clock)
    records.write("loader", stretches=stretches, batches_per_epoch=epoch, batches_ahead=ahead, tick_s=tick_s)


def _stretch(  # noqa: PLR0913, PLR0917 - one per fact
    name: str, take: Callable[[], Any], clock: StepClock, uncounted: int, most: Optional[int], seconds: float
) -> Dict[str, Any]:
    """Return the ends and the usage of ``most`` batches, or of those that ``seconds`` suffice for, one at least."""
    for _ in range(uncounted):
        take()
    clock.drain()
    before = usage()
    clock.tick()
    deadline = time.monotonic() + seconds
    batches = 0
    while most is None or batches < most:
        take()
        clock.tick()
        batches += 1
        if time.monotonic() >= deadline:
            break
    ends = clock.drain()
    return {"name": name, "origin_s": ends[0], "ends_s": ends[1:], "usage": used_since(before)}


def run_timed(session: Session, job: Job, context: ProcessContext, records: RecordFile) -> None:
    """Warm up, agree on the number of steps, time them, and write the ends of all steps to ``records``.

    Nothing but the step and one clock tick runs inside the timed window, but for what ``timed_evidence`` keeps of few
    steps. Where the schedule has a ``pause``, behind which part of the timed steps, evidence is taken there, and the
    steps go on behind it as if no time had passed.
    """
    clock = session.clock()
    schedule = job["schedule"]
    losses = KeptLosses(session)
    evidence = None
    # A session without arrays, as of tests, has drawn no batches and holds no weights.
    if "numpy" in sys.modules:
        from steptime.worker.timed_evidence import Evidence

        evidence = Evidence(session, job, context)
    started = time.monotonic()
    # Sketches come ahead of the ends of first steps, so that no later one lasts longer.
    first_updates = evidence.first_updates(losses.take, schedule["warmup_steps"]) if evidence else []
    if evidence is None:
        losses.take(1)
    taken = max(len(first_updates), 1)
    for _ in range(taken):
        clock.tick()
    warmup_ends = _warm_up(losses.take, clock, context, schedule, taken)
    records.write("warmup", started_s=started, ends_s=warmup_ends, loss=session.loss(), first_updates=first_updates)
    steps = agree_on_step_count(context, warmup_ends, schedule)
    pause = None
    if evidence is not None and "pause" in schedule and steps > 1:
        pause = evidence.pause_behind(1 + int(schedule["pause"] * (steps - 1)))
    session.staleness()  # of the warm-up, which is not counted
    losses.take(1)  # the workers come out of the pause at different moments; this step lines them up again
    timed = _TimedSteps(session, clock, losses, steps, pause)
    paused: Optional[Dict[str, Any]] = None
    if pause is not None:
        paused = dict(pause.evidence(losses.take, len(warmup_ends) + 1 + timed.taken), behind=timed.taken)
        if timed.taken < steps:
            session.staleness()
            ready = 1 + session.batches_ahead()  # as many steps see no slow loader behind a pause
            losses.take(ready)
            paused["steps"] += ready
            paused.update(timed.go_on(_TimedSteps(session, clock, losses, steps - timed.taken, None)))
    last, more = session.loss(), paused["steps"] if paused else 0
    records.write(
        "steps",
        origin_s=timed.origin_s,
        ends_s=timed.ends_s,
        kernel_marks=timed.kernel_marks,
        loss=last,
        usage=timed.used,
        staleness=timed.stale,
        tick_s=seconds_of_tick(clock),
        losses=losses.read(),
        samples=session.output_shape()[0],
        pause=paused,
        **(evidence.at_end(len(warmup_ends) + 1 + steps + more) if evidence else _NO_EVIDENCE),
    )


class _TimedSteps(object):
    """Steps of a session, as they were timed: ``steps`` of them, or fewer where a ``pause`` is due."""

    def __init__(
        self, session: Session, clock: StepClock, losses: KeptLosses, steps: int, pause: Optional["Pause"]
    ) -> None:
        tick = clock.tick if pause is None else pause.tick(clock.tick)
        held_up = isinstance(clock, HostClock)
        with KernelMarks() as marks:
            before = usage()  # ahead of the first end, so that the usage covers all that is timed
            marks.put(0, over=False)
            clock.tick()
            marks.put(1, over=clock.settle())
            most = steps if pause is None else pause.most(steps)
            self.taken = losses.take(most, tick, lambda taken: marks.put(taken + 1, held_up))
            if pause is not None:
                pause.begin()
            session.wait()
            marks.put(self.taken + 1, over=clock.settle())
            clock.tick()  # between two marks at which nothing is under way, whatever the clock waits for
            ends = clock.drain()
            marks.put(self.taken + 2, over=True)
        self.used, self._summed = used_since(before), tuple(before)
        if len(ends) != self.taken + 2:
            raise RuntimeError(
                "the clock noted %d moments of %d: it must note one at each tick" % (len(ends), self.taken + 2)
            )
        stale = session.staleness()
        self.stale = None if stale is None else {str(updates): count for updates, count in sorted(stale.items())}
        self.origin_s, self.ends_s, self.settled_s = ends[0], ends[1:-1], ends[-1]
        self.kernel_marks = {"marks": marks.read() if clock.is_own else [], "settled_s": self.settled_s}

    def go_on(self, later: "_TimedSteps") -> Dict[str, Any]:
        """Join ``later`` steps to these, as if no time had passed between them; return what the join left out.

        The later marks of the kernel remain by themselves: each clock sees a pause begin and end at moments of its own.
        """
        lasted_s = later.origin_s - ([self.origin_s] + self.ends_s)[-1]
        self.ends_s = self.ends_s + [end - lasted_s for end in later.ends_s]
        self.used = dict(later.used, **{name: self.used[name] + later.used[name] for name in self._summed})
        if self.stale is not None:
            for updates, count in (later.stale or {}).items():
                self.stale[updates] = self.stale.get(updates, 0) + count
        marks = dict(later.kernel_marks, settled_s=later.settled_s - lasted_s)
        return {"lasted_s": lasted_s, "kernel_marks": marks}


_NO_EVIDENCE: Dict[str, Any] = {"drawn": None, "batches": [], "weights": [], "alone": None}


_TICKS = 50


def seconds_of_tick(clock: StepClock) -> float:
    """Return how long one mark of ``clock`` takes, on the host or on the device, whichever is longer.

    It is part of every step that is timed. Called when all steps are over.
    """
    clock.drain()
    started = time.monotonic()
    for _ in range(_TICKS):
        clock.tick()
    clock.drain()
    return (time.monotonic() - started) / _TICKS


def _warm_up(
    take: Callable[..., Any], clock: StepClock, context: ProcessContext, schedule: Dict[str, Any], taken: int
) -> List[float]:
    """Run the steps that are not counted, as many on all workers; return their ends, with those ``taken`` already."""
    ends: List[float] = []
    steps, stretches = schedule["warmup_steps"] - taken, 0
    while True:
        take(steps, clock.tick)
        ends += clock.drain()
        stretches += 1
        if "warmup_seconds" not in schedule or stretches == MOST_STRETCHES:
            return ends
        gaps = [later - earlier for earlier, later in zip(ends, ends[1:])]
        steps = _agreed(context, "warmup_%d" % stretches, lambda: more_warmup(gaps, schedule), schedule)  # noqa: B023
        if not steps:
            return ends


MOST_STRETCHES = 8
"""Of a warm-up of a device."""
_FEWEST_WARM = 5
"""Steps of it."""
_STEADY = 0.02
"""Of a step: by how much the medians of the last two quarters of a steady warm-up may differ."""


def more_warmup(gaps: List[float], schedule: Dict[str, Any]) -> int:
    """Return how many steps more a device needs to warm up; 0 if it is warm.

    That takes ``warmup_seconds`` from the end of the first step, in which frameworks compile, and lasts until steps are
    steady: a device raises its clocks when it has work, and lowers them when it is hot.

    Args:
        gaps: the seconds of the steps behind the first one.
        schedule: the job's.
    """
    wanted_s: float = schedule["warmup_seconds"]
    quarter = len(gaps) // 4
    step_s = max(_median(gaps[-quarter:]), 1e-6)
    left_s, fewest = wanted_s - sum(gaps), _FEWEST_WARM - 1 - len(gaps)
    if left_s > 0.0 or fewest > 0:
        wanted = max(fewest, left_s / step_s + 1.0 if gaps else 1.0)
    elif quarter and abs(_median(gaps[-2 * quarter : -quarter]) / step_s - 1.0) > _STEADY:
        wanted = max(1.0, 0.5 * wanted_s / step_s)
    else:
        return 0
    return int(min(schedule["max_steps"], wanted))


def _median(values: List[float]) -> float:
    return sorted(values)[len(values) // 2] if values else 0.0


def agree_on_step_count(context: ProcessContext, warmup_ends: List[float], schedule: Dict[str, Any]) -> int:
    """Return the number of steps to time, the same on every worker; called between the warm-up and the timed steps.

    A synchronous strategy hangs when one worker steps more often than another, and no messaging exists that every
    framework shares: rank 0 writes the number into the run folder, which all workers of a launch share.

    Args:
        context: of this worker.
        warmup_ends: the ends of this worker's warm-up steps, in seconds.
        schedule: the job's ``schedule``: ``seconds`` is the time aimed for, ``min_steps`` and ``max_steps`` bound
            the number of steps.

    Raises RuntimeError when rank 0's number does not arrive within ``schedule["agree_timeout_s"]``.
    """
    return _agreed(context, "step_count", lambda: _steps(warmup_ends, schedule), schedule)


def _agreed(context: ProcessContext, name: str, choose: Callable[[], int], schedule: Dict[str, Any]) -> int:
    """Return the number that ``choose`` gives on worker 0, which announces it under ``name`` in the run folder."""
    path = os.path.join(context.folder, name + ".json")
    if context.rank == 0:
        steps = choose()
        write_json(path, {"steps": steps})
        return steps
    if not await_file(path, schedule.get("agree_timeout_s", 600.0)):
        raise RuntimeError("worker 0 did not announce the number of steps in %s" % path)
    announced: int = read_json(path)["steps"]
    return announced


def _steps(ends: List[float], schedule: Dict[str, Any]) -> int:
    step_s = _median([later - earlier for earlier, later in zip(ends, ends[1:])])
    least: int = schedule["min_steps"]
    if step_s <= 0.0:
        return least
    wanted = schedule["seconds"] / step_s  # may be infinite, which no int can hold
    return max(least, int(min(schedule["max_steps"], wanted)))
