"""The framework's own adapter, with a cause planted in the session that it opens; ``plant.json`` says which.

What is asked for is not quite what happens on a busy machine, so that each process writes how long its pauses
really were.
"""

import json
import random
import time
from pathlib import Path

from steptime.worker.batches import Batches
from steptime.worker.framework import Framework


def open_session(job, place):
    """Open the framework's session and plant the cause."""
    from steptime.frameworks.pytorch.trained import FRAMEWORK as REAL  # noqa: PLC0415 - the framework's environment alone has it

    session = REAL.open_session(job, place)
    plant = json.loads((Path(__file__).parent / "plant.json").read_text())
    _CAUSES[plant["cause"]](session, place, plant)
    return session


class _Pauses:
    """Sleeps, and writes how long it took."""

    def __init__(self, place, seconds):
        self._seconds = seconds
        self._lasted = (Path(place.folder) / f"planted-{place.rank}.txt").open("w", buffering=1)

    def __call__(self, *_):
        started = time.monotonic()
        time.sleep(self._seconds)
        self._lasted.write(f"{time.monotonic() - started}\n")


def _pausing(session, place, plant):
    """A pause before the computation of one step of every ``every``, at random which: no worker pauses more often."""
    stream, sleep = random.Random(1000 + place.rank), _Pauses(place, plant["seconds"])
    due = []

    def pause(*_):
        if not due:
            due.extend(index == 0 for index in range(plant["every"]))
            stream.shuffle(due)
        if due.pop():
            sleep()

    session._built.module.register_forward_pre_hook(pause)


def _slow_loader(session, place, plant):
    """A loader that sleeps over every batch."""
    batches, sleep = session._forward.batches, _Pauses(place, plant["seconds"])

    def slowly():
        for batch in batches:
            sleep()
            yield batch

    session._forward.batches = Batches(slowly(), batches.ahead, batches.close)


def _long_update(session, place, plant):
    """An update that takes longer than the network's own."""
    session._strategy.optimizer.register_step_pre_hook(_Pauses(place, plant["seconds"]))


_CAUSES = {"pauses": _pausing, "slow loader": _slow_loader, "long update": _long_update}

FRAMEWORK = Framework(open_session)
