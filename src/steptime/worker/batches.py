"""The batches of a worker: an endless iterator over the data of the job's loader, in a framework's own values.

Synthetic batches and arrays in memory are the same for most frameworks; files are read by each in its own way.
"""

import itertools
from typing import Any, Callable, Dict, Iterable, Iterator, Optional, Sequence, Tuple

import numpy

from steptime.worker.process_context import Job
from steptime.worker.samples import (
    IGNORED,
    SHARDED_FORMS,
    FirstBatch,
    batch_indices,
    hidden_places,
    hide,
    read_arrays,
    read_shards,
    read_tokens,
    scale_and_shift,
    synthetic_batches,
)
from steptime.worker.session import DrawnBatches, Session
from steptime.worker.weights import channels_last


def sends_bytes(job: Job) -> bool:
    """Whether images go to the device as bytes, a quarter of the floats, and are normalised there."""
    return bool(job["device"] != "cpu")


class Batches(object):
    """An endless iterator of batches.

    ``ahead``
        How many batches may be ready before they are asked for.
    ``close``
        A function without arguments, which ends the threads or processes that read ahead.
    """

    def __init__(
        self,
        batches: Iterable[Any],
        ahead: int = 0,
        close: Callable[[], Any] = lambda: None,
        send: Optional[Callable[[Iterator[Any]], Iterable[Any]]] = None,
    ) -> None:
        """Take the batches, or with ``send`` what it makes batches of.

        Args:
            batches: an iterable without end.
            ahead: how many batches may be ready before they are asked for.
            close: ends what reads ahead.
            send: takes an iterator of batches in the host's memory and returns one of the same batches on the device.
                None if ``batches`` lie on the device already, or there is none.
        """
        self._of_host = iter(batches)
        self._send = send
        self._batches = self._of_host if send is None else iter(send(self._of_host))
        self.ahead = ahead
        self.close = close

    def __iter__(self) -> "Batches":
        return self

    def __next__(self) -> Any:
        return next(self._batches)

    def copies(self) -> Iterator[Any]:
        """Return an endless iterator of one batch that stays in the host's memory, copied each time as in training.

        Where training copies nothing, the batch lies on the device.
        """
        if self._send is None:
            return itertools.repeat(next(self))
        return iter(self._send(itertools.repeat(next(self._of_host))))


class ArraySamples(object):
    """An ``arrays`` dataset in memory, as bytes: a batch is one gather, one multiplication and one addition.

    That takes microseconds per sample, so that the training process does it however many helpers the job allows.

    ``labels``
        int64, one for each sample.
    ``scale``, ``shift``
        Float32, with which ``byte * scale + shift`` is normalised, in the layout of ``pixels``.
    ``shape``
        Of inputs: -1 for the samples, then the sample's own axes.
    """

    def __init__(self, dataset: Dict[str, Any], input_shape: Sequence[int], innermost: bool = False) -> None:
        """Read ``dataset``; with ``innermost``, images keep their channels last.

        Raises ValueError when the file holds another number of samples or another size than the job gives.
        """
        images, self.labels = read_arrays(dataset, input_shape)
        self.scale, self.shift = scale_and_shift(dataset["transform"], images.shape[1])
        if innermost and len(input_shape) > 1:
            images = channels_last(images)
            self.scale, self.shift = self.scale.ravel(), self.shift.ravel()
            input_shape = images.shape[1:]
        self._images = images
        self.shape = (-1,) + tuple(input_shape)

    def pixels(self, chosen: numpy.ndarray) -> numpy.ndarray:
        """Return the samples ``chosen`` as bytes, (batch, channels, height, width) or with their channels last."""
        pixels: numpy.ndarray = self._images[chosen]
        return pixels

    def inputs(self, chosen: numpy.ndarray, out: Optional[numpy.ndarray] = None) -> numpy.ndarray:
        """Return float32 inputs (batch,) + input shape of the samples ``chosen``, in ``out`` if it is given."""
        pixels: numpy.ndarray = self._images[chosen]
        pixels = numpy.multiply(pixels, self.scale, out=None if out is None else out.reshape(pixels.shape))
        pixels += self.shift
        return pixels.reshape(self.shape)


class TokenSamples(object):
    """A ``tokens`` dataset in memory: sample i begins at token i times its length.

    Targets are the next tokens; or where the dataset names the token they are ``hidden_by``, hidden ones.
    """

    def __init__(self, dataset: Dict[str, Any], input_shape: Sequence[int]) -> None:
        """Read ``dataset``; raises ValueError as ``read_tokens`` does."""
        self._tokens = read_tokens(dataset, input_shape)
        self._length = input_shape[0]
        self._hidden_by = dataset.get("hidden_by")

    def batch(self, chosen: numpy.ndarray) -> Tuple[numpy.ndarray, numpy.ndarray]:
        """Return inputs and targets of the samples ``chosen``, both int64 (batch, tokens)."""
        places = chosen[:, None] * self._length + numpy.arange(self._length + 1)
        rows = self._tokens[places].astype(numpy.int64)
        if self._hidden_by is not None:
            return hide(rows[:, :-1], hidden_places(chosen, self._length), self._hidden_by)
        return numpy.ascontiguousarray(rows[:, :-1]), numpy.ascontiguousarray(rows[:, 1:])


def worker_order(job: Job, rank: int, workers: int) -> Iterator[Tuple[int, numpy.ndarray]]:
    """Return the ``batch_indices`` of a worker over the dataset of a job's loader.

    A training that goes on begins with its ``first_epoch``. The dataset's ``shards`` names the index of a stored form,
    in whose order files are then read as they are.

    Raises ValueError when a worker's share of the dataset is smaller than one batch.
    """
    dataset, first = job["loader"]["dataset"], (job.get("training") or {}).get("first_epoch", 0)
    index = dataset.get("shards", dataset["index"] if dataset["form"] in SHARDED_FORMS else None)
    shards = read_shards(index) if index else None
    order = batch_indices(dataset["samples"], job["batch_per_worker"], job["seed"], rank, workers, shards, first)
    return DrawnBatches.note(itertools.islice(order, FirstBatch.taken(rank), None), rank)


def open_batches(  # noqa: PLR0913, PLR0917 - one per fact
    job: Job,
    rank: int,
    workers: int,
    put: Callable[[numpy.ndarray, numpy.ndarray], Any],
    open_folder: Callable[[Iterator[Tuple[int, numpy.ndarray]]], Batches],
    innermost: bool = False,
    finisher: Optional[Callable[..., Callable[..., Any]]] = None,
) -> Batches:
    """Return the ``Batches`` of a worker.

    Args:
        job: the job.
        rank: of the worker.
        workers: how many there are.
        put: makes a framework's batch of two numpy arrays: inputs, float32 (batch,) + input shape; and targets, int64
            class indices, or for a mean-squared-error workload the values of the inputs, in whatever shape.
        open_folder: returns the ``Batches`` of a dataset of images whose ``worker_order`` it is given.
        innermost: whether ``put`` gets images with their channels last.
        finisher: called where the job ``sends_bytes``, with the ``scale``, ``shift`` and ``shape`` of ``ArraySamples``.
            Returns what makes a framework's batch on the device of ``(pixels, labels)``, numpy arrays of bytes and of
            int64 class indices. None has floats sent.

    Raises ValueError when the dataset does not hold what the job asks for or is too small for one batch.
    """
    loader, workload = job["loader"], job["workload"]
    if loader["kind"] == "synthetic":
        pairs = synthetic_batches(job, rank)
        return Batches(
            itertools.cycle([put(channels_last(inputs) if innermost else inputs, targets) for inputs, targets in pairs])
        )
    order = worker_order(job, rank, workers)
    if loader["dataset"]["form"] == "tokens":
        sequences = TokenSamples(loader["dataset"], workload["input_shape"])
        return Batches(put(*sequences.batch(chosen)) for _, chosen in order)
    if loader["dataset"]["form"] != "arrays":
        return open_folder(order)
    samples = ArraySamples(loader["dataset"], workload["input_shape"], innermost)
    squared = workload["loss"] == "mean_squared_error"
    if finisher is not None and sends_bytes(job):
        finish = finisher(samples.scale, samples.shift, samples.shape)
        of_bytes = ((samples.pixels(chosen), samples.labels[chosen]) for _, chosen in order)
        return Batches(of_bytes, send=lambda pairs: (finish(*pair) for pair in pairs))

    def batch(chosen: numpy.ndarray) -> Any:
        inputs = samples.inputs(chosen)
        return put(inputs, inputs if squared else samples.labels[chosen])

    return Batches(batch(chosen) for _, chosen in order)


class Validation(object):
    """The samples ``rank``, ``rank + workers``, … in batches of which every worker has equally many.

    What the last batches lack is filled up with samples that are not counted, so that a sharded strategy's workers call
    their network equally often.
    """

    def __init__(self, job: Job, rank: int, workers: int) -> None:
        """Read the validation set of ``job["training"]``.

        Raises ValueError where it does not hold what the job asks for.
        """
        dataset, workload = job["training"]["validation"], job["workload"]
        self._batch = job["batch_per_worker"]
        self._squared = workload["loss"] == "mean_squared_error"
        self._length = 1
        if dataset["form"] == "tokens":
            self._length = workload["input_shape"][0]
            self._samples: Callable[..., Tuple[numpy.ndarray, numpy.ndarray]] = TokenSamples(
                dataset, workload["input_shape"]
            ).batch
        else:
            arrays = ArraySamples(dataset, workload["input_shape"])
            self._samples = lambda chosen: (arrays.inputs(chosen), arrays.labels[chosen])
        own = numpy.arange(rank, dataset["samples"], workers)
        batches = -(-dataset["samples"] // (workers * self._batch))
        filling = numpy.zeros(batches * self._batch - len(own), dtype=own.dtype)
        self._counted = len(own)
        self._chosen = numpy.concatenate([own, filling]).reshape(batches, self._batch)

    def evaluate(self, session: Session) -> Dict[str, Any]:
        """Return ``counted`` samples, how many are ``correct`` (None without classes) and the sum of their losses.

        Of sequences each predicted token counts.
        """
        correct, counted, loss_sum, left = 0, 0, 0.0, self._counted
        for chosen in self._chosen:
            inputs, targets = self._samples(chosen)
            outputs = numpy.asarray(session.outputs(inputs), dtype=numpy.float64)
            kept = min(max(left, 0), self._batch)
            left -= kept
            if self._squared:
                distances = outputs.reshape(self._batch, -1) - inputs.reshape(self._batch, -1)
                loss_sum += float(numpy.square(distances).mean(axis=1)[:kept].sum())
                counted += kept
                continue
            labels, outputs = targets[:kept].ravel(), outputs.reshape(self._batch * self._length, -1)
            known = labels != IGNORED
            labels, outputs = labels[known], outputs[: len(labels)][known]
            counted += len(labels)
            loss_sum += float(_cross_entropies(outputs, labels).sum())
            correct += int((outputs.argmax(axis=1) == labels).sum())
        return {"counted": counted, "correct": None if self._squared else correct, "loss_sum": loss_sum}


def _cross_entropies(outputs: numpy.ndarray, labels: numpy.ndarray) -> numpy.ndarray:
    """Return -log softmax(output)[label] of each sample, without label smoothing."""
    scores = outputs - outputs.max(axis=1, keepdims=True) if len(outputs) else outputs
    losses: numpy.ndarray = numpy.log(numpy.exp(scores).sum(axis=1)) - scores[numpy.arange(len(labels)), labels]
    return losses
