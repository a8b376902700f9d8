"""The loop of the equivalence check: steps on known batches from known weights, in rounds that run ahead.

Within a round nothing is waited for, as in the timed steps. Behind each round the loss is read, and a sketch is made of
the weights (``sketch.py``), which the core compares with those of the reference.
"""

import os
from typing import TYPE_CHECKING, Any, Dict, Optional

from steptime.worker.process_context import Job, ProcessContext
from steptime.worker.session import Session
from steptime.worker.shared_file import RecordFile, open_whole
from steptime.worker.turns import take_turns

if TYPE_CHECKING:
    import numpy


def run_check(session: Session, job: Job, context: ProcessContext, records: RecordFile) -> None:
    """Take the steps of ``job["schedule"]`` and write what came of them.

    ``rounds``
        Steps of each round; behind each, ``losses`` gets the loss, and ``sketches-<rank>.npz`` in the run folder the
        arrays ``ROUND/NAME``, on every worker that holds weights.
    ``rates``
        The learning rate of each round; absent where it is that of the optimizer in all.
    ``turns``
        So many steps follow that the workers take one after the other, each when the one before has finished. The loss
        and the sketch of the last of them are those of one more round. For strategies whose workers do not wait for
        each other, by which alone a worker knows how many gradients of all workers are in the weights.
    ``save_weights``
        Whether the weights at the end go to ``weights-<rank>.npz`` as they are.
    """
    # Here, not at the top: timing needs no numpy, and every process of a launch imports this module.
    from steptime.worker.sketch import Sketcher

    schedule = job["schedule"]
    sketcher, sketches, losses = Sketcher(), {}, []

    def note() -> Optional[Dict[str, "numpy.ndarray"]]:
        losses.append(session.loss())
        weights = session.get_weights()
        for name, sketch in sketcher.sketch(weights or {}).items():
            sketches["%d/%s" % (len(losses), name)] = sketch
        return weights

    weights = None
    turns, rates = schedule.get("turns", 0), schedule.get("rates")
    for number, steps in enumerate(schedule["rounds"], 1):
        if rates:
            session.set_learning_rate(rates[number - 1])
        for _ in range(steps):
            session.step()
        session.wait()
        if number < len(schedule["rounds"]) or not turns:
            weights = note()
        else:
            losses.append(session.loss())  # weights would be those of some moment
    if turns:
        weights = take_turns(session, context, turns, note, turns - 1)[0]
    if sketches:
        _keep(context, "sketches", sketches)
    if weights is not None and schedule.get("save_weights", False):
        _keep(context, "weights", weights)
    records.write(
        "check", losses=losses, parameters=session.parameter_count(), output_shape=list(session.output_shape())
    )


def _keep(context: ProcessContext, name: str, arrays: Dict[str, Any]) -> None:
    import numpy

    with open_whole(os.path.join(context.folder, "%s-%d.npz" % (name, context.rank)), "wb") as file:
        numpy.savez(file, **arrays)
