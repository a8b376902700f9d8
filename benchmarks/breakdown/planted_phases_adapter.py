"""A framework's own adapter, each step of which spins in one phase; ``plant.json`` names it, and the seconds.

It runs in the framework's environment (Python 3.6) from a run folder, where ``unplanted.py`` is the framework's own
adapter. The session, its ablated stages and its marked step all spin alike, and each spin is written down. A sleep
would not do: who has slept is preempted less behind it, and a step on a busy machine grows by less than the sleep.
"""

import importlib
import json
import os
import time

from steptime.worker.framework import Framework

_HERE = os.path.dirname(os.path.abspath(__file__))
_STAGES = {
    "forward": ("forward", "backward", "local", "exchange"),
    "backward": ("backward", "local", "exchange"),
    "update": ("local", "exchange"),
    "input_wait": ("input",),
}
"""The stages that have a phase; the whole step has each."""
_MARKS = {"input_wait": "input"}


class _Spin(object):
    def __init__(self, context, seconds):
        self._lasted = open(os.path.join(context.folder, "planted-%d.txt" % context.rank), "w", buffering=1)
        self._seconds = seconds

    def __call__(self):
        started = time.monotonic()
        seconds = 0.0
        while seconds < self._seconds:
            seconds = time.monotonic() - started
        self._lasted.write("%r\n" % seconds)
        return seconds

    def before(self, function):
        """Return what spins, and then calls ``function``."""

        def slower(*arguments):
            self()
            return function(*arguments)

        return slower


def open_session(job, context):
    """Open the framework's session and plant the spin."""
    adapter = importlib.import_module(__name__.rsplit(".", 1)[0] + ".unplanted")
    session = adapter.FRAMEWORK.open_session(job, context)
    with open(os.path.join(_HERE, "plant.json")) as file:
        plant = json.load(file)
    spin = _Spin(context, plant["seconds"])
    session.step = spin.before(session.step)
    ablate = session.ablate
    session.ablate = lambda: _planted(ablate(), plant["fault"], spin)
    return session


def _planted(ablated, phase, spin):
    stages, marked_step = ablated.stages, ablated.marked_step
    ablated.stages = lambda: {
        name: spin.before(function) if name in _STAGES[phase] else function for name, function in stages().items()
    }
    last = _MARKS.get(phase, phase)
    passed = ("input", "h2d", "forward", "backward", "exchange", "update")

    def marked(mark):
        shifts = []

        def later(name, at_s=None):
            # Where the phase has no mark of its own, the next one ends it.
            if not shifts and passed.index(name) >= passed.index(last):
                shifts.append(spin())
            mark(name, at_s + sum(shifts) if at_s is not None else None)

        marked_step(later)

    ablated.marked_step = marked
    return ablated


FRAMEWORK = Framework(open_session)
