"""One process that does the work of all workers with a user's module: the right answer of its equivalence check.

The ``own_reference`` of a job has ``shards``, the workers; ``bits`` of the arithmetic (64, 32, or 16 for a library's
mixed bf16); ``updates`` (``together``, or ``in_turn`` and ``frozen`` for servers that update with each gradient);
``joined``, whether all batches are one; ``draws``, by which what the module itself draws differs; and ``nudges`` as the
option of the framework ``reference`` has them.
"""

import abc
import contextlib
from typing import Any, Dict, Iterator, List, Optional

import numpy

from steptime.worker.own_module import OwnLoader, OwnWorkload, checksum_of, flop_per_sample, joined, seed_of_rank
from steptime.worker.process_context import Job, ProcessContext
from steptime.worker.session import Session
from steptime.worker.weights import NUDGES, parsed_nudges

DOUBLE, SINGLE, BF16 = 64, 32, 16

Arrays = Dict[str, numpy.ndarray]


class OwnReference(Session):
    """The user's module in one process: each worker's batches by themselves, or joined, and one update for all.

    A library's class computes a gradient and updates with it.
    """

    synchronised = False
    """Whether a layer normalises over the batches of all workers, so that they must be joined."""

    def __init__(self, job: Job, context: ProcessContext, built: OwnWorkload) -> None:
        """Make the loaders of all ranks; raises ValueError for those of a user that cannot be used."""
        self._asked = asked = job["own_reference"]
        self._built = built
        self._batch = job["batch_per_worker"]
        self._nudges = parsed_nudges(asked.get("nudges", "none"))
        self._ranks = [_Rank(job, built, rank, asked["shards"]) for rank in range(asked["shards"])]
        first = self._ranks[0].peek()
        built.prepare(first)
        self._facts = dict(
            built.facts(),
            first_batch=checksum_of(built, first),
            flop_per_sample=flop_per_sample(job, context, built, first),
        )
        self._bits = self.begin(asked["bits"], first)
        self._first = self.values()
        self._steps = self._pushes = 0
        self._same_batches = asked["shards"] > 1
        self._loss: Optional[float] = None
        built.seed(job["seed"] * 7919 + 1 + asked.get("draws", 0))

    @abc.abstractmethod
    def begin(self, bits: int, batch: Any) -> int:
        """Make ready to compute in so many bits; return those in which the module does on ``batch``."""

    @abc.abstractmethod
    def values(self) -> Arrays:
        """Return copies of what is trained, in the type in which it is kept."""

    @abc.abstractmethod
    def put(self, values: Arrays) -> None:
        """Take other values."""

    @abc.abstractmethod
    def backward(self, batch: Any, share: float) -> Any:
        """Add the gradients of ``share`` of the loss of a batch to those that are there, and return the loss."""

    @abc.abstractmethod
    def update(self) -> None:
        """Update with the gradients that are there, clipped where the job has ``clip_norm``, and drop them."""

    def step(self) -> None:
        if self._asked["updates"] == "together":
            self._step_together()
        else:
            self._push()

    def _step_together(self) -> None:
        batches = [rank.take() for rank in self._ranks]
        self._compare(batches)
        before = self._nudge()
        if self._asked.get("joined") or self.synchronised:
            self._loss = self._backward(joined(self._built, batches), 1.0)
        else:
            losses = [self._backward(batch, 1.0 / len(batches)) for batch in batches]
            self._loss = losses[0]
        if before is not None:
            self.put(before)
        self.update()

    def _push(self) -> None:
        rank = self._pushes % len(self._ranks)
        self._pushes += 1
        now = self.values()
        if self._asked["updates"] == "frozen":
            self.put(self._first)
        self._loss = self._backward(self._ranks[rank].take(), 1.0)
        self.put(now)
        self.update()

    def _backward(self, batch: Any, share: float) -> float:
        with self._built.of_user("the loss of %s" % self._built.own["build"]):
            return float(self.backward(batch, share))

    def _compare(self, batches: List[Any]) -> None:
        """Raise ValueError where two ranks begin with the same batch."""
        self._steps += 1
        if not self._same_batches:
            return
        self._same_batches = False
        first: Dict[int, int] = {}
        for rank, batch in enumerate(batches):
            other = first.setdefault(checksum_of(self._built, batch), rank)
            if other != rank:
                raise ValueError(
                    "%s gives the ranks %d and %d the same first batch, so that a missing exchange between them could "
                    "not be seen; use its arguments rank and size" % (self._built.own["data"], other, rank)
                )

    def _nudge(self) -> Optional[Arrays]:
        """Put weights off by some millionths of themselves, if that is asked for; return the weights before."""
        seeds = self._nudges.get(self._steps - 1, [])
        before = self.values() if seeds else None
        for seed in seeds:
            pair, way = divmod(seed, 2)
            stream, share = numpy.random.RandomState(pair), NUDGES[pair % len(NUDGES)]
            nudged = {}
            for name, each in self.values().items():
                ways = numpy.where(stream.randint(0, 2, each.shape) == way, 1.0 + share, 1.0 - share)
                nudged[name] = (each * ways).astype(each.dtype)
            self.put(nudged)
        return before

    def loss(self) -> Any:
        return self._loss

    def wait(self) -> None:
        """Nothing is left to be waited for: a loss was read."""

    def parameter_count(self) -> int:
        return sum(each.size for each in self._first.values())

    def output_shape(self) -> List[int]:
        return [self._batch]

    def get_weights(self) -> Arrays:
        return self.values()

    def facts(self) -> Dict[str, Any]:
        return dict(self.library_facts(), own=dict(self._facts, bits=self._bits))

    @abc.abstractmethod
    def library_facts(self) -> Dict[str, Any]:
        """Return ``Session.facts`` of the library and the device."""


class _Rank(object):
    """The loader of one rank, with random numbers of its own, as in a process of its own."""

    def __init__(self, job: Job, built: OwnWorkload, rank: int, size: int) -> None:
        self._built = built
        self._batches: Iterator[Any] = iter(OwnLoader(built, rank, size, job["batch_per_worker"]))
        self._ahead: List[Any] = []
        self._numbers: Any = None
        with self._own_numbers(first=seed_of_rank(job, rank)):
            self._ahead.append(next(self._batches))

    def peek(self) -> Any:
        """Return the batch that comes next."""
        return self._ahead[0]

    def take(self) -> Any:
        """Return the next batch."""
        with self._own_numbers():
            self._ahead.append(next(self._batches))
        return self._ahead.pop(0)

    @contextlib.contextmanager
    def _own_numbers(self, first: Optional[int] = None) -> Iterator[None]:
        outside = self._built.random_state()
        if first is None:
            self._built.set_random_state(self._numbers)
        else:
            self._built.seed(first)
        try:
            yield
        finally:
            self._numbers = self._built.random_state()
            self._built.set_random_state(outside)
