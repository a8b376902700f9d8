"""The framework's own adapter, wrong from step 12 to 40 and right before and behind; ``plant.json`` says how.

Steps are counted from 1 in the warm-up. What is wrong is so only where steps are timed, not where they are repeated.

The first worker pauses behind a known step, within those. Where workers do not wait for each other, another one pauses
behind whichever step it has come to, which other load decides: it is wrong from its first timed step to its last one
in the pause.
"""

import json
import time
from pathlib import Path

from steptime.worker.framework import Framework

FIRST, LAST = 12, 40
FIRST_TIMED = 7
"""Behind five steps of the warm-up and one that lines the workers up."""
HELD = 60
"""Behind which a worker waits until it is called: on a busy machine it would end its steps before."""
IN_PAUSE = 4
"""Steps that a worker takes in the pause, and one that it may have begun as it was called for."""


def open_session(job, place):
    """Open the framework's session and plant the fault, if steps are timed."""
    from steptime.frameworks.pytorch.trained import FRAMEWORK as REAL  # noqa: PLC0415 - the framework's environment alone has it

    session = REAL.open_session(job, place)
    fault = json.loads((Path(__file__).parent / "plant.json").read_text())["cause"]
    if json.loads((Path(place.folder) / "job.json").read_text())["mode"] == "time":
        _FAULTS[fault](session, Path(place.folder) / "pause.flag" if place.rank else None)
    return session


def serve(job, place):
    """Be a server of the framework."""
    from steptime.frameworks.pytorch.trained import FRAMEWORK as REAL  # noqa: PLC0415 - see above

    return REAL.serve(job, place)


class _Counter:
    """Counts the steps of a session; ``call`` is the file in which another worker calls this one to the pause."""

    def __init__(self, session, call):
        self.number, self._since_call, self._call, self._step = 0, 0, call, session.step
        session.step = self._counted

    def _counted(self):
        self.number += 1
        while self.number == HELD and self._is_called() and self._call.read_bytes() == b"\0":
            time.sleep(0.01)
        self._since_call += self._is_called() and self._call.read_bytes() != b"\0"
        self._step()

    def _is_called(self):
        return self._call is not None and self._call.exists()

    def is_wrong(self):
        if self._is_called():
            return self.number >= FIRST_TIMED and self._since_call <= IN_PAUSE
        return FIRST <= self.number <= LAST


def _part_of_the_batch(session, call):
    """The loss is that of a quarter of the batch."""
    count, loss = _Counter(session, call), session._forward.loss

    def of_part(inputs, targets):
        part = len(inputs) // 4 if count.is_wrong() else len(inputs)
        return loss(inputs[:part], targets[:part])

    session._forward.loss = of_part


def _pushes(session, call, change):
    """Have ``change`` called with the strategy, whether steps are wrong, and what pushes."""
    count, strategy = _Counter(session, call), session._strategy
    send = strategy.send
    strategy.send = lambda: change(strategy, count, send)


def _old_gradient(session, call):
    """The gradient is that of the last right step."""
    kept = []

    def change(strategy, count, send):
        if not count.is_wrong():
            kept[:] = [row.clone() for row in strategy._gradients]
        else:
            for row, old in zip(strategy._gradients, kept, strict=True):
                row.copy_(old)
        send()

    _pushes(session, call, change)


def _rarer_pushes(session, call):
    """Every second push is left out."""

    def change(_, count, send):
        if not count.is_wrong() or count.number % 2:
            send()

    _pushes(session, call, change)


def _array_kept_back(session, call):
    """One array is not updated, and has what it lacks behind the last wrong step."""
    count, held, right = _Counter(session, call), [], []
    array = list(session._built.module.parameters())[-1].data
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
    "none": lambda *_: None,
    "a quarter of the batch": _part_of_the_batch,
    "an old gradient": _old_gradient,
    "every second push left out": _rarer_pushes,
    "an array kept back": _array_kept_back,
}

FRAMEWORK = Framework(open_session, serve=serve)
