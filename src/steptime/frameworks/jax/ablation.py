"""The step with stages taken away, for the breakdown of a step: each is a program of its own.

Moments at which steps end, noted without holding up the program that issues them.
"""

import contextlib
import queue
import threading
import time

from steptime.worker.clock import EventClock


def ablation_stages_of(step, train, run, take, *, together):
    """Return the stages of ``Session.stages``; all but ``train`` are compiled when they first run.

    They are not waited for, as steps are not: the device is as busy in them as in training. All gradients are results
    of the program that applies them to nothing, else XLA would not compute them.

    Args:
        step: a ``Step``.
        train: the compiled whole step.
        run: runs a compiled function of the step on a batch.
        take: returns the next batch.
        together: whether there are other workers.
    """
    held = take()
    parts = ["forward", "backward"] + ["local", "communication"] * together
    # Parts of the state that a program does not read lend it their memory, too.
    programs = {name: step.compiled(getattr(step, name), keep_unused=True) for name in parts}
    programs["exchange" if together else "local"] = train
    stages = {name: _on(run, program, held) for name, program in programs.items()}
    stages["input"] = take
    return stages


def _on(run, program, held):
    return lambda: run(program, held)


def step_clock(newest, wait):
    """Return a clock whose steps end when the array that ``newest()`` returns after the step is computed.

    A thread waits for one array after the other. Waiting for them in the loop instead would keep the device idle
    while Python issues the next step, which no training does.
    """
    marks = _Marks(newest, wait)
    return EventClock(marks.push, lambda earlier, later: later.at_s - earlier.at_s, marks.wait)


class _Mark(object):
    """``at_s`` is the host's monotonic time of the moment, once it has come."""

    at_s = None


class _Marks(object):
    def __init__(self, newest, wait):
        self._newest = newest
        self._wait = wait
        self._pending = queue.Queue()
        threading.Thread(target=self._note, name="step ends", daemon=True).start()

    def push(self):
        """Return a mark behind the newest array."""
        mark = _Mark()
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
