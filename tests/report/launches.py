"""Makes launches and results folders with simulated step times."""

import numpy as np

from steptime.results.records import Launch, WorkerSteps
from steptime.results.store import Store
from steptime.study.trial import Trial

STUDY = "version: 1\nname: tiny\nframeworks: [pytorch, mxnet]\n"


def launch(trial, number, times, *, status="ok"):
    """A launch of one worker with the given step times in seconds."""
    worker = WorkerSteps(
        rank=0,
        host="lab-7",
        warmup_ends_s=[0.5],
        origin_s=1.0,
        ends_s=(1.0 + np.cumsum(times)).tolist(),
        loss_first=2.3,
        loss_last=2.1,
        facts={"framework_version": "2.13.0"},
        usage={},
        opened_in_s=2.0,
    )
    return Launch(
        trial=trial,
        launch=number,
        block=number,
        status=status,
        reason=None if status == "ok" else "worker-0: killed",
        started_at=f"2026-01-01T00:00:{number:02d}+00:00",
        wall_s=5.0,
        commands=[["python", "start.py", "job.json"]],
        environment={"name": "pytorch", "kind": "venv", "python": "3.11.9", "packages": {"torch": "2.13.0"}},
        noise={"foreign_cpu_cores": 0.02},
        workers=[worker] if status == "ok" else [],
    )


def steady(seed, median, steps=60):
    """Step times around ``median`` seconds."""
    return np.random.default_rng(seed).lognormal(np.log(median), 0.02, steps)


def filled_store(path, dataset="digits", name="tiny"):
    """A results folder with two frameworks, three launches each."""
    store = Store.create(path, study_text=STUDY, study_json={"name": name, "question": "Which is faster?"})
    for index, framework in enumerate(("pytorch", "mxnet")):
        trial = Trial(
            framework=framework,
            strategy="single",
            workload="lenet5",
            input_shape=(1, 28, 28),
            classes=10,
            dataset=dataset,
            loader="native",
            device="cpu",
            precision="fp32",
            workers=1,
            batch_per_worker=64,
        )
        store.add_trial(trial)
        for number in range(3):
            store.append(launch(trial.id, number, steady(10 * index + number, 0.01 * (1 + index))))
    return store
