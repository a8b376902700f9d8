"""Time and memory of ``steptime fit`` on a study of a million steps.

Makes a results folder (30 trials of up to four workers, 90 launches), fits it in a process of its own, and prints how
long that took and how much memory it had at most. Run it on a machine that does nothing else::

    python benchmarks/profiles/fit_million.py [STEPS]
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from steptime.catalog.workloads.table import LIBRARY
from steptime.results.jsonlines import append_line
from steptime.results.records import Launch, WorkerSteps
from steptime.results.store import Store
from steptime.study.trial import Trial

STEPS = 1_000_000
BATCHES = (16, 32, 64, 128, 256)
WORKLOADS = ("lenet5", "cifar_cnn")
WORKERS = (1, 2, 4)
LAUNCHES = 3


def main() -> None:
    """Make, fit, print."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else STEPS
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "results"
        trials = fill(folder, steps)
        size = sum(path.stat().st_size for path in folder.rglob("*.jsonl"))
        profile = Path(scratch) / "profile.json"
        began = time.perf_counter()
        command = [sys.executable, "-m", "steptime", "fit", str(folder), "-o", str(profile), "--json"]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        seconds = time.perf_counter() - began
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        found = json.loads(printed)
    print(f"{trials} trials, {trials * LAUNCHES} launches, {steps:,} steps, {size / 1e6:.0f} MB of records")
    print(f"{len(found['groups'])} models fitted, {found['steps']:,} steady steps")
    busy, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
    print(f"{seconds:.2f} s, {peak:.0f} MiB at most (wanted: under 10 s and 1,000 MiB)")
    print(f"{busy:.2f} s of a processor: what it takes on a machine that does nothing else")
    assert found["steps"] > steps // 2


def fill(folder: Path, steps: int) -> int:
    """Write a results folder whose launches have so many steps together; return how many trials it has."""
    rng = np.random.default_rng(0)
    store = Store.create(folder, study_text="name: million\n", study_json={"name": "million", "question": ""})
    store.set_machine({"cpu": "made up", "cores": 4, "gpus": []})
    trials = [a_trial(workload, batch, workers) for workload in WORKLOADS for batch in BATCHES for workers in WORKERS]
    each = steps // (len(trials) * LAUNCHES)
    for trial in trials:
        store.add_trial(trial)
        for number in range(LAUNCHES):
            # Straight to the file: a million steps need no million waits for the disk.
            append_line(folder / "trials" / trial.id / "records.jsonl", a_launch(trial, number, each, rng).to_json())
    return len(trials)


def a_trial(workload: str, batch: int, workers: int) -> Trial:
    """Return one configuration."""
    entry = LIBRARY[workload]
    return Trial(
        framework="pytorch",
        strategy="single" if workers == 1 else "allreduce",
        workload=workload,
        input_shape=entry.input_shape,
        classes=entry.classes,
        dataset=None,
        loader="synthetic",
        device="cpu",
        precision="fp32",
        workers=workers,
        batch_per_worker=batch,
    )


def a_launch(trial: Trial, number: int, steps: int, rng: np.random.Generator) -> Launch:
    """Return a launch whose steps grow with the batch and the workers, with noise of 2 %."""
    usual = (0.001 + 0.0002 * trial.batch_per_worker + 0.002 * (trial.workers - 1)) * np.exp(
        0.01 * rng.standard_normal()
    )
    ends = np.cumsum(usual * np.exp(0.02 * rng.standard_normal(steps)))
    return Launch(
        trial=trial.id,
        launch=number,
        block=number,
        status="ok",
        reason=None,
        started_at="2026-01-01T00:00:00.000Z",
        wall_s=float(ends[-1]),
        commands=[],
        environment={},
        noise={},
        workers=[
            WorkerSteps(
                rank=rank,
                host="vm",
                warmup_ends_s=[],
                origin_s=0.0,
                ends_s=np.round(ends - 1e-5 * rng.random(steps), 9).tolist(),
                loss_first=2.0,
                loss_last=1.0,
                facts={},
                usage={},
                opened_in_s=0.5,
            )
            for rank in range(trial.workers)
        ],
    )


if __name__ == "__main__":
    main()
