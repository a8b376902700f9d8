"""Launch two workers that break their steps down, and look at their marked steps one by one."""

from pathlib import Path
from typing import Any

import numpy as np
from launching import launch_ok, library_workload, trial_of

from steptime.execution.jobs import AblationSchedule, ablation_job

SCHEDULE = AblationSchedule(warmup_steps=3, seconds=0.5, min_blocks=2, max_blocks=2, max_steps=20)


def breakdown(folder: Path, framework: str, strategy: str, **fields: Any) -> list[dict[str, Any]]:
    """The ablation records of two workers that train LeNet-5."""
    workload = library_workload("lenet5")
    trial = trial_of(framework, strategy, workload, batch=32, workers=2, **fields)
    job = ablation_job(trial, workload, {"kind": "synthetic", "distinct_batches": 2}, SCHEDULE)
    result = launch_ok(folder, job, workers=2, preloaded=True)
    return [result.record("ablation", f"worker-{rank}") for rank in range(2)]


def by_step(seen: dict[str, Any]) -> list[tuple[dict[str, float], list[list[Any]]]]:
    """For every marked step the ends of its phases and its pieces."""
    steps = []
    for ends in seen["marked"]:
        pieces = [piece for piece in seen["transfers"] if ends[0] <= piece[2] <= ends[-1]]
        steps.append((dict(zip(seen["marks"], ends[1:], strict=True)), pieces))
    return steps


def marked_blocks(seen: dict[str, Any]) -> list[dict[str, float]]:
    """For every block how long the marked phases of its steps lasted on average."""
    lengths = [len(block) for block in seen["stages"]["marked"]]
    passed = np.split(np.diff(np.array(seen["marked"]), axis=-1), np.cumsum(lengths)[:-1])
    return [dict(zip(seen["marks"], block.mean(axis=0), strict=True)) for block in passed]
