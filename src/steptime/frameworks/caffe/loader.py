"""Batches in the ring of arrays that Caffe's in-memory data layer reads: synthetic, arrays, and image files.

A loader owns a ring of ``slots`` batches, which Caffe is given once: ``inputs`` is float32 (slots * batch,) + input
shape, ``targets`` float32 (slots * batch,), class indices. ``fill()`` makes the next slot ready, ``close()`` ends the
loader's processes, and ``ahead`` is how many batches these may hold ready. Image files are decoded by Pillow and
normalised by numpy where the batch lies.

Loader processes, not threads: pycaffe holds Python's global lock while it computes. Process h of n makes the batches
h, h + n, … of this worker; each process knows the order of the samples and learns only which slot of the ring is free.
"""

import functools
import multiprocessing

import numpy

from steptime.libraries.pillow.photographs import PhotographFiles
from steptime.worker.batches import ArraySamples, worker_order
from steptime.worker.samples import PREFETCHED_PER_HELPER, synthetic_batches
from steptime.worker.tether import die_with_parent


def read_photographs(files, inputs, targets, epoch, chosen):
    """Fill ``inputs``, float32 (batch,) + input shape, and ``targets``, (batch,), with samples of ``PhotographFiles``.

    Raises ValueError, which names the file, when one cannot be decoded.
    """
    images = inputs.reshape((len(chosen), files.channels) + files.size)
    for crop, image in zip(files.batch_crops(epoch, chosen), images):
        files.normalised(crop, image)
    targets[...] = files.labels[chosen]


_PATIENCE_S = 10.0


class CaffeProcessLoader(object):
    """A ring in shared memory with one pipe to each helper."""

    def __init__(self, job, context):
        batch, helpers = job["batch_per_worker"], job["loader"]["processes"]
        worker_order(job, context.rank, context.workers)  # raises here, and not in a helper, when a batch is too large
        shape = tuple(job["workload"]["input_shape"])
        self.ahead = self._slots = PREFETCHED_PER_HELPER * helpers
        # Not forked: what is forked from here shares Caffe's threads and, later, MPI's connections.
        spawn = multiprocessing.get_context("spawn")
        inputs = spawn.RawArray("f", int(self._slots * batch * numpy.prod(shape)))
        targets = spawn.RawArray("f", self._slots * batch)
        self.inputs = _array(inputs, (self._slots * batch,) + shape)
        self.targets = _array(targets, (self._slots * batch,))
        self._pipes, self._helpers = [], []
        who = (context.rank, context.workers)
        for helper in range(helpers):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(
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
    try:
        files = PhotographFiles(dataset, shape, job["seed"])
    except ValueError as error:
        pipe.send(str(error))
        return
    inputs = _array(inputs, (-1, batch) + shape)
    targets = _array(targets, (-1, batch))
    for number, (epoch, chosen) in enumerate(worker_order(job, *who)):
        if number % job["loader"]["processes"] != helper:
            continue
        try:
            slot = pipe.recv()
            read_photographs(files, inputs[slot], targets[slot], epoch, chosen)
            pipe.send(None)
        except (EOFError, OSError):
            return
        except ValueError as error:
            pipe.send(str(error))
            return


def _array(raw, shape):
    return numpy.frombuffer(raw, dtype=numpy.float32).reshape(shape)


def open_loader(job, context):
    """Return the loader of a job.

    To be called before MPI is initialised: a process that holds MPI's connections must not be forked.

    Raises ValueError when the dataset does not hold what the job asks for or is too small for one batch.
    """
    loader = job["loader"]
    if loader["kind"] == "synthetic":
        return CaffeSyntheticLoader(job, context)
    folder = loader["dataset"]["form"] != "arrays"
    return (CaffeProcessLoader if folder and loader["processes"] else CaffeOneSlotLoader)(job, context)


class CaffeSyntheticLoader(object):
    """Batches that are all there from the beginning."""

    ahead = 0

    def __init__(self, job, context):
        pairs = synthetic_batches(job, context.rank)
        self.inputs = numpy.concatenate([inputs for inputs, _ in pairs])
        self.targets = numpy.zeros(len(self.inputs), dtype=numpy.float32)
        if job["workload"]["loss"] != "mean_squared_error":  # whose target is the input itself
            self.targets[...] = numpy.concatenate([targets for _, targets in pairs])

    def fill(self):
        """Do nothing: every slot is ready."""

    def close(self):
        """Do nothing: nothing runs."""


class CaffeOneSlotLoader(object):
    """Samples that the training process reads itself, from memory or from files."""

    ahead = 0

    def __init__(self, job, context):
        dataset, shape = job["loader"]["dataset"], tuple(job["workload"]["input_shape"])
        self._order = worker_order(job, context.rank, context.workers)
        if dataset["form"] == "arrays":
            samples = ArraySamples(dataset, shape)

            def read(inputs, targets, _, chosen):
                samples.inputs(chosen, inputs)
                targets[...] = samples.labels[chosen]

            self._read = read
        else:
            self._read = functools.partial(read_photographs, PhotographFiles(dataset, shape, job["seed"]))
        self.inputs = numpy.empty((job["batch_per_worker"],) + shape, dtype=numpy.float32)
        self.targets = numpy.empty(job["batch_per_worker"], dtype=numpy.float32)

    def fill(self):
        """Replace the one slot."""
        self._read(self.inputs, self.targets, *next(self._order))

    def close(self):
        """Do nothing: nothing runs."""
