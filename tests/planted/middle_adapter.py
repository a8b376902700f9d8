"""The framework's own adapter, wrong from step 12 to 40 and right before and behind; ``plant.json`` says how.

Steps are counted from 1 in the warm-up. What is wrong is so only where steps are timed, not where they are repeated.
"""

import json
from pathlib import Path

from steptime.worker.framework import Framework

FIRST, LAST = 12, 40


def open_session(job, place):
    """Open the framework's session and plant the fault, if steps are timed."""
    from steptime.frameworks.pytorch.trained import FRAMEWORK as REAL  # noqa: PLC0415 - the framework's environment alone has it

    session = REAL.open_session(job, place)
    fault = json.loads((Path(__file__).parent / "plant.json").read_text())["cause"]
    if json.loads((Path(place.folder) / "job.json").read_text())["mode"] == "time":
        _FAULTS[fault](session)
    return session


def serve(job, place):
    """Be a server of the framework."""
    from steptime.frameworks.pytorch.trained import FRAMEWORK as REAL  # noqa: PLC0415 - see above

    return REAL.serve(job, place)


class _Counter:
    """Counts the steps of a session."""

    def __init__(self, session):
        self.number, self._step = 0, session.step
        session.step = self._counted

    def _counted(self):
        self.number += 1
        self._step()

    def is_wrong(self):
        return FIRST <= self.number <= LAST


def _part_of_the_batch(session):
    """The loss is that of a quarter of the batch."""
    count, loss = _Counter(session), session._forward.loss

    def of_part(inputs, targets):
        part = len(inputs) // 4 if count.is_wrong() else len(inputs)
        return loss(inputs[:part], targets[:part])

    session._forward.loss = of_part


def _pushes(session, change):
    """Have ``change`` called with the strategy, whether steps are wrong, and what pushes."""
    count, strategy = _Counter(session), session._strategy
    send = strategy.send
    strategy.send = lambda: change(strategy, count, send)


def _old_gradient(session):
    """The gradient is that of the last right step."""
    kept = []

    def change(strategy, count, send):
        if not count.is_wrong():
            kept[:] = [row.clone() for row in strategy._gradients]
        else:
            for row, old in zip(strategy._gradients, kept, strict=True):
                row.copy_(old)
        send()

    _pushes(session, change)


def _rarer_pushes(session):
    """Every second push is left out."""

    def change(_, count, send):
        if not count.is_wrong() or count.number % 2:
            send()

    _pushes(session, change)


def _array_kept_back(session):
    """One array is not updated, and has what it lacks behind the last wrong step."""
    count, array, held, right = _Counter(session), list(session._built.module.parameters())[-1].data, [], []
    step = count._step

    def kept_back():
        if right:
            array.copy_(right.pop())
        if count.is_wrong() and not held:
            held.append(array.clone())
        step()
        if count.is_wrong():
            right.append(array.clone())
            array.copy_(held[0])

    count._step = kept_back


_FAULTS = {
    "none": lambda _: None,
    "a quarter of the batch": _part_of_the_batch,
    "an old gradient": _old_gradient,
    "every second push left out": _rarer_pushes,
    "an array kept back": _array_kept_back,
}

FRAMEWORK = Framework(open_session, serve=serve)
