"""Batches for JAX: synthetic ones, and a dataset on disk read by numpy and Pillow, images channels last.

A reader is a function from ``(epoch, indices)`` to a whole batch. Loader processes call it some batches ahead of the
training, in turn.
"""

import contextlib
import itertools
import multiprocessing

import jax
import numpy

from steptime.libraries.pillow.photographs import PhotographFiles
from steptime.worker.batches import Batches, open_batches, sends_bytes
from steptime.worker.samples import PREFETCHED_PER_HELPER
from steptime.worker.tether import die_with_parent


class JaxPhotoReader(object):
    """Files decoded, resized, cropped and flipped by Pillow: ``read`` in whatever process, ``finish`` in training's.

    Between the two, images are bytes, a quarter of the floats that would have to be handed over.
    """

    def __init__(self, dataset, input_shape, seed):
        self._files = PhotographFiles(dataset, input_shape, seed)
        self._shape = tuple(input_shape)
        self._scale, self._shift = self._files.scale.ravel(), self._files.shift.ravel()

    def read(self, entry):
        """Return ``(bytes, labels)`` of a batch.

        Raises ValueError when a file cannot be decoded.
        """
        epoch, indices = entry
        batch = numpy.stack(list(self._files.batch_crops(epoch, indices)))
        return batch, self._files.labels[indices]

    def finish(self, batch):
        """Return bytes, of numpy or of JAX, as normalised inputs of the workload's shape, but channels last."""
        inputs = batch * self._scale
        inputs += self._shift
        if len(self._shape) == 1:
            inputs = inputs.transpose(0, 3, 1, 2).reshape((-1,) + self._shape)
        return inputs


def with_helpers(make, plan, processes):
    """Return an iterator of ``make(entry)`` for every entry of ``plan``, in its order, and what ends its helpers.

    Args:
        make: a picklable function.
        plan: an endless iterator.
        processes: how many processes make ahead; with 0 this one does, when asked.
    """
    if not processes:
        return map(make, plan), lambda: None
    helpers = [_Helper(make) for _ in range(processes)]

    def close():
        for helper in helpers:
            helper.close()

    return _in_turn(helpers, plan), close


def _in_turn(helpers, plan):
    """Give each entry to the next helper, and take the results in the same order."""
    for helper, entry in zip(helpers * PREFETCHED_PER_HELPER, plan):
        helper.begin(entry)
    for helper in itertools.cycle(helpers):
        done = helper.finished()
        helper.begin(next(plan))
        yield done


class _Helper(object):
    """A process that makes one entry after the other; it ends when this process does."""

    def __init__(self, make):
        # JAX has threads, in whose middle a process must not be forked.
        spawn = multiprocessing.get_context("spawn")
        self._connection, far_end = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(make, far_end), daemon=True)
        self._process.start()
        far_end.close()  # so that a helper's death closes the connection

    def begin(self, entry):
        self._connection.send(entry)

    def finished(self):
        """Return what was made of the oldest entry, or raise what was raised."""
        try:
            done = self._connection.recv()
        except EOFError:
            self._process.join()
            raise RuntimeError("a helper of the loader died with code %s" % self._process.exitcode) from None
        if isinstance(done, Exception):
            raise done
        return done

    def close(self):
        self._connection.close()
        self._process.terminate()


def _serve(make, connection):
    die_with_parent()
    with contextlib.suppress(EOFError, OSError):  # training is over
        while True:
            entry = connection.recv()
            try:
                done = make(entry)
            except Exception as error:
                done = error
            connection.send(done)


def open_jax_batches(job, context, put):
    """Return the ``Batches`` of a job, ``(inputs, targets)``.

    Inputs are float32, images channels last; targets are int32 class indices, or the inputs themselves for a
    mean-squared-error workload. Both are what ``put`` makes of numpy arrays: arrays on the device. To a GPU images go
    as bytes; JAX copies them through pinned memory of its own, beside what is computed.

    Raises ValueError when the dataset does not hold what the job asks for or is too small for one batch and, from
    ``next``, when a file cannot be decoded.
    """
    workload, helpers = job["workload"], job["loader"].get("processes", 0)
    squared = workload["loss"] == "mean_squared_error"

    def on_device(inputs, targets):
        inputs = put(inputs.astype(numpy.int32) if inputs.dtype == numpy.int64 else inputs)
        return inputs, inputs if squared else put(targets.astype(numpy.int32))

    def sender(finish):
        """Return what makes a batch of bytes, which one small program finishes on the device."""
        finished = jax.jit(finish)

        def send(pixels, labels):
            inputs = finished(put(pixels))
            return inputs, inputs if squared else put(labels.astype(numpy.int32))

        return send

    def open_folder(order):
        if job["loader"]["kind"] == "dali":
            from steptime.libraries.dali.photographs import DaliPhotographs

            source = DaliPhotographs(job, order, innermost=True)
            return Batches((on_device(numpy.asarray(images), labels) for images, labels in source), source.ahead)
        reader = JaxPhotoReader(job["loader"]["dataset"], workload["input_shape"], job["seed"])
        read, close = with_helpers(reader.read, order, helpers)
        ahead = PREFETCHED_PER_HELPER * helpers
        if not sends_bytes(job):
            return Batches((on_device(reader.finish(pixels), labels) for pixels, labels in read), ahead, close)
        send = sender(reader.finish)
        return Batches(read, ahead, close, lambda pairs: (send(*pair) for pair in pairs))

    def finisher(scale, shift, shape):
        return sender(lambda pixels: (pixels * scale + shift).reshape(shape))

    return open_batches(job, context.rank, context.workers, on_device, open_folder, True, finisher)
