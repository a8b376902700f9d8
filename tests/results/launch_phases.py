"""ablation launches whose phases are known, because they were made up from them."""

from collections.abc import Mapping, Sequence

import numpy as np
from simulated import ENDED

from steptime.results.ablation_records import AblationLaunch, WorkerAblation

STAGES = {"forward": 0.010, "backward": 0.020, "local": 0.002, "exchange": 0.005, "step": 0.001}
"""Seconds that each ablation stage adds; the last is the loader's."""


def launch_of(  # noqa: PLR0913 - what a launch is made of
    seed: int,
    workers: int = 2,
    stages: Mapping[str, float] = STAGES,
    *,
    blocks: int = 12,
    steps: int = 5,
    noise: float = 0.01,
    slow: Mapping[int, float] | None = None,
    pauses: tuple[float, float] = (0.0, 0.0),
    drop: Sequence[str] = (),
    at_s: float = 0.0,
) -> AblationLaunch:
    """Make a launch up.

    Args:
        seed: of the noise.
        workers: how many.
        stages: what each stage adds to the one before.
        blocks: of every stage.
        steps: of every block.
        noise: of each duration, relative.
        slow: for some ranks, by which factor their computation takes longer.
        pauses: how likely a worker pauses in a step, and for how long.
        drop: stages that the framework does not have.
        at_s: when it ran, by which launches of one folder are told apart.
    """
    rng = np.random.default_rng(seed)
    factors = np.array([(slow or {}).get(rank, 1.0) for rank in range(workers)])
    times: dict[str, np.ndarray] = {}
    computed, waited = 0.0, 0.0
    for name, added in stages.items():
        shape = (workers, blocks, steps)
        if name in ("forward", "backward", "local"):
            computed += added
            base = np.broadcast_to((computed * factors)[:, None, None], shape).copy()
            base += np.where(rng.random(shape) < pauses[0], pauses[1], 0.0)
            times[name] = base
            continue
        waited += added
        base = np.broadcast_to((computed * factors)[:, None, None], shape).copy()
        base += np.where(rng.random(shape) < pauses[0], pauses[1], 0.0)
        times[name] = np.broadcast_to(base.max(axis=0), shape) + waited
    times = {name: values * (1.0 + noise * rng.standard_normal(values.shape)) for name, values in times.items()}
    return AblationLaunch(
        trial="made-up",
        launch=seed,
        **ENDED,
        workers=[
            WorkerAblation(
                rank=rank,
                host="vm",
                stages={name: values[rank].tolist() for name, values in times.items() if name not in drop},
                order=[list(times)] * blocks,
                clocks=[{"at_s": at_s, "offset_s": 0.0, "rtt_s": 0.0}] * 2,
                marks=[],
                marked=[],
                transfers=[],
                facts={},
            )
            for rank in range(workers)
        ],
    )
