"""Made-up clusters of hosts of eight devices, simulated as events: what a profile of one host is held to.

Rings run through all devices of all hosts, chunk by chunk, over links inside hosts and, from each host to the next,
over its cards. Nothing of the predictor makes the steps. What no predictor can know of one host varies as it does among
clusters: how much of their nominal rate cards reach and how much of it more hosts lose, how long a message between
hosts takes, how much slower the cards of the slowest host are, and how much workers differ.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from events import Events, QueuedLink, RingAllReduce, RoundsOfRings, heavy_tailed
from gpu_hosts import BATCH, GPU_HOST, RESNET
from world import a_profile, mean_largest

from steptime.fitting.observation import Deployment, LaunchPhases, Observation
from steptime.fitting.profile import Profile

GPUS = 8
_NETWORK_BYTES = 102_228_128.0
"""Gradients of ResNet-50, which travel in buckets of 25 MiB behind a first one of 1 MiB."""
_STEPS, _TRUE_STEPS = 5, 7
_MOST_EVENTS = 64
"""Devices up to which every chunk is an event; of more, whole rounds are."""


@dataclass(frozen=True)
class MadeUpCluster:
    """What is true of one cluster."""

    forward_s: float
    backward_s: float
    update_s: float
    inner_rate: float
    inner_latency_s: float
    nominal: float
    """Bytes per second that a card's name says."""
    cards: int
    reached: float
    """Of the nominal rate."""
    slowest: float
    """Of the rate of other cards, at the slowest host."""
    congestion: float
    """By how much each doubling of hosts lengthens what crosses them, as a share of it."""
    outer_latency_s: float
    spread: float
    """Of workers, relative."""
    noise: float
    """Of launches, relative."""

    def step_s(self, devices: int, rng: np.random.Generator, count: int = _TRUE_STEPS) -> float:
        """Return the median of some steps."""
        return float(np.median([self._one(devices, rng) for _ in range(count)]))

    def exchange_s(self, devices: int) -> float:
        """Return the seconds of all exchanges without computing, one after the other."""
        even = heavy_tailed(np.random.default_rng(0), 0.0)
        return sum(self._finish(devices, np.zeros(devices), [(size, 0.0)], even) for size, _ in _buckets())

    def _one(self, devices: int, rng: np.random.Generator) -> float:
        speeds = 1.0 + (self.spread * rng.standard_normal(devices) if devices > 1 else np.zeros(devices))
        computed = float((self.forward_s + self.backward_s) * speeds.max())
        if devices == 1:
            return computed + self.update_s
        if devices > _MOST_EVENTS:
            links = self._links(devices)
            rings = RoundsOfRings(
                np.array([link.rate for link in links]), np.array([link.latency_s for link in links]), 0.05, rng
            )
            ready = [(size, speeds * (self.forward_s + share * self.backward_s)) for size, share in _buckets()]
            return max(rings.finish(ready), computed) + self.update_s
        end = self._finish(devices, speeds, _buckets(), heavy_tailed(rng, 0.05))
        return max(end, computed) + self.update_s

    def _finish(
        self, devices: int, speeds: np.ndarray, buckets: list[tuple[float, float]], slower: Callable[[], float]
    ) -> float:
        events = Events()
        links = self._links(devices)
        for size, share in buckets:
            ring = RingAllReduce(events, links, size, slower)
            for worker, speed in enumerate(speeds):
                ready = speed * (self.forward_s + share * self.backward_s)
                events.at(ready, partial(ring.gradient_ready, worker))
        return events.run()

    def _links(self, devices: int) -> list[QueuedLink]:
        """Return the link of each device to the next one: inside its host, or over its host's cards."""
        doublings = np.log2(max(devices / GPUS, 1.0))
        rate = self.nominal * self.reached * self.cards / (1.0 + self.congestion * doublings)
        found = []
        for device in range(devices):
            crosses = devices > GPUS and device % GPUS == GPUS - 1
            if crosses:
                slow = self.slowest if device == GPUS - 1 else 1.0
                found.append(QueuedLink(min(slow * rate, self.inner_rate), self.outer_latency_s))
            else:
                found.append(QueuedLink(self.inner_rate, self.inner_latency_s))
        return found


def _buckets() -> list[tuple[float, float]]:
    """Return bytes and when each is ready, as shares of the backward pass."""
    mib = 1024.0**2
    sizes = [8.2 * mib, *[25.6 * mib] * 3]
    sizes.append(_NETWORK_BYTES - sum(sizes))
    shares = (0.05, 0.2, 0.4, 0.7, 1.0)
    return list(zip(sizes, shares, strict=True))


def a_cluster(seed: int) -> MadeUpCluster:
    """Return a cluster drawn at random."""
    rng = np.random.default_rng(seed)
    computing = float(np.exp(rng.uniform(np.log(0.004), np.log(0.08))))
    return MadeUpCluster(
        forward_s=computing / 3,
        backward_s=2 * computing / 3,
        update_s=0.02 * computing,
        inner_rate=float(2.0e11 * np.exp(0.3 * rng.standard_normal())),
        inner_latency_s=float(1e-6 * np.exp(0.5 * rng.standard_normal())),
        nominal=float(rng.choice([1e11, 2e11, 4e11])) / 8,
        cards=int(rng.choice([1, 2, 4, 8])),
        reached=float(0.85 * np.exp(0.25 * rng.standard_normal())),
        slowest=float(rng.uniform(0.5, 1.0)),
        congestion=float(rng.exponential(0.15)),
        outer_latency_s=float(5e-6 * np.exp(1.0 * rng.standard_normal())),
        spread=float(rng.uniform(0.002, 0.02)),
        noise=0.02,
    )


def profile_of(cluster: MadeUpCluster, seed: int) -> Profile:
    """Return the profile of one host: 1, 2, 4 and 8 devices, in three launches each, broken down in two more."""
    rng = np.random.default_rng(10_000 + seed)
    return a_profile([_observation(cluster, devices, rng) for devices in (1, 2, 4, 8)], machine=GPU_HOST)


def _observation(cluster: MadeUpCluster, devices: int, rng: np.random.Generator) -> Observation:
    def noisy(seconds: float) -> float:
        return float(seconds * np.exp(cluster.noise * rng.standard_normal()))

    several = devices > 1
    exchange = cluster.exchange_s(devices) if several else None
    largest = mean_largest(devices) * cluster.spread
    launches = tuple(
        LaunchPhases(
            {
                "forward": noisy(cluster.forward_s),
                "backward": noisy(cluster.backward_s),
                "update": noisy(cluster.update_s),
                "input_wait": 0.0,
            },
            noisy(exchange) if exchange else None,
            input_s=0.0,
            persistent=0.1 * largest if several else None,
            transient=0.9 * largest if several else None,
            pieces=tuple(_buckets()) if several else (),
        )
        for _ in range(2)
    )
    return Observation(
        trial=f"gpus-{devices}",
        key=RESNET if several else replace(RESNET, strategy="single"),
        deployment=Deployment(devices, BATCH, workers_per_host=devices, collectives="gloo"),
        steps_s=tuple(noisy(cluster.step_s(devices, rng, _STEPS)) for _ in range(3)),
        step_count=300,
        launch_phases=launches,
    )
