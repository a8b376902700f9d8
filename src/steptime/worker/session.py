"""The interface between the worker and a framework: one worker's live training.

Requirements, which every session meets:

- the framework is imported inside ``Framework.open_session``, never when the adapter's module is imported;
- a session does what an expert of that framework would write by hand: graph mode, blocked layouts, prefetching;
- ``step`` trains for real: it takes the next batch, runs forward and backward, exchanges gradients and updates;
- nothing in a session measures time: the worker's loop does, in the same way for all frameworks;
- weights leave and enter a session as numpy arrays, float32, under the names and in the layout of the workload's JSON
  (convolution: out, in, height, width; linear: out, in), whatever the framework keeps inside.

The interface of a training step that can be broken down: what the breakdown of a step asks of a framework.

Requirements, which every ablated step meets:

- a stage does what the whole step does, less what is taken away: the same kernels, layouts, buffers and messages;
- a stage may return before its work is finished, as ``Session.step`` may;
- a stage that the framework cannot break down is left out, and its phases are null; nothing is estimated;
- all workers give the same stages, in whatever order, and call them together.

Losses and batches of some of the steps that are timed: a session hands out what reads the losses when all are over.
"""

import abc
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Tuple

from steptime.worker.clock import HostClock, StepClock

if TYPE_CHECKING:
    import numpy

MARKS = ("input", "h2d", "forward", "backward", "exchange", "update")
"""The marks that a step may have, in the order in which it passes them."""
_FIRST_KEPT = (1, 8, 24, 64)
_GROWTH = 2.5
"""Of one kept step over the one before, behind the first."""


class AblatedStep(abc.ABC):
    """One session's step with stages taken away; made by ``Session.ablate``, in ablation runs only."""

    marks: Tuple[str, ...] = ()
    """Those of ``MARKS`` that ``marked_step`` marks, in their order; empty where no marked step exists.

    A mark that follows another directly ends one phase; left out, its phase counts to the next one's. ``exchange``
    needs ``backward``, and each step must set those that are declared here; else the ablation run fails.

    ``input`` (the batch is there), ``h2d``, ``forward``, ``backward`` (all gradients of this worker are computed: it
    has arrived where the exchange needs it), ``exchange`` (the last gradient came back) and ``update``.
    """

    @abc.abstractmethod
    def stages(self) -> Dict[str, Callable[[], Any]]:
        """Return ``{stage: function}``; each function runs one step of its stage. Called once.

        Each of these stages does what the one before it does, and one thing more:

        ``forward``
            The forward pass and the loss, as in training, on a batch that is held (on the device).
        ``backward``
            And the gradients, which are neither exchanged nor applied.
        ``local``
            And the update of the weights with them, on this worker alone. Absent where servers update.
        ``exchange``
            And the exchange with the other workers: the whole step, still on the held batch. Absent for one worker.
        ``h2d``
            The same with the batch held in the host's memory and copied. Absent on a CPU.

        The last stage, ``step``, is the session's own and takes its batch from the loader. Two stages are alone:

        ``input``
            Taking the next batch from the loader, nothing else.
        ``communication``
            Exchanging gradients as ``exchange`` does (the same pieces), with nothing computed.
        """

    def marked_step(self, mark: Callable[..., None]) -> None:
        """Run one step as ``Session.step`` does, and call ``mark(phase)`` as each phase of ``marks`` ends.

        The framework's own view of its step: explicit phases, hooks, its profiler. Where the framework reports only
        afterwards when a phase ended, ``mark(phase, at_s)`` takes the moment, in seconds of the host's monotonic
        clock.
        """
        raise NotImplementedError

    def transfers(self) -> Optional[List[List[Any]]]:
        """Return what was exchanged in marked steps since the last call, and forget it; None if it cannot be seen.

        A list of ``[name, bytes, ready_s, done_s]``: one piece of gradients (a bucket, a key), when it could be sent
        and when its result was there, in seconds of the host's monotonic clock, in the order of ``ready_s``.
        """
        return None

    def native(self) -> Dict[str, Any]:
        """Return the durations by the framework's own timers in the marked steps since the last call; forget them.

        ``{source: {phases: seconds}}``, means over these steps, empty where the framework has no timers: ``source``
        names its log, ``phases`` the phase that a duration covers, or several joined by `` + ``, such as
        ``comm_exposed + sync_wait``. The breakdown compares these durations with its own.
        """
        return {}


class Session(abc.ABC):
    """One worker's live training: a workload, an optimizer, a strategy and a loader, ready to step."""

    @abc.abstractmethod
    def step(self) -> None:
        """Run one whole training step; may return before the device or the engine has finished it."""

    @abc.abstractmethod
    def wait(self) -> None:
        """Return once everything that ``step`` started on this worker is finished."""

    @abc.abstractmethod
    def loss(self) -> float:
        """Return the loss of the last step on this worker's batch, as a float (may wait)."""

    def loss_later(self) -> Optional[Callable[[], float]]:
        """Return what reads the loss of the last step when later ones are over; None if the session cannot.

        Called between timed steps: it waits for nothing that ``step`` does not wait for. What is returned is called
        once, after the last step. This reads the loss at once, as is right where a step has finished when it returns.
        """
        loss = self.loss()
        return lambda: loss

    @abc.abstractmethod
    def parameter_count(self) -> int:
        """Return the number of trainable values, counted in the framework's own objects, of the whole workload."""

    @abc.abstractmethod
    def output_shape(self) -> List[int]:
        """Return the shape of the network's output for one batch, as a list, in the workload's layout."""

    @abc.abstractmethod
    def get_weights(self) -> Optional[Dict[str, "numpy.ndarray"]]:
        """Return ``{name: array}`` of all trainable values, or None on a worker that does not hold them.

        Every worker calls it at the same point, since sharded strategies must gather.
        """

    def facts(self) -> Dict[str, Any]:
        """Return JSON-ready facts worth keeping with the record: versions, device name, threads, flags in force.

        Must hold at least ``framework_version``.
        """
        raise NotImplementedError

    def probe_precision(self) -> Dict[str, Tuple[float, Any]]:
        """Return ``{what: (value, element type)}`` of ``precision.PROBE`` multiplied by one as in this session's steps.

        ``what`` is the kind of product, as ``matrix product`` or ``convolution``. Empty where the framework has one
        precision only and nothing else could be in force.
        """
        return {}

    def set_learning_rate(self, rate: float) -> None:
        """Let the steps that follow update with the learning rate ``rate``, on this worker and on its servers.

        Every worker calls it with the same rate ahead of the same step. Raises NotImplementedError where the manifest
        does not say ``learning = true``; likewise ``outputs``.
        """
        raise NotImplementedError

    def outputs(self, inputs: "numpy.ndarray") -> "numpy.ndarray":
        """Return the network's outputs in evaluation: running statistics of batch normalisation, and no dropout.

        Every worker calls it equally often, in the same order, between steps. Where the workers do not wait for each
        other, the weights are the newest that the servers have.

        Args:
            inputs: float32 (batch_per_worker,) + input shape, channels first.

        Returns:
            float32 (batch_per_worker,) + the shape of the workload's output, channels first; before the softmax.
        """
        raise NotImplementedError

    def state(self) -> Optional[Dict[str, "numpy.ndarray"]]:
        """Return ``{name: array}`` of all that this worker needs to go on from here; None if that cannot be.

        That is the weights, the running statistics, the optimizer's state (its step count too) and the state of random
        numbers, or this worker's share of them. Called between steps by every worker.
        """
        return None

    def set_state(self, arrays: Dict[str, "numpy.ndarray"]) -> None:
        """Go on from the ``arrays`` that ``state`` returned on the worker of this rank; called before the first step.

        Raises NotImplementedError where ``state`` returns None.
        """
        raise NotImplementedError

    def clock(self) -> StepClock:
        """Return the clock that times this session's steps; sessions on a device return an event clock."""
        return HostClock(self.wait)

    def staleness(self) -> Optional[Dict[int, int]]:
        """Return ``{staleness: count}`` of this worker's updates since the last call; None if nothing can be stale.

        The staleness of an update is how many updates of other workers came between this worker's pull of the
        weights, from which the gradient was computed, and the application of that gradient. What is returned is
        forgotten. Called between the timed stretches, never in them.
        """
        return None

    def device_peak_bytes(self) -> Optional[int]:
        """Return the most memory of its device that this worker's arrays had at once, by the framework's own count.

        None on processors, and where the framework does not count. The driver counts more: see ``gpu_memory_used`` of
        a launch's noise.
        """
        return None

    def facts_at_end(self) -> Dict[str, Any]:
        """Return JSON-ready facts that are known after the last step alone, as what was compiled."""
        return {}

    def ablate(self) -> Optional[AblatedStep]:
        """Return this session's step as an ``AblatedStep``; None if the framework's step cannot be broken down.

        Called at most once, before the first step of an ablation run: hooks and second graphs that ablation needs and
        ``step`` does not are made here. Weights may be anything afterwards; the session is closed.
        """
        return None

    def batches_ahead(self) -> int:
        """Return how many batches the loader may hold ready: so many steps after a pause see no slow loader."""
        return 0

    def close(self) -> None:  # noqa: B027 - most sessions have nothing to release
        """Release processes and connections at the end; all workers call it."""

    def abort(self) -> None:
        """Release what this worker alone can release, after a failure of another method.

        Called instead of ``close``. It must not wait for other workers, which may be waiting for this one.
        """
        self.close()


def kept_steps() -> Iterator[int]:
    """Yield the steps behind which losses are kept, without end: 1, 8, 24, 64, 160, 400, 1000 and so on.

    They are counted from the first of the warm-up, so that launches with other numbers of steps have most in common.
    """
    for step in _FIRST_KEPT:
        yield step
    while True:
        step = int(step * _GROWTH)
        yield step


class KeptLosses(object):
    """Takes steps, and keeps what reads the losses of some: nothing else is done between any two steps.

    ``drawn``
        Batches that had been drawn when the losses were read last, as far as who reads them notes it.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._kept = kept_steps()
        self._next = next(self._kept)
        self._taken = 0
        self._readers: List[Tuple[int, Callable[[], float]]] = []
        self.drawn = 0

    def take(
        self, steps: int, tick: Optional[Callable[[], Any]] = None, stop_at: Optional[Callable[[int], Any]] = None
    ) -> int:
        """Take so many steps, call ``tick`` behind each, and ``stop_at`` with their number where a loss is kept.

        A ``tick`` that returns what is true ends them. Returns how many were taken.
        """
        step, begin, end = self._session.step, self._taken, self._taken + steps
        while self._taken < end:
            stop = min(end, self._next)
            if tick is None:
                for _ in range(stop - self._taken):
                    step()
            else:
                for taken in range(self._taken + 1, stop + 1):
                    step()
                    if tick():
                        end = stop = taken
                        break
            self._taken = stop
            if stop == self._next:
                if stop_at is not None:
                    stop_at(stop - begin)
                reader = self._session.loss_later()
                if reader is not None:
                    self._readers.append((stop, reader))
                self._next = next(self._kept)
        return end - begin

    def read(self) -> List[Tuple[int, float]]:
        """Return ``[(step, loss)]`` since the last call, steps counted from 1."""
        readers, self._readers = self._readers, []
        return [(step, reader()) for step, reader in readers]


class DrawnBatches(object):
    """What this process has drawn of a worker's order: of which number the newest batch is, and some of the batches.

    ``number``
        Counted from 1; 0 if this process draws none.
    ``kept``
        The indices of the batches ``kept_steps``, by their number; of a user's loader, what has their checksums.
    """

    _by_rank: Dict[int, "DrawnBatches"] = {}

    def __init__(self) -> None:
        self.number = 0
        self.kept: Dict[int, Any] = {}

    @classmethod
    def of(cls, rank: int) -> "DrawnBatches":
        """Return what was drawn last of the order of a worker."""
        return cls._by_rank.get(rank, cls())

    @classmethod
    def forget(cls) -> None:
        """Forget what an earlier launch drew in this process, as a launcher starts one after the other in its own."""
        cls._by_rank.clear()

    @classmethod
    def note(cls, order: Iterator[Tuple[Any, Any]], rank: int) -> Iterator[Tuple[Any, Any]]:
        """Yield what ``order`` yields, and note it."""
        drawn = cls._by_rank[rank] = cls()
        for kept in kept_steps():
            while drawn.number < kept:
                batch = next(order)
                drawn.number += 1
                if drawn.number == kept:
                    drawn.kept[kept] = batch[1]
                yield batch
