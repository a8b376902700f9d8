"""Observations of a group whose parameters are known, because they were made up from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from steptime.model.imbalance import expected_maximum
from steptime.predict.fit import fit_group
from steptime.predict.links import LATENCIES
from steptime.predict.observation import Deployment, GroupKey, LaunchPhases, Observation
from steptime.predict.predict import Prediction, predict
from steptime.predict.profile import SCHEMA, LinkEstimate, Machine, NetLink, Profile
from steptime.predict.query import read_queries
from steptime.predict.step_model import phases_of, step_of
from steptime.predict.topology import contention_of, step_model_of

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

    def step(self, key: GroupKey, deployment: Deployment) -> tuple[float, dict[str, float]]:
        """Return the true step and its phases."""
        parameters = {name: np.array([value]) for name, value in self.truth.items()}
        link = LinkEstimate(
            latency_s=LATENCIES * self.alpha_s,
            rate=self.rate,
            source="cluster",
            between_hosts=True,
            alpha_s=self.alpha_s,
        )
        step_model = step_model_of(
            key, deployment, link if deployment.workers > 1 else None, contention_of(deployment, key, self.machine)
        )
        phases = phases_of(parameters, step_model)
        return float(step_of(phases)[0]), {name: float(values[0]) for name, values in phases.items()}

    def observe(self, key: GroupKey, deployment: Deployment, rng: np.random.Generator) -> Observation:
        """Return a noisy observation."""
        step, phases = self.step(key, deployment)
        return Observation(
            trial=f"{key.framework}-{key.strategy}-{key.workload}-w{deployment.workers}-b{deployment.batch}",
            key=key,
            deployment=deployment,
            steps_s=tuple(step * self._noisy(rng) for _ in range(self.launches)),
            step_count=100 * self.launches,
            launch_phases=tuple(
                self._launch_phases(deployment, phases, rng) for _ in range(self.launches if self.breakdown else 0)
            ),
            alpha_s=self.alpha_s if deployment.workers > 1 else None,
            rate=self.rate if deployment.workers > 1 else None,
        )

    def _noisy(self, rng: np.random.Generator) -> float:
        return float(np.exp(self.noise * rng.standard_normal()))

    def _launch_phases(
        self, deployment: Deployment, phases: Mapping[str, float], rng: np.random.Generator
    ) -> LaunchPhases:
        largest = expected_maximum(deployment.workers)
        lasting = self.truth["persistent"] * largest
        whole = float(np.hypot(self.truth["persistent"], self.truth["transient"])) * largest
        turns = -(-deployment.workers // self.machine.cores)
        reading = turns * self.truth["input_per_sample_s"] * deployment.batch
        seen = {
            name: phases[name] * self._noisy(rng)
            for name in ("forward", "backward", "update", "comm_exposed", "sync_wait", "input_wait")
        }
        several = deployment.workers > 1
        shared = self._noisy(rng)
        return LaunchPhases(
            phases=seen,
            communication_s=(phases["comm_exposed"] + phases["comm_hidden"]) * self._noisy(rng) if several else None,
            input_s=reading * self._noisy(rng),
            persistent=lasting * shared if several else None,
            transient=(whole - lasting) * shared if several else None,
        )


def a_deployment(workers: int, batch: int, **changes: object) -> Deployment:
    """Return a size on emulated hosts of one worker each."""
    base = Deployment(workers=workers, batch=batch, hosts=workers, workers_per_host=1, emulated=True)
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
