"""The samples of a worker: which ones its native loader reads and when, how they are stored, and synthetic ones.

Every framework's loader takes order, files, normalisation and synthetic values from here, so that all train on the
same data whatever their tensor library is.
"""

import json
import os
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy

from steptime.worker.process_context import Job

SHARDED_FORMS = ("tar_shards", "tfrecord")
"""Forms of a dataset whose samples are read shard after shard."""
MASKED_LOSS = "masked_token_cross_entropy"
TOKEN_LOSSES = ("next_token_cross_entropy", MASKED_LOSS)
"""Losses of workloads whose inputs are tokens, whole numbers below the classes, and whose targets are the same."""
IGNORED = -1
"""The target of a token that is not predicted."""
_MASKED = 0.15
"""Share of the tokens that are hidden and predicted (Devlin et al. 2019)."""
PREFETCHED_PER_HELPER = 2
"""Batches that every framework's loader makes ahead for each of its helpers, which are processes or threads."""


class FirstBatch(object):
    """With which batch a training of this process begins."""

    before: Sequence[int] = ()
    """By rank, how many batches are left out; none where it is empty."""

    @classmethod
    def taken(cls, rank: int) -> int:
        """Return how many batches of a worker are left out."""
        return cls.before[rank] if cls.before else 0


def epoch_indices(samples: int, epoch: int, seed: int, rank: int, workers: int) -> numpy.ndarray:
    """Return this worker's sample indices of one epoch, in their order, as an int64 array.

    All workers shuffle all samples alike; worker ``rank`` takes every ``workers``-th from ``rank`` on, so that the
    shards of one epoch are disjoint and together hold every sample once.

    Args:
        samples: how many the dataset has.
        epoch: from 0.
        seed: of the job, the same on every worker.
        rank: of the worker.
        workers: how many there are.
    """
    stream = numpy.random.RandomState([seed, epoch])
    return stream.permutation(samples)[rank::workers].astype(numpy.int64)


def read_shards(path: str) -> List[numpy.ndarray]:
    """Return the samples of each shard in their order there, a list of int64 arrays, by the index of a stored form."""
    with open(path) as file:
        index = json.load(file)
    if "counts" in index:
        return numpy.split(numpy.array(index["order"], dtype=numpy.int64), numpy.cumsum(index["counts"])[:-1])
    places = index["places"]
    order = sorted(range(len(places)), key=lambda index: places[index])
    shards: List[List[int]] = [[] for _ in range(places[order[-1]][0] + 1)]
    for index in order:
        shards[places[index][0]].append(index)
    return [numpy.array(shard, dtype=numpy.int64) for shard in shards]


def shard_indices(shards: Sequence[numpy.ndarray], epoch: int, seed: int, rank: int, workers: int) -> numpy.ndarray:
    """Return this worker's sample indices of one epoch, as ``epoch_indices`` does, of samples that lie in shards.

    All workers shuffle the shards alike, and the samples within each shard; a worker takes a part of the whole row
    without gaps, so that it reads one shard after the other and shares two of them at most with its neighbours.

    Args:
        shards: the samples of each shard.
        epoch: from 0.
        seed: of the job, the same on every worker.
        rank: of the worker.
        workers: how many there are.
    """
    stream = numpy.random.RandomState([seed, epoch])
    row = numpy.concatenate([stream.permutation(shards[shard]) for shard in stream.permutation(len(shards))])
    share = len(row) // workers
    return row[rank * share : (rank + 1) * share]


def steps_per_epoch(samples: int, workers: int, batch: int) -> int:
    """Return the steps of an epoch: whole batches of every worker's equal share of the samples."""
    return samples // workers // batch


def batch_indices(  # noqa: PLR0913, PLR0917 - one per fact
    samples: int,
    batch: int,
    seed: int,
    rank: int,
    workers: int,
    shards: Optional[Sequence[numpy.ndarray]] = None,
    first_epoch: int = 0,
) -> Iterator[Tuple[int, numpy.ndarray]]:
    """Yield the indices of this worker's batches without end, epoch after epoch, as ``(epoch, int64 array)``.

    Every array has ``batch`` entries; what is left at the end of an epoch is dropped. All workers have equally many
    batches per epoch, so that they always train on the same epoch. With ``shards``, those of ``read_shards``, the
    order is that of ``shard_indices``.

    Raises ValueError when a worker's share of the dataset is smaller than one batch.
    """
    share = samples // workers
    if batch > share:
        raise ValueError(
            "a batch of %d does not fit a worker's share of %d samples (%d samples, %d workers); "
            "use a smaller batch, fewer workers or more samples" % (batch, share, samples, workers)
        )
    return _batches_without_end(samples, batch, seed, rank, workers, shards, first_epoch)


def _batches_without_end(  # noqa: PLR0913, PLR0917 - one per fact
    samples: int, batch: int, seed: int, rank: int, workers: int, shards: Optional[Sequence[numpy.ndarray]], epoch: int
) -> Iterator[Tuple[int, numpy.ndarray]]:
    whole_batches = steps_per_epoch(samples, workers, batch)
    while True:
        if shards:
            order = shard_indices(shards, epoch, seed, rank, workers)
        else:
            order = epoch_indices(samples, epoch, seed, rank, workers)
        for start in range(0, whole_batches * batch, batch):
            yield epoch, order[start : start + batch]
        epoch += 1


def read_index(dataset: Dict[str, Any]) -> Tuple[List[str], numpy.ndarray]:
    """Return ``(paths, labels)`` of an ``image_folder``: a list of full paths and an int64 array.

    Raises ValueError when the index holds another number of files than the job gives.
    """
    with open(dataset["index"]) as file:
        files = json.load(file)["files"]
    if len(files) != dataset["samples"]:
        raise ValueError(
            "%s lists %d files where the job expects %d; make the index again"
            % (dataset["index"], len(files), dataset["samples"])
        )
    paths = [os.path.join(dataset["root"], name) for name, _ in files]
    return paths, numpy.array([label for _, label in files], dtype=numpy.int64)


def undecodable(path: str, why: object) -> str:
    """Return the message about an image file that cannot be decoded, with the next step."""
    return "%s cannot be decoded: %s; replace or delete it, and run again" % (os.path.abspath(path), why)


def read_sizes(dataset: Dict[str, Any]) -> numpy.ndarray:
    """Return width and height of each image of a dataset, int64 (samples, 2), as its index gives them.

    Raises ValueError when the index has no sizes.
    """
    with open(dataset["index"]) as file:
        index = json.load(file)
    if len(index.get("sizes", ())) != len(index["files"]):
        raise ValueError("%s does not have the size of every image; make the index again" % dataset["index"])
    return numpy.array(index["sizes"], dtype=numpy.int64).reshape(-1, 2)


def read_arrays(
    dataset: Dict[str, Any], input_shape: Optional[Sequence[int]] = None
) -> Tuple[numpy.ndarray, numpy.ndarray]:
    """Return ``(images, labels)`` of an ``arrays`` dataset: uint8 (samples, channels, height, width) and int64.

    Raises ValueError when the file holds another number of samples than the job gives, or images that have not as many
    values as ``input_shape``, the workload's.
    """
    with numpy.load(dataset["path"], allow_pickle=False) as file:
        images, labels = file["images"], file["labels"]
    if len(images) != dataset["samples"] or len(labels) != dataset["samples"]:
        raise ValueError(
            "%s holds %d images and %d labels where the job expects %d"
            % (dataset["path"], len(images), len(labels), dataset["samples"])
        )
    if input_shape is not None and images[0].size != numpy.prod(input_shape):
        raise ValueError(
            "%s holds images of %s where the workload expects %s"
            % (dataset["path"], list(images.shape[1:]), list(input_shape))
        )
    return images, labels.astype(numpy.int64)


def read_tokens(dataset: Dict[str, Any], input_shape: Sequence[int]) -> numpy.ndarray:
    """Return the row of tokens of a ``tokens`` dataset, of an unsigned type; mapped from its file where that is asked.

    Raises ValueError when the file holds another number of sequences of the workload's length than the job gives.
    """
    tokens = _row(dataset)
    if "part" in dataset:
        begin, count = dataset["part"]
        tokens = tokens[begin : begin + count]
    length = input_shape[0]
    if (len(tokens) - 1) // length != dataset["samples"]:
        raise ValueError(
            "%s holds %d tokens, which are not the %d sequences of %d that the job expects"
            % (dataset["path"], len(tokens), dataset["samples"], length)
        )
    return tokens


def _row(dataset: Dict[str, Any]) -> numpy.ndarray:
    """Return all tokens of a file: of an npz file, or uint16 one behind the other."""
    if dataset["path"].endswith(".npz"):
        with numpy.load(dataset["path"], allow_pickle=False) as file:
            tokens: numpy.ndarray = file["tokens"]
            return tokens
    if dataset.get("mapped"):
        return numpy.memmap(dataset["path"], dtype="<u2", mode="r")
    return numpy.fromfile(dataset["path"], dtype="<u2")


def scale_and_shift(transform: Dict[str, Any], channels: int) -> Tuple[numpy.ndarray, numpy.ndarray]:
    """Return float32 arrays of shape ``(channels, 1, 1)`` with which ``byte * scale + shift`` is normalised.

    The same as (byte / 255 - mean) / std in one multiplication and one addition. A mean or deviation of one entry
    holds for all channels.
    """
    mean = numpy.array(transform["mean"], dtype=numpy.float64) * numpy.ones(channels)
    std = numpy.array(transform["std"], dtype=numpy.float64) * numpy.ones(channels)
    shape = (channels, 1, 1)
    scale = (1.0 / (255.0 * std)).reshape(shape)
    shift = (-mean / std).reshape(shape)
    return scale.astype(numpy.float32), shift.astype(numpy.float32)


def synthetic_batches(job: Job, rank: int) -> List[Tuple[numpy.ndarray, numpy.ndarray]]:
    """Return the pairs ``(inputs, targets)`` of numpy arrays that the worker ``rank`` trains on in turn.

    ``inputs`` is float32 of shape ``(batch,) + input shape`` (channels first), standard normal; ``targets`` is
    int64 of shape ``(batch,)`` with class indices, or the inputs in the shape of the output for a mean-squared-error
    workload. Of ``TOKEN_LOSSES`` both are what ``token_batch`` makes of random tokens. The rank makes each worker's
    samples its own.
    """
    workload, batch = job["workload"], job["batch_per_worker"]
    batches = []
    for index in range(job["loader"]["distinct_batches"]):
        stream = numpy.random.RandomState([job["seed"], 7919, rank, index])
        if workload["loss"] in TOKEN_LOSSES:
            tokens = stream.randint(0, workload["classes"], size=(batch, workload["input_shape"][0] + 1))
            batches.append(token_batch(workload, tokens, stream))
            continue
        inputs = stream.standard_normal((batch,) + tuple(workload["input_shape"])).astype(numpy.float32)
        if workload["loss"] == "mean_squared_error":
            targets = inputs.reshape((batch,) + tuple(workload["layers"][-1]["output_shape"]))
        else:
            targets = stream.randint(0, workload["classes"], size=batch).astype(numpy.int64)
        batches.append((inputs, targets))
    first = FirstBatch.taken(rank) % len(batches)
    return batches[first:] + batches[:first]


def token_batch(
    workload: Dict[str, Any], tokens: numpy.ndarray, stream: numpy.random.RandomState
) -> Tuple[numpy.ndarray, numpy.ndarray]:
    """Return ``(inputs, targets)`` of a workload of tokens, both int64 (batch, tokens).

    Targets are the next tokens; or those that the input hides behind the last one of the vocabulary, as many in each
    sample, and ``IGNORED`` elsewhere.

    Args:
        workload: its JSON.
        tokens: (batch, tokens + 1) numbers below the classes.
        stream: draws what is hidden.
    """
    tokens = tokens.astype(numpy.int64)
    inputs, following = tokens[:, :-1].copy(), tokens[:, 1:].copy()
    if workload["loss"] != MASKED_LOSS:
        return inputs, following
    hidden = numpy.zeros(inputs.shape, dtype=bool)
    for row in hidden:
        row[stream.permutation(len(row))[: _hidden_of(len(row))]] = True
    return hide(inputs, hidden, workload["classes"] - 1)


def _hidden_of(length: int) -> int:
    return max(1, round(_MASKED * length))


def hide(inputs: numpy.ndarray, hidden: numpy.ndarray, token: int) -> Tuple[numpy.ndarray, numpy.ndarray]:
    """Return ``inputs`` with ``token`` where they are ``hidden``, and the targets, ``IGNORED`` elsewhere."""
    return numpy.where(hidden, token, inputs), numpy.where(hidden, inputs, IGNORED)


def hidden_places(samples: numpy.ndarray, length: int) -> numpy.ndarray:
    """Return which tokens of the samples of a dataset are hidden, bool (samples, length): as many in each.

    They are the same in every epoch, run and framework (the static masking of Devlin et al. 2019): a hash of a token's
    place decides.
    """
    places = mixed((samples[:, None] * length + numpy.arange(length)).astype(numpy.uint64))
    hidden = numpy.zeros(places.shape, dtype=bool)
    chosen = numpy.argsort(places, axis=1, kind="mergesort")[:, : _hidden_of(length)]
    hidden[numpy.arange(len(hidden))[:, None], chosen] = True
    return hidden


def mixed(counters: numpy.ndarray) -> numpy.ndarray:
    """Return a random uint64 for each of ``counters``, uint64, whichever are asked for together.

    SplitMix64: G. Steele, D. Lea, C. Flood, *Fast splittable pseudorandom number generators*, OOPSLA 2014.
    """
    found: numpy.ndarray = (counters + numpy.uint64(1)) * numpy.uint64(0x9E3779B97F4A7C15)
    found = (found ^ (found >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    found ^= found >> numpy.uint64(31)
    return found
