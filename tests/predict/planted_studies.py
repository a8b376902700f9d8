"""Results folders whose answers are known, because their records were made up from them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from launch_phases import STAGES, launch_of
from simulated import a_launch, a_store, a_trial, a_worker

from steptime.catalog.cluster import Cluster, Host
from steptime.results.store import Store
from steptime.study.trial import Trial

COMPUTING = STAGES["forward"] + STAGES["backward"] + STAGES["local"]


def a_step(slowest: float = 1.0) -> float:
    """Return the seconds of a step whose slowest worker computes so many times as long as an even one."""
    return COMPUTING * slowest + STAGES["exchange"] + STAGES["step"]


def two_hosts(*shares: float) -> Cluster:
    """Return hosts of one worker each, with these shares of their cores."""
    return Cluster(hosts=tuple(Host(cpu_share=share) for share in shares), worker_hosts=len(shares))


def add(store: Store, step_s: float, slow: dict[int, float] | None = None, **changes: Any) -> Trial:
    """Add a trial with two launches of steps of ``step_s`` and an ablation launch whose phases are ``STAGES``."""
    trial = a_trial(**changes)
    store.add_trial(trial)
    for number in range(2):
        rng = np.random.default_rng([number, trial.workers])
        ends = np.cumsum(step_s * np.exp(rng.normal(0.0, 0.002, 60))).tolist()
        store.append(a_launch(trial, number, workers=[a_worker(ends, rank) for rank in range(trial.workers)]))
    stages = STAGES if trial.workers > 1 else {name: each for name, each in STAGES.items() if name != "exchange"}
    made = launch_of(1, trial.workers, stages, noise=0.001, slow=slow, at_s=100.0 * len(store.trials()))
    store.append(replace(made, trial=trial.id))
    return trial


def uneven(folder: Path) -> Store:
    """Return a study of even hosts, and of hosts of which the second has half of its core."""
    store = a_store(folder, performance_models=["load_imbalance"])
    both = {"strategy": "allreduce", "workers": 2, "launcher": "emulated", "hosts": 2}
    add(store, a_step(), **both, cluster=two_hosts(1.0, 1.0))
    add(store, a_step(2.0), {1: 2.0}, **both, cluster=two_hosts(1.0, 0.5))
    return store


def unhidden(folder: Path) -> Store:
    """Return a study of one worker and of two, whose exchanges hide behind nothing."""
    store = a_store(folder, performance_models=["s_sgd"])
    add(store, COMPUTING + STAGES["step"])
    add(store, a_step(), strategy="allreduce", workers=2)
    return store
