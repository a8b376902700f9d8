"""A framework's own adapter with a fault that exists only where steps are timed.

It runs in the framework's environment (Python 3.6) from a run folder, where ``unplanted.py`` is the framework's own
adapter and ``plant.json`` names the fault. It reads the mode from ``job.json``, as an adapter that cheats could.
"""

import importlib
import json
import os

from steptime.worker.clock import HostClock
from steptime.worker.framework import Framework

_HERE = os.path.dirname(os.path.abspath(__file__))


def open_session(job, context):
    """Open the framework's session with the fault planted."""
    with open(os.path.join(_HERE, "plant.json")) as file:
        fault = json.load(file)["fault"]
    with open(os.path.join(context.folder, "job.json")) as file:
        timed = json.load(file)["mode"] == "time"
    if timed:
        _before(fault, job, context)
    session = _unplanted().open_session(job, context)
    if timed:
        _behind(fault, session, context)
    return session


def serve(job, context):
    """Be a server of the framework."""
    return _unplanted().serve(job, context)


def _unplanted():
    return importlib.import_module(__name__.rsplit(".", 1)[0] + ".unplanted").FRAMEWORK


def _before(fault, job, context):
    """Change the job that the session is opened with."""
    if fault in _JOBS:
        _JOBS[fault](job, context)
    elif fault in _ORDERS:
        from steptime.worker import batches

        right, changed = batches.worker_order, _ORDERS[fault]
        batches.worker_order = lambda job, rank, workers: changed(right(job, rank, workers))


def _behind(fault, session, context):
    """Change the session."""
    if fault in _STEPS:
        session.step = _STEPS[fault](session.step, context)
    elif fault == "a clock that notes the dispatch":
        session.clock = lambda: _Dispatched(session.wait)


class _Dispatched(HostClock):
    """Takes a step for over a hundredth of the time after the one before: the moment of the call, nearly."""

    def drain(self):
        ends = HostClock.drain(self)
        return [ends[0] + 0.01 * (end - ends[0]) for end in ends]


def _alone(job, _):
    job["strategy"] = "single"


def _smaller(by):
    def change(job, _):
        job["batch_per_worker"] = by(job["batch_per_worker"])

    return change


def _skipping(every, whole=0):
    """Take only one of so many steps, behind so many whole ones."""

    def wrap(step, _):
        count = [0]

        def taken():
            if count[0] < whole or count[0] % every == 0:
                step()
            count[0] += 1

        return taken

    return wrap


def _first_again(order):
    first = None
    for epoch, chosen in order:
        first = chosen if first is None else first
        yield epoch, first


_JOBS = {
    "no exchange": _alone,
    "batch cut to 8": _smaller(lambda _: 8),
    "batch halved": _smaller(lambda batch: batch // 2),
    "batch less by one": _smaller(lambda batch: batch - 1),
    "rate 0": lambda job, _: job["optimizer"].update(learning_rate=1e-12),
    "momentum missing": lambda job, _: job["optimizer"].update(momentum=0.0),
    "gradients summed": lambda job, context: job["optimizer"].update(
        learning_rate=job["optimizer"]["learning_rate"] * context.workers
    ),
    "other initial weights": lambda job, _: job.update(seed=job["seed"] + 1),
}
_ORDERS = {"the same batch again and again": _first_again}
_STEPS = {
    "nine of ten steps not taken": _skipping(10),
    "every second step not taken": _skipping(2),
    "every second step not taken from the 20th on": _skipping(2, 20),
}
FAULTS = [*_JOBS, *_ORDERS, *_STEPS, "a clock that notes the dispatch"]

FRAMEWORK = Framework(open_session, serve=serve)
