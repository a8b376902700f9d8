"""A training job as discrete events, which shares no code with the predictor: processes, links with queues, jitter.

Every worker computes its passes; its gradients become ready in buckets; each bucket goes round a ring, chunk by chunk,
over links that serve one chunk after the other. A chunk that arrives is passed on when the worker's own gradient is
there. Transfers have jitter with a heavy tail, and one link of the ring is the slowest.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count

import numpy as np

_STALLS, _STALL_TAIL = 0.005, 2.5
"""Share of transfers that stall, and the exponent of Pareto's distribution of how many times longer these take."""
_ROUNDS_AT_ONCE = 64
"""Whose factors are drawn together."""


class Events:
    """A clock, and what is to happen when."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = count()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, moment: float, act: Callable[[], None]) -> None:
        """Let something happen; moments that are over count as now."""
        heapq.heappush(self._heap, (max(moment, self.now), next(self._order), act))

    def run(self) -> float:
        """Return the moment of the last event."""
        while self._heap:
            self.now, _, act = heapq.heappop(self._heap)
            act()
        return self.now


@dataclass
class QueuedLink:
    """One direction between two neighbours: chunks leave one after the other and arrive a latency later."""

    rate: float
    latency_s: float
    free: float = 0.0

    def send(self, events: Events, size: float, slower: float, arrive: Callable[[], None]) -> None:
        """Queue a chunk that takes ``slower`` times as long as its bytes."""
        self.free = max(self.free, events.now) + slower * size / self.rate
        events.at(self.free + slower * self.latency_s, arrive)


@dataclass
class RingAllReduce:
    """One bucket on its way round: each worker sends 2(p-1) chunks, each behind the one that it received."""

    events: Events
    links: Sequence[QueuedLink]
    size: float
    slower: Callable[[], float]
    done: list[float] = field(init=False)

    def __post_init__(self) -> None:
        workers = len(self.links)
        self.done = [0.0] * workers
        self._rounds = 2 * (workers - 1)
        self._sent, self._received, self._ready = [0] * workers, [0] * workers, [False] * workers

    def gradient_ready(self, worker: int) -> None:
        """A worker has its own gradient, which it adds to all that it passes on."""
        self._ready[worker] = True
        self._send(worker)

    def _send(self, worker: int) -> None:
        while (
            self._ready[worker] and self._sent[worker] < self._rounds and self._sent[worker] <= self._received[worker]
        ):
            self._sent[worker] += 1
            after = (worker + 1) % len(self.links)
            chunk = self.size / len(self.links)
            self.links[worker].send(self.events, chunk, self.slower(), partial(self._receive, after))

    def _receive(self, worker: int) -> None:
        self._received[worker] += 1
        if self._received[worker] == self._rounds:
            self.done[worker] = self.events.now
        self._send(worker)


@dataclass(frozen=True)
class RoundsOfRings:
    """The same rings for a thousand workers: all chunks of a round at once, and buckets one behind the other.

    A bucket leaves a worker when the bucket before it has come back there, as on one stream of a device.
    """

    rates: np.ndarray
    """Of each worker's link to the next one, bytes per second."""
    latencies_s: np.ndarray
    jitter: float
    rng: np.random.Generator

    def finish(self, buckets: Sequence[tuple[float, np.ndarray]]) -> float:
        """Return when the last chunk has arrived; buckets are their bytes and when each worker has them ready."""
        workers = len(self.rates)
        free, done = np.zeros(workers), np.zeros(workers)
        for size, ready in buckets:
            chunk_s = size / workers / self.rates
            received = np.maximum(ready, done)
            rounds = 2 * (workers - 1)
            for first in range(0, rounds, _ROUNDS_AT_ONCE):
                slower = self._slower((min(_ROUNDS_AT_ONCE, rounds - first), workers))
                for sending, travelling in zip(slower * chunk_s, slower * self.latencies_s, strict=True):
                    free = np.maximum(free, received) + sending
                    arrived = free + travelling
                    np.maximum(received[1:], arrived[:-1], out=received[1:])
                    received[0] = max(received[0], arrived[-1])
            done = received
        return float(done.max())

    def _slower(self, shape: tuple[int, int]) -> np.ndarray:
        """Return factors as ``heavy_tailed`` draws them."""
        if not self.jitter:
            return np.ones(shape)
        factors = np.exp(self.jitter * self.rng.standard_normal(shape, np.float32)).astype(np.float64)
        stalled = self.rng.random(shape, np.float32) < _STALLS
        factors[stalled] *= 1.0 + self.rng.pareto(_STALL_TAIL, np.count_nonzero(stalled))
        return factors


@dataclass(frozen=True)
class Job:
    """What the workers of a step compute and send."""

    forward_s: Sequence[float]
    """Of each worker."""
    backward_s: Sequence[float]
    buckets: Sequence[tuple[float, float]]
    """Bytes, and the share of the backward pass after which they are ready."""
    rates: Sequence[float]
    """Of each worker's link to its neighbour, bytes per second."""
    latency_s: float


def finish_of(job: Job, slower: Callable[[], float]) -> float:
    """Return when the last worker has all gradients and its own backward pass is over."""
    events = Events()
    links = [QueuedLink(rate, job.latency_s) for rate in job.rates]
    for size, share in job.buckets:
        ring = RingAllReduce(events, links, size, slower)
        for worker, (forward, backward) in enumerate(zip(job.forward_s, job.backward_s, strict=True)):
            events.at(forward + share * backward, partial(ring.gradient_ready, worker))
    computed = max(forward + backward for forward, backward in zip(job.forward_s, job.backward_s, strict=True))
    return max(events.run() if len(links) > 1 else 0.0, computed)


def heavy_tailed(rng: np.random.Generator, jitter: float) -> Callable[[], float]:
    """Return factors of transfers: log-normal around 1, and one of two hundred several times as long."""

    def draw() -> float:
        stall = 1.0 + (rng.pareto(_STALL_TAIL) if jitter and rng.random() < _STALLS else 0.0)
        return float(np.exp(jitter * rng.standard_normal())) * stall

    return draw
