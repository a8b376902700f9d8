"""Image files decoded by helper processes, straight into the memory that Caffe reads.

Helpers, not threads: pycaffe holds Python's global lock while it computes. Helper h of n makes batches h, h + n, … of
this worker; each knows the order of the samples itself and is only told which slot of the ring is free.
"""

import multiprocessing

import numpy

from steptime.worker.loaders.caffe_images import ImageFiles
from steptime.worker.sampling import batch_indices
from steptime.worker.tether import die_with_parent

SLOTS_PER_HELPER = 2
_PATIENCE_S = 10.0


class HelpedLoader(object):
    """A ring in shared memory with one pipe to each helper."""

    def __init__(self, job, place):
        batch, helpers = job["batch_per_worker"], job["loader"]["processes"]
        batch_indices(job["loader"]["dataset"]["samples"], batch, job["seed"], place.rank, place.workers)
        shape = tuple(job["workload"]["input_shape"])
        self._slots = SLOTS_PER_HELPER * helpers
        # Not forked: what is forked from here shares Caffe's threads and, later, MPI's connections.
        context = multiprocessing.get_context("spawn")
        inputs = context.RawArray("f", int(self._slots * batch * numpy.prod(shape)))
        targets = context.RawArray("f", self._slots * batch)
        self.inputs = _array(inputs, (self._slots * batch,) + shape)
        self.targets = _array(targets, (self._slots * batch,))
        self._pipes, self._helpers = [], []
        who = (place.rank, place.workers)
        for helper in range(helpers):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_help, args=(job, who, helper, theirs, inputs, targets), name="loader-%d" % helper, daemon=True
            )
            process.start()
            theirs.close()  # so that reading from ours ends when the helper does
            self._pipes.append(ours)
            self._helpers.append(process)
        for slot in range(self._slots):
            self._pipes[slot % helpers].send(slot)
        self._next = 0

    def fill(self):
        """Wait for the next slot, and give the one that was trained on before back.

        Raises ValueError when a file cannot be decoded, RuntimeError when a helper is gone.
        """
        count = len(self._pipes)
        if self._next:
            used = self._next - 1
            self._tell(used % count, used % self._slots)
        turn = self._next % count
        try:
            problem = self._pipes[turn].recv()
        except (EOFError, OSError) as error:
            raise RuntimeError(self._gone(turn)) from error
        if problem is not None:
            raise ValueError(problem)
        self._next += 1

    def _tell(self, helper, slot):
        try:
            self._pipes[helper].send(slot)
        except OSError as error:
            raise RuntimeError(self._gone(helper)) from error

    def _gone(self, helper):
        self._helpers[helper].join(_PATIENCE_S)
        return "the loader's helper %d ended with %s" % (helper, self._helpers[helper].exitcode)

    def close(self):
        """End the helpers."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._helpers:
            process.terminate()
            process.join(_PATIENCE_S)


def _help(job, who, helper, pipe, inputs, targets):  # noqa: PLR0913, PLR0917 - what a helper needs
    """Fill the slots that ``pipe`` names with this helper's batches, until the other end closes it."""
    die_with_parent()
    dataset, batch, shape = job["loader"]["dataset"], job["batch_per_worker"], tuple(job["workload"]["input_shape"])
    files = ImageFiles(dataset, shape, job["seed"])
    inputs = _array(inputs, (-1, batch) + shape)
    targets = _array(targets, (-1, batch))
    own = batch_indices(dataset["samples"], batch, job["seed"], *who)
    for number, (epoch, chosen) in enumerate(own):
        if number % job["loader"]["processes"] != helper:
            continue
        try:
            slot = pipe.recv()
            files.read_into(inputs[slot], targets[slot], epoch, chosen)
            pipe.send(None)
        except (EOFError, OSError):
            return
        except ValueError as error:
            pipe.send(str(error))
            return


def _array(raw, shape):
    return numpy.frombuffer(raw, dtype=numpy.float32).reshape(shape)
