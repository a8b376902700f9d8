"""A scaling curve: one training set-up, measured with several numbers of workers."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf

import numpy as np
import scipy  # type: ignore[import-untyped]  # scipy ships no types; its modules are imported when used
from numpy.typing import NDArray

from steptime.errors import UsageError
from steptime.model.shared_cores import MachineCores

Array = NDArray[np.float64]

FIT = "fit"
HOLDOUT = "holdout"
INPUT, EVALUATION, CHECKPOINT = TIME_PARTS = ("input", "evaluation", "checkpoint")
"""What may be in a time beside training."""
_TAIL = 0.95


class EvidenceError(UsageError):
    """A table of measured curves is wrong; every mistake names its line."""


@dataclass(frozen=True)
class Setup:
    """What describes a curve; None if the source does not say."""

    source: str
    framework: str
    strategy: str
    workload: str
    precision: str
    accelerator: str
    data: str
    batch_per_worker: int | None
    workers_per_host: int | None
    intra_host_link: str
    transport: str
    inter_host_rate: float | None
    """Nominal bytes per second of one network card."""
    cards_per_host: int | None
    stack: str = ""
    """The name of a declared stack; empty where the text of ``framework`` has it."""
    parameters: int | None = None
    """Trainable values; None if the workload's name has them, or unknown."""
    active_parameters: int | None = None
    """Those of them that a token meets (mixture of experts); None if all do, or if the source does not say."""
    tokens_per_sample: int | None = None
    """Of a transformer; None of other workloads, or if the source does not say."""
    exchange: str = ""
    """When gradients travel, as ``Stack.exchange``; empty where the stack has it. So are the next two."""
    messages: str = ""
    value_bytes: int | None = None
    sharded_over: int | None = None
    """Workers over which weights are split, replicas of which average their parts; None if the source does not say."""
    accumulation: int = 1
    """Backward passes of a step, before one exchange of gradients."""
    tensor_parallel: int = 1
    """Devices of each worker, which split its layers: each exchanges its part of the gradients on links of its own."""
    input_store: str = ""
    """Where samples lie, a name of ``input_ceiling.STORES``; empty if the source does not say."""
    input_rate: float | None = None
    """Samples per second that the store gives to all workers together at most; None if the source does not say."""
    time_includes: tuple[str, ...] | None = None
    """Those of ``TIME_PARTS`` that are in the times beside training; None if the source does not say."""
    shared_cores: MachineCores | None = None
    """Of a host, on which its workers compute; None on devices, or if the source does not say."""
    one_batch: bool = False
    """Whether all workers share one batch (strong scaling); else each keeps its own."""
    global_batch: int | None = None
    """Samples of the one batch, if they are known."""

    assumed_host_size: float | None = None
    """Workers that fit in one host, by an assumption where the source does not say; infinite where all share one."""
    assumed_spread: bool = False
    """Whether workers are assumed to be spread over all hosts first, and to share their cards later."""
    assumed_once: float = 0.0
    """The share of the first point's step that is assumed to be work once an epoch, of which steps become fewer."""

    @property
    def has_work_once_an_epoch(self) -> bool:
        """Whether times hold what each epoch has once, while steps of an epoch become fewer with workers."""
        return not self.one_batch and bool(set(self.time_includes or ()) & {EVALUATION, CHECKPOINT})

    @property
    def host_size(self) -> float:
        """Workers that fit in one host; one where the source states a network and no host, else no limit is known."""
        if self.workers_per_host is not None:
            return self.workers_per_host
        if self.assumed_host_size is not None:
            return self.assumed_host_size
        return 1 if self.inter_host_rate is not None else inf


@dataclass(frozen=True)
class Point:
    """One measured point; servers is None if not stated."""

    workers: int
    servers: int | None
    step_time: float
    """Seconds per iteration."""
    error: float = 0.0
    """Standard error of its logarithm, as repetitions show it; 0 where none are known."""


def error_of_mean(deviation: float, repetitions: int, degrees: int | None = None) -> float:
    """Return the standard error of a mean, as wide as Student's interval of 90 % is over that of a normal number.

    Args:
        deviation: standard deviation between repetitions.
        repetitions: behind the mean.
        degrees: of freedom by which the deviation is known; by default one less than repetitions. Of none, the
            deviation is that of a single run.
    """
    degrees = repetitions - 1 if degrees is None else degrees
    if degrees < 1:
        return deviation
    wider = scipy.special.stdtrit(degrees, _TAIL) / scipy.special.ndtri(_TAIL)
    return float(deviation / repetitions**0.5 * wider)


PointsAsked = Sequence[tuple[int, int | None]]
"""Workers and servers of points to predict; None if the servers are not stated."""


@dataclass(frozen=True)
class ScalingCurve:
    """A set-up with the points that a model may see and those that it has to predict, by rising workers."""

    name: str
    setup: Setup
    fit: tuple[Point, ...]
    holdout: tuple[Point, ...]
    notes: tuple[str, ...] = ()
    """How its rows were read, in sentences: counts measured several times, and times that may be of another unit."""

    def hosts(self, workers: int) -> int:
        """How many hosts that many workers take; hosts are filled one after the other."""
        return ceil(workers / self.setup.host_size) or 1

    def slowdown(self, counts: Array) -> Array:
        """Return how many times as long so many workers take for the cores that they share; 1 where none are known."""
        shared = self.setup.shared_cores
        together = np.minimum(counts, self.setup.host_size)
        return np.ones(len(counts)) if shared is None else shared.slowdown(together)

    @property
    def left_host(self) -> bool:
        """Whether a fit point already spans several hosts."""
        return any(self.hosts(point.workers) > 1 for point in self.fit)

    def regime(self, workers: int) -> str:
        """``seen`` where the fit points know hosts as this point does, ``first_step_out`` where they never left one."""
        return "first_step_out" if self.hosts(workers) > 1 and not self.left_host else "seen"


def times(points: Sequence[Point]) -> Array:
    """Return the iteration times in seconds."""
    return np.array([point.step_time for point in points], dtype=float)


def workers(points: Sequence[Point]) -> Array:
    """Return the numbers of workers."""
    return np.array([point.workers for point in points], dtype=float)
