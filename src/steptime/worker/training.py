"""The loop of a training, the same for every framework: epochs, each with the accuracy on the validation set behind it.

Only the steps of an epoch are counted as training. Behind them the workers wait for each other, so that asynchronous
ones evaluate the weights of the whole epoch; each evaluates its share of the validation set, and all read all results
from the run folder, so that they end together.
"""

import math
import os
import time
from typing import Any, Dict, List, Optional

from steptime.worker.kernel_marks import KernelMarks
from steptime.worker.process_context import Job, ProcessContext
from steptime.worker.rate_schedules import learning_rate
from steptime.worker.session import KeptLosses, Session
from steptime.worker.shared_file import RecordFile, await_file, open_whole, read_arrays, read_json, write_json

_EPOCHS = "epochs.json"


def run_training(session: Session, job: Job, context: ProcessContext, records: RecordFile) -> None:
    """Train the epochs of ``job["training"]``, and write one record of each.

    It ends ahead of the last where the validation accuracy has reached ``target_accuracy``, or where the validation
    loss is not a number.
    """
    from steptime.worker.batches import Validation  # needs numpy, which not every process of a launch has

    training = job["training"]
    validation = Validation(job, context.rank, context.workers)
    checkpoint = Checkpoint(training["checkpoint"], context) if training["checkpoint"] else None
    epochs = _epochs_so_far(training, checkpoint, session)
    losses = [_loss(workers) for workers in epochs]
    kept = None if training["first_epoch"] else KeptLosses(session)  # steps are counted from the first of all
    while len(epochs) < training["epochs"] and not _is_over(training, epochs):
        epoch = len(epochs)
        own = _train(session, training, epoch, losses, kept)
        own.update(_seen(context, training, epoch, kept))
        own["samples"] = training["steps_per_epoch"] * job["batch_per_worker"]
        meet(context, "trained-%d" % epoch, None)
        started = time.monotonic()
        own.update(validation.evaluate(session))
        own["evaluated_s"] = time.monotonic() - started
        started = time.monotonic()
        saved = checkpoint.save(session, epoch) if checkpoint else False
        own["saved_s"] = time.monotonic() - started
        records.write("epoch", **own)
        workers = meet(context, "epoch-%d" % epoch, own)
        epochs.append(workers)
        losses.append(_loss(workers))
        if checkpoint and saved:
            checkpoint.keep(epochs)


def _epochs_so_far(
    training: Dict[str, Any], checkpoint: "Optional[Checkpoint]", session: Session
) -> List[List[Dict[str, Any]]]:
    """Return the results of the epochs that are over, and give the session its state behind them."""
    if not training["first_epoch"]:
        return []
    if checkpoint is None:
        raise ValueError(
            "first_epoch is %d, but the training has no checkpoint to go on from; give it one, or begin with epoch 0"
            % training["first_epoch"]
        )
    return checkpoint.restore(session, training["first_epoch"])


def _seen(context: ProcessContext, training: Dict[str, Any], epoch: int, kept: Optional[KeptLosses]) -> Dict[str, Any]:
    """Return the losses and batches that are kept of an epoch's steps, and how many batches were drawn for it."""
    if kept is None:
        return {"losses": [], "batches": [], "drawn": None}
    from steptime.worker.timed_evidence import seen_batches  # it needs numpy

    first = epoch * training["steps_per_epoch"]
    seen = seen_batches(context, first + training["steps_per_epoch"])
    number = seen["drawn"]
    drawn = None if number is None else number - kept.drawn
    kept.drawn = number or 0
    return {"losses": kept.read(), "batches": [each for each in seen["batches"] if each[0] > first], "drawn": drawn}


def _train(
    session: Session, training: Dict[str, Any], epoch: int, losses: List[float], kept: Optional[KeptLosses]
) -> Dict[str, Any]:
    """Train one epoch; return this worker's part of the epoch's record."""
    first, rate = epoch * training["steps_per_epoch"], None
    session.staleness()  # of what came before
    with KernelMarks() as marks:
        marks.put(0, over=False)
        started = time.monotonic()
        marks.put(1, over=True)
        for step in range(first, first + training["steps_per_epoch"]):
            wanted = learning_rate(training, step, losses)
            if wanted != rate:
                session.set_learning_rate(wanted)
                rate = wanted
            if kept is None:
                session.step()
            else:
                kept.take(1)
        session.wait()
        marks.put(1, over=True)
        trained = time.monotonic() - started
        marks.put(2, over=True)
        moments = [at_s for _, at_s, _ in marks.read()]
    stale = session.staleness()
    counts = None if stale is None else {str(updates): count for updates, count in sorted(stale.items())}
    return {
        "epoch": epoch,
        "trained_s": trained,
        "kernel_s": [moments[2] - moments[1], moments[3] - moments[0]] if moments else None,
        "learning_rate": rate,
        "training_loss": session.loss(),
        "staleness": counts,
    }


def _loss(workers: List[Dict[str, Any]]) -> float:
    """Return the mean loss of the validation set over the results of all workers."""
    counted: int = sum(each["counted"] for each in workers)
    return math.fsum(each["loss_sum"] for each in workers) / counted


def _is_over(training: Dict[str, Any], epochs: List[List[Dict[str, Any]]]) -> bool:
    """Return whether the last epoch reached the target accuracy, or has a validation loss that is not a number."""
    if not epochs:
        return False
    target, workers = training["target_accuracy"], epochs[-1]
    if not math.isfinite(_loss(workers)):
        return True
    if target is None:
        return False
    return bool(sum(each["correct"] for each in workers) >= target * sum(each["counted"] for each in workers))


def meet(context: ProcessContext, name: str, value: Any) -> List[Any]:
    """Wait until every worker has come here; return the ``value`` of each, by rank.

    Values must be JSON-ready. They cross through the run folder, which all workers share. The launcher ends all workers
    when one of them dies.
    """
    paths = [os.path.join(context.folder, "%s-%d.meeting" % (name, rank)) for rank in range(context.workers)]
    write_json(paths[context.rank], value)
    for path in paths:
        await_file(path)
    return [read_json(path) for path in paths]


class Checkpoint(object):
    """The folder from which a training goes on: ``epochs.json`` with all epochs, and the state behind the last.

    ``epochs.json`` is written when every worker has saved its state, so that it never names an epoch that cannot be
    gone on from.
    """

    def __init__(self, folder: str, context: ProcessContext) -> None:
        """Take the job's folder, which is made where it does not exist; raises ValueError where it is a link."""
        self._folder = folder
        self._rank = context.rank
        if os.path.islink(folder):
            raise ValueError("%s is a symbolic link, which may lead to a folder outside; remove it" % folder)
        if not os.path.isdir(folder):
            os.makedirs(folder, mode=0o700, exist_ok=True)

    def save(self, session: Session, epoch: int) -> bool:
        """Save this worker's state behind ``epoch``; return whether it has one."""
        import numpy

        state: Optional[Dict[str, Any]] = session.state()
        if state is None:
            return False
        with open_whole(self._state_path(epoch), "wb", durable=True) as file:
            numpy.savez(file, **state)
        return True

    def keep(self, epochs: List[List[Dict[str, Any]]]) -> None:
        """Name the last of ``epochs`` as the one to go on behind, once every worker has saved its state."""
        if self._rank == 0:
            write_json(os.path.join(self._folder, _EPOCHS), epochs, durable=True)
        older = self._state_path(len(epochs) - 3)  # no worker is so late that it could need that one
        if os.path.exists(older):
            os.remove(older)

    def restore(self, session: Session, first_epoch: int) -> List[List[Dict[str, Any]]]:
        """Give the session the state behind the epoch before ``first_epoch``; return the results of all epochs.

        Raises ValueError where the folder does not hold that epoch.
        """
        epochs: List[List[Dict[str, Any]]] = read_json(os.path.join(self._folder, _EPOCHS))
        if len(epochs) != first_epoch:
            raise ValueError(
                "%s has %d epochs where the job continues after %d; remove the folder to start over"
                % (self._folder, len(epochs), first_epoch)
            )
        session.set_state(read_arrays(self._state_path(first_epoch - 1)))
        return epochs

    def _state_path(self, epoch: int) -> str:
        return os.path.join(self._folder, "state-%d-%d.npz" % (epoch, self._rank))
