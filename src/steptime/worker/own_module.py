"""A user's own module, whatever library it is of: its files and their import, its batches, and what is said of them.

``build()`` returns the module, ``loader(rank, size, batch)`` an iterable of batches, and ``loss(module, batch)`` the
loss of one. All workers build from the same seed; what a loader draws, each worker draws from a seed of its own.

``Own`` is the ``own`` of a job's workload: ``folder`` from which the files are imported, ``build``, ``data`` and
``loss`` as ``PACKAGE.MODULE:FUNCTION``, and the ``files`` that are imported from the folder with their SHA-256.
"""

import abc
import contextlib
import hashlib
import importlib
import itertools
import os
import random
import sys
import traceback
import zlib
from collections.abc import Mapping
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import numpy

from steptime.worker.process_context import Job, ProcessContext
from steptime.worker.session import DrawnBatches

Own = Dict[str, Any]
_PAIR = 2
_DIGITS = 16


def load_function(own: Own, key: str, framework: str) -> Callable[..., Any]:
    """Import and return the function that ``own[key]`` names.

    Raises ValueError where the files are not those that were planned, another module of that name is imported, a
    package is missing, or what is named cannot be called.
    """
    module_name, _, function_name = own[key].partition(":")
    for name, digest in own["files"]:
        path = os.path.join(own["folder"], name)
        with open(path, "rb") as file:
            if hashlib.sha256(file.read()).hexdigest() != digest:
                raise ValueError(
                    "%s has changed since the run was planned; run it again, which makes trials of their own of it"
                    % path
                )
    if own["folder"] not in sys.path:
        sys.path.insert(1, own["folder"])  # behind the run folder, ahead of packages, as Python does for a script
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        missing = getattr(error, "name", None) or ""
        if not missing or missing.split(".")[0] == module_name.split(".")[0]:
            raise ValueError("%s cannot be imported from %s: %s" % (module_name, own["folder"], error)) from error
        raise ValueError(
            "%s imports %s, which this environment lacks; name an interpreter of yours that has it: "
            "environments: {%s: {kind: existing, python: /path/to/python}}" % (module_name, missing, framework)
        ) from error
    _require_own_file(module, own)
    found = getattr(module, function_name, None)
    if not callable(found):
        raise ValueError("%s cannot be called; name a function" % own[key])
    function: Callable[..., Any] = found
    return function


def _require_own_file(module: Any, own: Own) -> None:
    path = os.path.realpath(getattr(module, "__file__", None) or "")
    known = {os.path.realpath(os.path.join(own["folder"], name)) for name, _ in own["files"]}
    if path not in known:
        raise ValueError(
            "the name %s means %s in this environment, not a file of %s; rename your module"
            % (module.__name__, path or "a module without a file", own["folder"])
        )


def seed_of_rank(job: Job, rank: int) -> int:
    """Return the seed of what a worker draws, as its dropout and its batches."""
    seed: int = job["seed"] * 1009 + rank
    return seed


@contextlib.contextmanager
def of_user(what: str, own: Own) -> Iterator[None]:
    """Say of an error in the user's code where it is: its last line there."""
    try:
        yield
    except Exception as error:
        frames = traceback.extract_tb(sys.exc_info()[2])
        inside = [each for each in frames if each.filename.startswith(own["folder"] + os.sep)]
        if not inside:
            raise
        place = "%s, line %s" % (inside[-1].filename, inside[-1].lineno)
        raise ValueError("%s failed with %s: %s (%s)" % (what, type(error).__name__, error, place)) from error


class OwnWorkload(abc.ABC):
    """The user's module in place of a workload; a library's class knows its modules, arrays and random numbers.

    ``module``
        What ``build()`` returned.
    ``loss``
        A function of what applies the module and a batch: the user's, or the library's ``default_loss``.
    """

    needed = ""
    """What ``build()`` has to return."""
    arrays = ""
    """What batches consist of, and how one of other values is made."""
    to_single = ""
    """What turns float64 into float32."""

    def __init__(self, job: Job) -> None:
        """Import the user's files and build the module; its weights are those that it gives itself.

        Raises ValueError, which names the place, where the module cannot be built.
        """
        self.own: Own = job["workload"]["own"]
        self.framework = job["framework"]
        self.has_own_loss = bool(self.own["loss"])
        self.module = self._built(job)
        self.loss: Callable[[Any, Any], Any] = self.function("loss") if self.has_own_loss else self.default_loss

    def _built(self, job: Job) -> Any:
        build = self.function("build")
        before = self.random_state()
        self.seed(job["seed"])
        with of_user("%s()" % self.own["build"], self.own):
            module = build()
        self.set_random_state(before)
        if not self.is_module(module):
            raise ValueError("%s() returned %s, not %s" % (self.own["build"], _named(module), self.needed))
        return module

    def function(self, key: str) -> Callable[..., Any]:
        """Return the user's function ``build``, ``data`` or ``loss``; raises ValueError as ``load_function`` does."""
        return load_function(self.own, key, self.framework)

    def of_user(self, what: str) -> "contextlib.AbstractContextManager[None]":
        """Return a context in which an error in the user's code names its place."""
        return of_user(what, self.own)

    @abc.abstractmethod
    def is_module(self, value: Any) -> bool:
        """Whether ``build()`` may return ``value``."""

    @abc.abstractmethod
    def default_loss(self, module: Any, batch: Any) -> Any:
        """Return the loss of a batch where the study names none."""

    def pair_of(self, batch: Any) -> Tuple[Any, Any]:
        """Return the inputs and targets of a batch; raises ValueError for a mapping, which has no order of them."""
        if isinstance(batch, Mapping):
            raise ValueError(
                "a batch with the keys %s needs a loss of your own, which takes it: loss: my_module:loss"
                % ", ".join(map(str, batch))
            )
        inputs, targets = batch
        return inputs, targets

    def prepare(self, batch: Any) -> None:  # noqa: B027 - most modules have their weights at once
        """Give the module its weights, where these come with the first batch of a worker; called once."""

    @abc.abstractmethod
    def weights(self) -> Dict[str, numpy.ndarray]:
        """Return ``{name: array}`` of what is trained."""

    def batch_norm(self) -> List[str]:
        """Return the names of layers that normalise over the batch of their worker alone."""
        return []

    def flops(self, batch: Any) -> Optional[int]:
        """Return the FLOPs of the forward and the backward pass of a batch; None if they cannot be counted.

        A multiplication and an addition count as two; nothing but matrix products, convolutions and attention counts.
        """
        del batch
        return None

    def seed(self, number: int) -> None:
        """Seed what Python, numpy and the library draw."""
        random.seed(number)
        numpy.random.seed(number % 2**32)  # noqa: NPY002 - that users' code may draw from

    def random_state(self) -> Any:
        """Return the state of what ``seed`` seeds."""
        return random.getstate(), numpy.random.get_state()  # noqa: NPY002 - as above

    def set_random_state(self, state: Any) -> None:
        """Go on from a ``random_state``."""
        random.setstate(state[0])
        numpy.random.set_state(state[1])  # noqa: NPY002 - as above

    def is_array(self, value: Any) -> bool:
        """Whether a value of a batch is an array of the library, or becomes one."""
        return hasattr(value, "shape") and hasattr(value, "dtype")

    def bytes_of(self, array: Any) -> bytes:
        """Return the bytes of an array's values."""
        return numpy.asarray(array).tobytes()

    def joined_arrays(self, arrays: List[Any]) -> Any:
        """Return arrays as one, along their first axis."""
        return numpy.concatenate([numpy.asarray(each) for each in arrays])

    def facts(self) -> Dict[str, Any]:
        """Return JSON-ready facts of the module as it was built."""
        digest, weights = hashlib.sha256(), self.weights()
        for name, values in sorted(weights.items()):
            digest.update(name.encode())
            digest.update(numpy.ascontiguousarray(values).tobytes())
        return {
            "parameters": sum(each.size for each in weights.values()),
            "gradient_bytes": sum(each.nbytes for each in weights.values()),
            "first_weights": digest.hexdigest()[:_DIGITS],
            "batch_norm": self.batch_norm(),
        }

    def require_trainable(self, types: Dict[str, Any]) -> None:
        """Raise ValueError where nothing is trained, or a weight is not float32; ``{name: type}``."""
        if not types:
            raise ValueError("%s() returned a module without a parameter to train" % self.own["build"])
        for name, kind in types.items():
            if not _is(kind, "float32"):
                raise ValueError(
                    "%s is %s, and weights are trained in float32; build the module in float32, and set precision in "
                    "the study" % (name, kind)
                )

    def require_number(self, loss: Any) -> None:
        """Raise ValueError where a loss is not one number."""
        shape = tuple(loss.shape) if self.is_array(loss) else None
        values = None if shape is None else int(numpy.prod(shape))
        if values != 1:
            what = type(loss).__name__ if values is None else "an array of %d values" % values
            raise ValueError("the loss of the module is %s, not one number; take its mean" % what)


def _named(value: Any) -> str:
    kind = type(value)
    name: str = kind.__qualname__
    return name if kind.__module__ == "builtins" else "%s.%s" % (kind.__module__, name)


def _is(kind: Any, name: str) -> bool:
    """Whether a library's type of values is ``name``, as numpy calls it."""
    words: str = getattr(kind, "name", None) or str(kind)
    return words.rsplit(".", 1)[-1] == name


def arrays_of(built: OwnWorkload, batch: Any) -> Iterator[Tuple[str, Any]]:
    """Yield the arrays of a batch with their places in it."""
    if built.is_array(batch):
        yield "the batch", batch
    elif isinstance(batch, Mapping):
        for key, value in batch.items():
            yield from ((repr(key), each) for _, each in arrays_of(built, value))
    elif isinstance(batch, (tuple, list)):
        names = ("inputs", "targets") if len(batch) == _PAIR else [str(place) for place in range(len(batch))]
        for name, value in zip(names, batch):
            yield from ((name, each) for _, each in arrays_of(built, value))


def changed(built: OwnWorkload, batch: Any, change: Callable[[Any], Any]) -> Any:
    """Return a batch with ``change`` applied to each of its arrays."""
    if built.is_array(batch):
        return change(batch)
    if isinstance(batch, Mapping):
        return {key: changed(built, value, change) for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        values = [changed(built, value, change) for value in batch]
        return type(batch)(*values) if hasattr(batch, "_fields") else type(batch)(values)
    return batch


def joined(built: OwnWorkload, batches: List[Any]) -> Any:
    """Return the batches of all ranks as one; other values than arrays are those of the first."""
    first = batches[0]
    if built.is_array(first):
        return built.joined_arrays(batches) if len(first.shape) else first
    if isinstance(first, Mapping):
        return {key: joined(built, [batch[key] for batch in batches]) for key in first}
    if isinstance(first, (tuple, list)):
        values = [joined(built, list(values)) for values in zip(*batches)]
        return type(first)(*values) if hasattr(first, "_fields") else type(first)(values)
    return first


def checksum_of(built: OwnWorkload, batch: Any) -> int:
    """Return the CRC-32 of the bytes of a batch's arrays, without its first bit."""
    found = 0
    for _, array in arrays_of(built, batch):
        found = zlib.crc32(built.bytes_of(array), found)
    return found & 0x7FFFFFFF


class OwnLoader(object):
    """The batches of one rank, endless: begun anew where the user's iterable ends. Each is looked at.

    ``numbers``
        How many batches each pass had that is over.
    """

    def __init__(self, built: OwnWorkload, rank: int, size: int, batch: int) -> None:
        self._built = built
        self._rank, self._size, self._batch = rank, size, batch
        self._give = built.function("data")
        self.numbers: List[int] = []

    def __iter__(self) -> Iterator[Any]:
        own, number, iterable = self._built.own, 0, None
        call = "%s(rank=%d, size=%d, batch=%d)" % (own["data"], self._rank, self._size, self._batch)
        while True:
            with of_user(call, own):
                iterable = self._give(self._rank, self._size, self._batch) if iterable is None else iterable
                try:
                    batches = iter(iterable)
                except TypeError as error:
                    raise ValueError(
                        "%s returned %s, not an iterable of batches" % (call, type(iterable).__name__)
                    ) from error
            before = number
            while True:
                with of_user(call, own):
                    try:
                        batch = next(batches)
                    except StopIteration:
                        break
                number += 1
                self._require(batch, number, call)
                yield batch
            if number == before:
                raise ValueError(
                    "%s ended without a batch%s" % (call, " in its pass %d" % (len(self.numbers) + 1) if number else "")
                )
            self.numbers.append(number - before)
            iterable = None if batches is iterable else iterable  # a generator gives its batches once

    def _require(self, batch: Any, number: int, call: str) -> None:
        """Raise ValueError for a batch that cannot be trained, with what is wrong of it."""
        where = "batch %d of %s" % (number, call)
        pairs = isinstance(batch, (tuple, list)) and len(batch) == _PAIR
        if not self._built.has_own_loss and not pairs and not isinstance(batch, Mapping):
            kind = type(batch).__name__
            kind += " of %d" % len(batch) if isinstance(batch, (tuple, list)) else ""
            raise ValueError(
                "%s is a %s; give (inputs, targets) or a mapping, or name a loss of your own that takes it"
                % (where, kind)
            )
        found = list(arrays_of(self._built, batch))
        if not found:
            raise ValueError("%s holds no %s" % (where, self._built.arrays))
        for name, array in found[:1] if self._built.has_own_loss else found:
            if len(array.shape) == 0 or array.shape[0] != self._batch:
                samples = "%d samples" % array.shape[0] if len(array.shape) else "no samples"
                raise ValueError(
                    "%s has %s in %s, and %d are asked for; give batches of equal size, as drop_last=True of a "
                    "DataLoader does" % (where, samples, name, self._batch)
                )
        for name, array in found:
            if _is(array.dtype, "float64"):
                raise ValueError(
                    "%s has float64 in %s, and weights are float32; add %s" % (where, name, self._built.to_single)
                )


class _KeptBatch(object):
    """A batch of a kept step, whose checksum is computed when the timed steps are over."""

    def __init__(self, built: OwnWorkload, batch: Any, samples: int) -> None:
        self._built = built
        self._batch = batch
        self.samples = samples

    def checksum(self) -> int:
        """Return the CRC-32 of all arrays, without its first bit."""
        return checksum_of(self._built, self._batch)


def open_own_batches(job: Job, context: ProcessContext, built: OwnWorkload) -> Tuple[Any, Iterator[Any]]:
    """Return the first batch of the user's loader, which comes again, and all batches, endless, as they are drawn."""
    built.seed(seed_of_rank(job, context.rank))
    samples = job["batch_per_worker"]
    loader = iter(OwnLoader(built, context.rank, context.workers, samples))
    first = next(loader)
    built.prepare(first)
    kept = ((each, _KeptBatch(built, each, samples)) for each in itertools.chain([first], loader))
    return first, (each for each, _ in DrawnBatches.note(kept, context.rank))


def flop_per_sample(job: Job, context: ProcessContext, built: OwnWorkload, batch: Any) -> Optional[int]:
    """Return the FLOPs of a sample, which worker 0 alone counts; None on others, and where they cannot be counted."""
    counted = built.flops(batch) if context.rank == 0 else None
    return None if counted is None else counted // job["batch_per_worker"]
