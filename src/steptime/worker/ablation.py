"""The breakdown of a step: blocks of steps with stages taken away, interleaved, in one process per worker.

The ablation's stages (see ``Session.stages``) take turns in blocks, in an order that is random and the same on all
workers, so that drift hits all alike and every phase is a difference of neighbours in time. A timing run has none of
this.
"""

import random
import time

from steptime.worker.rendezvous import Meeting

STAGES = ("forward", "backward", "local", "exchange", "h2d", "step")
BESIDE = ("input", "communication", "marked")
_ALONE = ("forward", "backward", "local", "input")
"""Rungs in which workers do not wait for each other; they are made to start every step together."""
_WARM_STEPS = 3


def run_ablation(session, job, context, records):
    """Climb the ablation in interleaved blocks and write the durations of all steps of all stages to ``records``."""
    schedule = job["schedule"]
    marker = _Marker()
    stages = dict(session.stages())
    stages["step"] = session.step
    if session.marks:
        stages["marked"] = lambda: marker.step(session)
    names = [name for name in STAGES + BESIDE if name in stages]
    settle = {name: 1 + (session.batches_ahead() if name in ("step", "marked", "input") else 0) for name in names}
    with Meeting(context) as meeting:
        stage_times = _StageTimer(session.clock(), meeting, stages)
        stage_times.run("step", schedule["warmup_steps"])
        costs = {name: min(stage_times.run(name, _WARM_STEPS)) for name in names}
        blocks, steps = meeting.from_first(_plan(costs, settle, schedule))
        before = meeting.offset()
        durations = {name: [] for name in names}
        order, pieces, native = [], [], []
        shuffled = random.Random(job["seed"])  # noqa: S311 - reproducible, not secret
        for _ in range(blocks):
            turn = list(names)
            shuffled.shuffle(turn)
            order.append(turn)
            for name in turn:
                meeting.together()
                stage_times.run(name, settle[name])
                if name == "marked":
                    marker.counting = True
                    session.transfers()  # of the steps before, which are not counted
                    session.native()
                durations[name].append(stage_times.run(name, steps[name]))
                if name == "marked":
                    marker.counting = False
                    pieces += session.transfers() or []
                    native.append(session.native())
        clocks = [before, meeting.offset()]
    records.write(
        "ablation",
        stages=durations,
        order=order,
        clocks=clocks,
        marks=list(session.marks),
        marked=marker.steps,
        transfers=pieces,
        native=native,
    )


class _StageTimer(object):
    """Runs and times steps of any stage."""

    def __init__(self, clock, meeting, stages):
        self._clock = clock
        self._meeting = meeting
        self._stages = stages

    def run(self, name, count):
        """Run ``count`` steps of a stage and return how long each took, in seconds."""
        function, clock, alone = self._stages[name], self._clock, name in _ALONE
        clock.drain()
        clock.tick()
        for _ in range(count):
            if alone:
                clock.tick()
                self._meeting.together()
                clock.tick()
            function()
            clock.tick()
        ends = clock.drain()
        stride = 3 if alone else 1
        return [ends[index] - ends[index - 1] for index in range(stride, len(ends), stride)]


class _Marker(object):
    """Keeps when each phase of the marked steps ended: ``[start, end of the first phase, …]`` for each step."""

    def __init__(self):
        self.steps = []
        self.counting = False
        self._ends = []

    def step(self, session):
        self._ends = [time.monotonic()]
        session.marked_step(self._mark)
        if self.counting:
            self.steps.append(self._ends)

    def _mark(self, _, at_s=None):
        self._ends.append(time.monotonic() if at_s is None else at_s)


def _plan(costs, settle, schedule):
    """Return how many blocks there are, and how many steps of each stage a block has.

    Every stage gets about the same time; slow steps get fewer blocks, but not fewer than ``min_blocks``, since blocks
    are what the intervals rest on.
    """
    whole_s = sum((settle[name] + 1) * max(costs[name], 1e-6) for name in costs)
    blocks = int(max(schedule["min_blocks"], min(schedule["max_blocks"], schedule["seconds"] / whole_s)))
    share_s = schedule["seconds"] / (blocks * len(costs))
    steps = {}
    for name in costs:
        wanted = share_s / max(costs[name], 1e-6) - settle[name]
        steps[name] = int(max(1, min(schedule["max_steps"], wanted)))
    return blocks, steps
