"""Observations of a group whose parameters are known, because a simulation of events was run with them.

Nothing of the predictor makes them: ``events`` simulates the steps, and the slowest of several workers is drawn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
from events import Job, finish_of, heavy_tailed

from steptime.catalog.workloads.table import build_workload
from steptime.fitting.fit import fit_group
from steptime.fitting.observation import Deployment, GroupKey, LaunchPhases, Observation
from steptime.fitting.profile import SCHEMA, Machine, NetLink, Profile
from steptime.predict.predict import Prediction, predict
from steptime.predict.query import read_queries

MACHINE = Machine(cpu="made up", cores=2, gpus=0)
KEY = GroupKey(
    framework="pytorch",
    strategy="allreduce",
    workload="cifar_cnn",
    input_shape=(3, 32, 32),
    classes=10,
    dataset=None,
    loader="synthetic",
    loader_processes=0,
    device="cpu",
    precision="fp32",
    threads=1,
    options=(),
)
TRUTH: Mapping[str, float] = {
    "forward_fixed_s": 0.004,
    "forward_per_sample_s": 0.0004,
    "backward_fixed_s": 0.006,
    "backward_per_sample_s": 0.0009,
    "update_s": 0.002,
    "input_per_sample_s": 0.00005,
    "input_share": 0.5,
    "contention_factor": 1.08,
    "persistent": 0.02,
    "transient": 0.03,
    "timing": 1.0,
    "latency_factor": 1.0,
    "bandwidth_factor": 1.0,
    "overlap_efficiency": 0.95,
}
SIZES = ((1, 16), (1, 32), (1, 64), (2, 16), (2, 32), (3, 64))
"""Workers and batch."""


_BUCKETS = ((227_880.0, 0.234), (112_512.0, 1.0))
"""Of the small convolutional network in buckets of an eighth of a MiB: bytes, and when they are ready."""
_BUCKET_MB = 0.125
_LATENCIES = 2
"""That gloo's ring spends in each of its steps."""
_STEPS, _TRUE_STEPS = 24, 600


@dataclass(frozen=True)
class World:
    """What is true, and how well it is seen."""

    truth: Mapping[str, float] = field(default_factory=lambda: dict(TRUTH))
    alpha_s: float = 1e-4
    rate: float = 25e6
    noise: float = 0.05
    """Relative standard deviation of every launch, each phase of its own."""
    launches: int = 4
    breakdown: bool = True
    machine: Machine = MACHINE
    slowest_link: float = 1.0
    """Bandwidth of one link of the ring over that of the others."""
    jitter: float = 0.1
    """Of each transfer: the standard deviation of its logarithm, with a heavy tail."""

    def step(self, key: GroupKey, deployment: Deployment) -> tuple[float, dict[str, float]]:
        """Return the true step, the median of many, and its phases."""
        steps, phases = self._simulated(key, deployment, np.random.default_rng(0), _TRUE_STEPS)
        return float(np.median(steps)), phases

    def observe(self, key: GroupKey, deployment: Deployment, rng: np.random.Generator) -> Observation:
        """Return the observation of some launches, each of which runs some steps."""
        several = deployment.workers > 1
        steps, launch_phases = [], []
        for _ in range(self.launches):
            timed, phases = self._simulated(key, deployment, rng, _STEPS)
            steps.append(float(np.median(timed)) * self._noisy(rng))
            if self.breakdown:
                launch_phases.append(self._launch_phases(key, deployment, phases, rng))
        return Observation(
            trial=f"{key.framework}-{key.strategy}-{key.workload}-w{deployment.workers}-b{deployment.batch}",
            key=key,
            deployment=deployment,
            steps_s=tuple(steps),
            step_count=100 * self.launches,
            launch_phases=tuple(launch_phases),
            alpha_s=self.alpha_s if several else None,
            rate=self.rate if several else None,
        )

    def _simulated(
        self, key: GroupKey, deployment: Deployment, rng: np.random.Generator, count: int
    ) -> tuple[Sequence[float], dict[str, float]]:
        """Return the seconds of steps, and the mean phases of a worker."""
        truth, workers, batch = self.truth, deployment.workers, deployment.batch
        turns = self._turns(key, workers)
        factor = turns * (truth["contention_factor"] if workers > 1 else 1.0)
        forward, backward = (
            factor * (truth[f"{name}_fixed_s"] + truth[f"{name}_per_sample_s"] * batch)
            for name in ("forward", "backward")
        )
        update, reading = factor * truth["update_s"], turns * truth["input_per_sample_s"] * batch
        spread = float(np.hypot(truth["persistent"], truth["transient"])) if workers > 1 else 0.0
        slower = heavy_tailed(rng, self.jitter)
        ends = []
        for _ in range(count):
            speeds = 1.0 + spread * rng.standard_normal(workers)
            ends.append(finish_of(self._job(key, forward * speeds, backward * speeds), slower))
        rest = np.array(ends) + update
        waiting = np.maximum(truth["input_share"] * reading, reading - rest)
        none, even = np.zeros(workers), heavy_tailed(rng, 0.0)
        job = self._job(key, none, none)
        bare = sum(finish_of(replace(job, buckets=[bucket]), even) for bucket in job.buckets)
        return list(rest + waiting), {
            "forward": forward,
            "backward": backward,
            "update": update,
            "input_wait": float(waiting.mean()),
            "communication": bare,
        }

    def _job(self, key: GroupKey, forward: Sequence[float], backward: Sequence[float]) -> Job:
        rate = self.rate * self.truth["bandwidth_factor"]
        early = self.truth["overlap_efficiency"]
        buckets = _buckets_of(key)
        # Of what is ready early, a part is not sent before the backward pass is over: its thread gets no processor.
        late = sum((1.0 - early) * size for size, share in buckets if share < 1.0)
        sent = [(early * size, share) if share < 1.0 else (size + late, share) for size, share in buckets]
        return Job(
            forward_s=forward,
            backward_s=backward,
            buckets=sent,
            rates=[self.slowest_link * rate, *[rate] * (len(forward) - 1)],
            latency_s=_LATENCIES * self.alpha_s * self.truth["latency_factor"],
        )

    def _turns(self, key: GroupKey, workers: int) -> int:
        processors = self.machine.gpus if key.device == "cuda" else self.machine.cores
        return -(-workers // processors)

    def _noisy(self, rng: np.random.Generator) -> float:
        return float(np.exp(self.noise * rng.standard_normal()))

    def _launch_phases(
        self, key: GroupKey, deployment: Deployment, phases: Mapping[str, float], rng: np.random.Generator
    ) -> LaunchPhases:
        workers, several = deployment.workers, deployment.workers > 1
        largest = mean_largest(workers)
        lasting = self.truth["persistent"] * largest
        whole = float(np.hypot(self.truth["persistent"], self.truth["transient"])) * largest
        reading = self._turns(key, workers) * self.truth["input_per_sample_s"] * deployment.batch
        seen = {name: phases[name] * self._noisy(rng) for name in ("forward", "backward", "update", "input_wait")}
        shared = self._noisy(rng)
        return LaunchPhases(
            phases=seen,
            communication_s=phases["communication"] * self._noisy(rng) if several else None,
            input_s=reading * self._noisy(rng),
            persistent=lasting * shared if several else None,
            transient=(whole - lasting) * shared if several else None,
            pieces=_buckets_of(key) if several else (),
        )


@cache
def _buckets_of(key: GroupKey) -> tuple[tuple[float, float], ...]:
    if key.workload == KEY.workload:
        return _BUCKETS
    layers = build_workload(key.workload, key.input_shape, key.classes).layers
    return ((4.0 * sum(parameter.count for layer in layers for parameter in layer.parameters), 1.0),)


@cache
def mean_largest(workers: int) -> float:
    """Return the mean of the largest of some standard normal numbers, as drawn."""
    return (
        float(np.random.default_rng(1).standard_normal((200_000, workers)).max(axis=1).mean()) if workers > 1 else 0.0
    )


def a_deployment(workers: int, batch: int, **changes: object) -> Deployment:
    """Return a size on emulated hosts of one worker each."""
    base = Deployment(
        workers=workers, batch=batch, hosts=workers, workers_per_host=1, emulated=True, bucket_mb=_BUCKET_MB
    )
    return replace(base, **changes)


def observed(
    world: World, seed: int, sizes: Sequence[tuple[int, int]] = SIZES, key: GroupKey = KEY
) -> list[Observation]:
    """Return observations of all sizes; those of one worker are of the strategy ``single``."""
    rng = np.random.default_rng(seed)
    return [
        world.observe(key if workers > 1 else replace(key, strategy="single"), a_deployment(workers, batch), rng)
        for workers, batch in sizes
    ]


def a_profile(observations: Sequence[Observation], net: Sequence[NetLink] = (), machine: Machine = MACHINE) -> Profile:
    """Return the profile of observations, held-out errors left out."""
    keys = dict.fromkeys(each.key for each in observations)
    return Profile(
        format_version=SCHEMA,
        written_by="0",
        results="made up",
        machine=machine,
        steps=sum(each.step_count for each in observations),
        groups=[fit_group(key, observations, machine, net) for key in keys],
        net=list(net),
    )


def asked(profile: Profile, workers: int, *overrides: str) -> Prediction:
    """Return the one prediction that is asked for."""
    (found,) = predict(profile, [workers], read_queries(overrides, profile))
    return found
