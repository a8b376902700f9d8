"""A framework's own adapter that measures ``Session.loss_later`` before it hands the session out."""

import importlib
import json
import os
import time

from steptime.worker.framework import Framework

_BLOCKS, _STEPS = 30, 20


def open_session(job, context):
    """Open the framework's session, measure, and leave ``cost.json`` in the run folder."""
    unplanted = importlib.import_module(__name__.rpartition(".")[0] + ".unplanted").FRAMEWORK
    session = unplanted.open_session(job, context)
    for _ in range(_STEPS):
        session.step()
    found = {"kept": [], "not_kept": [], "calls": []}
    for number in range(2 * _BLOCKS):
        name = ("kept", "not_kept")[(number + number // 2) % 2]  # neither is always the first of a pair
        readers = []
        session.wait()
        begun = time.perf_counter()
        for _ in range(_STEPS):
            session.step()
            if name == "kept":
                called = time.perf_counter()
                readers.append(session.loss_later())
                found["calls"].append(time.perf_counter() - called)
        session.wait()
        found[name].append((time.perf_counter() - begun) / _STEPS)
        for reader in readers:
            reader()
    with open(os.path.join(context.folder, "cost.json"), "w") as file:
        json.dump(found, file)
    return session


FRAMEWORK = Framework(open_session)
