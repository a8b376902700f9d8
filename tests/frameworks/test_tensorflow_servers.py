"""TensorFlow's ParameterServerStrategy: a coordinator sends each worker its steps, and servers hold the weights."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_files import PHOTO, photos
from launching import check_job, launch, launch_ok, relative_error, timing_job

from steptime.catalog.workloads.layers import Network, Workload
from steptime.worker.weights import initial_weights

pytestmark = pytest.mark.framework("tensorflow")


def odd_and_normalised() -> Workload:
    """An odd number of variables, so that taking turns does not put velocities beside their weights by itself."""
    net = Network((2, 6, 5))
    x = net.batch_norm("norm", net.conv2d("conv", net.input, 3, 3, padding=1, bias=False))
    net.linear("fc", net.flatten("flatten", net.relu("relu", x)), 4)
    return net.finish("odd_and_normalised", classes=4)


def test_one_worker_with_two_servers_trains_what_the_reference_trains(tmp_path: Path) -> None:
    """Nothing is stale then, so that every loss has one right value."""
    settings = {"learning_rate": 0.05, "momentum": 0.8, "weight_decay": 0.01}
    how: dict[str, Any] = {"batch": 6, "steps": 4, "optimizer": settings}
    expected = launch_ok(
        tmp_path, check_job("reference", "single", odd_and_normalised(), **how), preloaded=True
    ).record("check")
    job = check_job("tensorflow", "ps_async", odd_and_normalised(), **how)
    found = launch_ok(tmp_path, job, servers=2, preloaded=True).record("check")
    assert relative_error(found["losses"], expected["losses"]) < 1e-4
    assert (found["parameters"], found["output_shape"]) == (expected["parameters"], expected["output_shape"])


def test_two_pinned_workers_count_their_stale_updates_over_photographs(tmp_path: Path) -> None:
    """A worker on one core hung before it was given a second thread; every timed update is counted once."""
    job = timing_job(
        "tensorflow",
        "ps_async",
        "lenet5",
        loader=photos(tmp_path, processes=0),
        workers=2,
        batch=2,
        steps=8,
        **PHOTO,
    )
    cores = tuple(sorted(os.sched_getaffinity(0)))
    result = launch_ok(tmp_path, job, workers=2, servers=1, cores=cores, preloaded=True)
    for rank in range(2):
        record = result.record("steps", f"worker-{rank}")
        assert len(record["ends_s"]) == 8
        assert np.isfinite(record["loss"])
        # One more: the step behind the pause is not timed, but counted.
        assert sum(record["staleness"].values()) == 9
        assert min(map(int, record["staleness"])) >= 0


def test_every_worker_has_its_own_batches_whichever_runs_a_step(tmp_path: Path) -> None:
    """With a tiny rate and no momentum the weights behind all steps are those after one step on every batch at once."""
    still = {"learning_rate": 1e-4, "momentum": 0.0}
    how: dict[str, Any] = {"batch": 4, "optimizer": still}
    first = initial_weights(odd_and_normalised().to_json()["layers"], 0)
    job = check_job("tensorflow", "ps_async", odd_and_normalised(), workers=2, steps=3, **how)
    job["schedule"]["turns"] = 1  # a fourth step, of one worker after the other, so that the last sees all
    oracle = check_job("reference", "single", odd_and_normalised(), steps=4, options={"shards": 2, "bits": 64}, **how)
    oracle["loader"] = job["loader"]
    mean = launch_ok(tmp_path, oracle, preloaded=True).weights[0]
    found = launch_ok(tmp_path, job, workers=2, servers=1, preloaded=True).weights
    for name, weights in found[1].items():
        moved, expected = weights - first[name], 2 * (mean[name] - first[name])  # the reference divides by two workers
        assert np.abs(moved - expected).max() < 0.02 * np.abs(expected).max() + 1e-7


def test_a_broken_photograph_ends_all_and_is_named(tmp_path: Path) -> None:
    """The worker whose batch it was says so; coordinator, server and the other worker end with it."""
    loader, broken = photos(tmp_path, processes=0), tmp_path / "3.jpg"
    broken.write_bytes(broken.read_bytes()[: broken.stat().st_size // 2])
    job = timing_job(
        "tensorflow",
        "ps_async",
        "lenet5",
        loader=loader,
        workers=2,
        batch=2,
        steps=50,
        **PHOTO,
    )
    result = launch(tmp_path, job, workers=2, servers=1, time_limit_s=100, preloaded=True)
    assert not result.outcome.ok
    assert str(broken) in result.explanation()
    assert "time limit" not in (result.outcome.reason or "")
