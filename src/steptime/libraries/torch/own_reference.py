"""One process that does the work of all workers with a user's module: the right answer of its equivalence check.

The ``own_reference`` of a job has ``shards``, the workers; ``bits`` of the arithmetic (64, 32, or 16 for autocast to
bf16); ``updates`` (``together``, or ``in_turn`` and ``frozen`` for servers that update with each gradient); ``joined``,
whether all batches are one; ``draws``, by which what the module itself draws differs; and ``nudges`` as the option of
the framework ``reference`` has them.
"""

import contextlib
import random
from collections.abc import Mapping
from typing import Any, Dict, Iterator, List, Optional

import numpy
import torch

from steptime.libraries.torch.checkpoint import clip, open_optimizer, set_rate
from steptime.libraries.torch.devices import open_device
from steptime.libraries.torch.own_module import (
    OwnLoader,
    OwnWorkload,
    changed,
    checksum_of,
    measured_flops,
    seed_all,
    seed_of_rank,
)
from steptime.worker.process_context import Job, ProcessContext
from steptime.worker.session import Session

_DOUBLE, _BF16 = 64, 16
_NUDGES = (2.0**-21, 2.0**-19, 2.0**-17, 2.0**-15)
"""As those of the framework ``reference``."""


class OwnReference(Session):
    """The user's module in one process: each worker's batches by themselves, or joined, and one update for all."""

    def __init__(self, job: Job, context: ProcessContext) -> None:
        """Build the module and the loaders of all ranks; raises ValueError for those of a user that cannot be used."""
        self._asked = asked = job["own_reference"]
        self._settings = job["optimizer"]
        self._device = open_device(job, context)
        torch.manual_seed(seed_of_rank(job, 0))
        self._built = OwnWorkload(job)
        self._facts = self._built.facts()
        self._batch = job["batch_per_worker"]
        self._ranks = [_Rank(job, self._built, rank, asked["shards"]) for rank in range(asked["shards"])]
        self._facts["flop_per_sample"] = _per_sample(measured_flops(self._built, self._ranks[0].peek()), self._batch)
        self._module = self._built.module.to(self._device.torch_device).train()
        self._bits = asked["bits"]
        if self._bits == _DOUBLE and not self._takes_double():
            self._bits = 32
        self._module.to(torch.float64 if self._bits == _DOUBLE else torch.float32)
        self._values = [each for each in self._module.parameters() if each.requires_grad]
        self._optimizer = open_optimizer(self._values, job["optimizer"], "default")
        self._first = [each.detach().clone() for each in self._values]
        self._steps = self._pushes = 0
        self._same_batches = asked["shards"] > 1
        self._synchronised = any(isinstance(each, torch.nn.SyncBatchNorm) for each in self._module.modules())
        self._loss: Optional[float] = None
        seed_all(job["seed"] * 7919 + 1 + asked.get("draws", 0))

    def _takes_double(self) -> bool:
        """Say whether the module computes in double precision; some make values of float32 inside."""
        self._module.to(torch.float64)
        kept = {name: each.clone() for name, each in self._module.named_buffers()}
        try:
            with torch.no_grad():
                self._built.loss(self._module, self._placed(self._ranks[0].peek(), torch.float64))
            return True
        except (RuntimeError, TypeError):
            return False
        finally:
            for name, each in self._module.named_buffers():
                each.copy_(kept[name])

    def _placed(self, batch: Any, kind: Any) -> Any:
        return changed(
            batch, lambda each: each.to(self._device.torch_device, kind if each.is_floating_point() else each.dtype)
        )

    def _backward(self, batch: Any, share: float) -> float:
        kind = torch.float64 if self._bits == _DOUBLE else torch.float32
        mixed: Any = contextlib.ExitStack()
        if self._bits == _BF16:
            mixed = torch.autocast(self._device.torch_device.type, dtype=torch.bfloat16)
        with mixed:
            loss = self._built.loss(self._module, self._placed(batch, kind))
        if not torch.is_tensor(loss) or loss.numel() != 1:
            what = "a tensor of %d values" % loss.numel() if torch.is_tensor(loss) else type(loss).__name__
            raise ValueError("the loss of the module is %s, not one number; take its mean" % what)
        (loss * share).backward()
        return float(loss.detach())

    def step(self) -> None:
        if self._asked["updates"] == "together":
            self._step_together()
        else:
            self._push()

    def _step_together(self) -> None:
        batches = [rank.take() for rank in self._ranks]
        self._compare(batches)
        before = self._nudge()
        if self._asked.get("joined") or self._synchronised:
            self._loss = self._backward(joined(batches), 1.0)
        else:
            losses = [self._backward(batch, 1.0 / len(batches)) for batch in batches]
            self._loss = losses[0]
        if before is not None:
            self._put(before)
        self._update()

    def _push(self) -> None:
        rank = self._pushes % len(self._ranks)
        self._pushes += 1
        now = [each.detach().clone() for each in self._values]
        if self._asked["updates"] == "frozen":
            self._put(self._first)
        self._loss = self._backward(self._ranks[rank].take(), 1.0)
        self._put(now)
        self._update()

    def _update(self) -> None:
        clip(self._values, self._settings)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)

    def _put(self, values: List[Any]) -> None:
        with torch.no_grad():
            for each, value in zip(self._values, values):
                each.copy_(value)

    def _compare(self, batches: List[Any]) -> None:
        """Raise ValueError where two ranks begin with the same batch."""
        self._steps += 1
        if not self._same_batches:
            return
        self._same_batches = False
        first: Dict[int, int] = {}
        for rank, batch in enumerate(batches):
            other = first.setdefault(checksum_of(batch), rank)
            if other != rank:
                raise ValueError(
                    "%s gives the ranks %d and %d the same first batch, so that a missing exchange between them could "
                    "not be seen; use its arguments rank and size" % (self._built.own["data"], other, rank)
                )

    def _nudge(self) -> Optional[List[Any]]:
        """Put weights off by some millionths of themselves, if that is asked for; return the weights before."""
        seeds = _parsed(self._asked.get("nudges", "none")).get(self._steps - 1, [])
        before = [each.detach().clone() for each in self._values] if seeds else None
        for seed in seeds:
            pair, way = divmod(seed, 2)
            stream, share = numpy.random.RandomState(pair), _NUDGES[pair % len(_NUDGES)]
            with torch.no_grad():
                for each in self._values:
                    ways = torch.from_numpy(stream.randint(0, 2, each.shape) == way).to(each.device)
                    each.mul_(torch.where(ways, 1.0 + share, 1.0 - share).to(each.dtype))
        return before

    def set_learning_rate(self, rate: float) -> None:
        set_rate(self._optimizer, rate)

    def wait(self) -> None:
        self._device.wait()

    def loss(self) -> Any:
        return self._loss

    def parameter_count(self) -> int:
        return sum(each.numel() for each in self._values)

    def output_shape(self) -> List[int]:
        return [self._batch]

    def get_weights(self) -> Dict[str, Any]:
        return self._built.weights()

    def facts(self) -> Dict[str, Any]:
        own = dict(self._facts, bits=self._bits)
        return dict(self._device.facts(), framework_version=torch.__version__, own=own)


class _Rank(object):
    """The loader of one rank, with random numbers of its own, as in a process of its own."""

    def __init__(self, job: Job, built: OwnWorkload, rank: int, size: int) -> None:
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
        outside = _numbers()
        if first is None:
            _set_numbers(self._numbers)
        else:
            seed_all(first)
        try:
            yield
        finally:
            self._numbers = _numbers()
            _set_numbers(outside)


def _numbers() -> Any:
    return random.getstate(), numpy.random.get_state(), torch.get_rng_state()  # noqa: NPY002 - users may draw from it


def _set_numbers(states: Any) -> None:
    random.setstate(states[0])
    numpy.random.set_state(states[1])  # noqa: NPY002 - as above
    torch.set_rng_state(states[2])


def joined(batches: List[Any]) -> Any:
    """Return the batches of all ranks as one; other values than tensors are those of the first."""
    first = batches[0]
    if torch.is_tensor(first):
        return torch.cat(batches) if first.dim() else first
    if isinstance(first, Mapping):
        return {key: joined([batch[key] for batch in batches]) for key in first}
    if isinstance(first, (tuple, list)):
        values = [joined(list(values)) for values in zip(*batches)]
        return type(first)(*values) if hasattr(first, "_fields") else type(first)(values)
    return first


def _per_sample(flops: Optional[int], batch: int) -> Optional[int]:
    return None if flops is None else flops // batch


def _parsed(text: str) -> Dict[int, List[int]]:
    found: Dict[int, List[int]] = {}
    for each in [] if text == "none" else text.split():
        seed, _, steps = each.partition("@")
        first, _, last = steps.partition("-")
        for step in range(int(first), int(last)):
            found.setdefault(step, []).append(int(seed))
    return found
