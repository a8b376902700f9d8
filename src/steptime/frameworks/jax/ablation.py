"""The ablated step in JAX, each stage a program of its own, and the clock of steps that JAX runs behind Python."""

import contextlib
import queue
import threading
import time

from steptime.worker.ablated_step import AblatedStep
from steptime.worker.clock import EventClock


class JaxAblation(AblatedStep):
    """Stages that are not waited for, as steps are not: the device is as busy in them as in training.

    All but the whole step are compiled when they first run. All gradients are results of the program that applies
    them to nothing, since XLA would not compute them otherwise.
    """

    def __init__(self, step, train, run, take, *, several):
        """Take a session's parts.

        Args:
            step: a ``JaxStep``.
            train: the compiled whole step.
            run: runs a compiled function of the step on a batch.
            take: returns the next batch.
            several: whether there are other workers.
        """
        self._step = step
        self._train = train
        self._run = run
        self._take = take
        self._several = several

    def stages(self):
        held = self._take()
        parts = ["forward", "backward"] + ["local", "communication"] * self._several
        # Parts of the state that a program does not read lend it their memory, too.
        programs = {name: self._step.compiled(getattr(self._step, name), keep_unused=True) for name in parts}
        programs["exchange" if self._several else "local"] = self._train
        stages = {name: self._on(program, held) for name, program in programs.items()}
        stages["input"] = self._take
        return stages

    def _on(self, program, held):
        return lambda: self._run(program, held)


def step_clock(newest, wait):
    """Return a clock whose steps end when the array that ``newest()`` returns after the step is computed.

    A thread waits for one array after the other. Waiting for them in the loop instead would keep the device idle
    while Python issues the next step, which no training does.
    """
    marks = _DeviceMarks(newest, wait)
    return EventClock(marks.push, lambda earlier, later: later.at_s - earlier.at_s, marks.wait)


class _DeviceMark(object):
    """``at_s`` is the host's monotonic time of the moment, once it has come."""

    at_s = None


class _DeviceMarks(object):
    def __init__(self, newest, wait):
        self._newest = newest
        self._wait = wait
        self._pending = queue.Queue()
        threading.Thread(target=self._note, name="step ends", daemon=True).start()

    def push(self):
        """Return a mark behind the newest array."""
        mark = _DeviceMark()
        self._pending.put((mark, self._newest()))
        return mark

    def wait(self):
        """Wait until everything is computed and all marks are noted; raises what the computation raised."""
        self._wait()
        self._pending.join()

    def _note(self):
        while True:
            mark, array = self._pending.get()
            with contextlib.suppress(Exception):  # whoever waits next meets the same failure, and reports it
                array.block_until_ready()
            mark.at_s = time.monotonic()
            self._pending.task_done()
            del array
