"""The loop of the equivalence check: steps on known batches from known weights, in rounds that run ahead.

Within a round nothing is waited for, as in the timed steps. Behind each round the loss is read, and a sketch is made of
the weights, which the core compares with those of the reference.
"""

import os
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional

from steptime.worker.process_context import Job, ProcessContext
from steptime.worker.session import Session
from steptime.worker.shared_file import RecordFile, await_file, open_whole

if TYPE_CHECKING:
    import numpy

_PATIENCE_S = 600.0


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
    from steptime.worker.weights import Sketcher

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
        take_turns(whole_step(session), context, turns - 1, lambda: None, "turn")
        weights = take_turns(whole_step(session), context, 1, note, "last-turn")[0]
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


def whole_step(session: Session) -> Callable[[], None]:
    """Return what takes a step and waits until it is over."""

    def step() -> None:
        session.step()
        session.wait()

    return step


def take_turns(  # noqa: PLR0913, PLR0917 - one per fact
    step: Callable[[], Any], context: ProcessContext, turns: int, note: Callable[[], Any], name: str, first: int = 0
) -> List[Any]:
    """Take ``turns`` steps in turn with the other workers; return what ``note`` returns behind each.

    A launch may take turns several times, under different names. ``step`` returns when its step is over. The worker
    ``first`` begins.
    """
    noted = []
    _leave_sign(context, "ready-for-%s-%d" % (name, context.rank))
    for rank in range(context.workers):
        _await_sign(context, "ready-for-%s-%d" % (name, rank))
    for turn in range(turns):
        number = turn * context.workers + (context.rank - first) % context.workers
        if number:
            _await_sign(context, "%s-%d" % (name, number - 1))
        step()
        noted.append(note())
        _leave_sign(context, "%s-%d" % (name, number))
    if turns:
        _await_sign(context, "%s-%d" % (name, turns * context.workers - 1))  # who leaves early may take weights along
    return noted


def _leave_sign(context: ProcessContext, name: str) -> None:
    with open_whole(os.path.join(context.folder, name + ".sign")):
        pass


def _await_sign(context: ProcessContext, name: str) -> None:
    path = os.path.join(context.folder, name + ".sign")
    if not await_file(path, _PATIENCE_S):
        raise RuntimeError("no worker left %s within %g s; its records say why" % (path, _PATIENCE_S))
