"""TensorFlow 1 trains what the reference trains: alone, with its parameter servers, and from files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_files import SIDE, digits, photos
from launching import LaunchResult, check_job, launch_ok, relative_error, timing_job, weight_error

from steptime.catalog.workloads.layers import Network

pytestmark = pytest.mark.framework("tensorflow1")

SETTINGS = {"learning_rate": 0.05, "momentum": 0.8, "weight_decay": 0.01}


def losses(result: LaunchResult) -> list[float]:
    """The losses of a check by worker 0."""
    found: list[float] = result.record("check")["losses"]
    return found


def test_dropout_differs_from_step_to_step(tmp_path: Path) -> None:
    """On one and the same batch, with a learning rate that changes nothing; its rate is what is dropped, not kept."""
    net = Network((1000,))
    net.linear("fc", net.dropout("dropout", net.input, 0.1), 3)
    still = {"learning_rate": 1e-30, "momentum": 0.0}
    job = check_job("tensorflow1", "single", net.finish("dropped_here", classes=3), steps=2, optimizer=still)
    whole = losses(launch_ok(tmp_path, job, preloaded=True))[0]
    job["workload"]["layers"][0]["attributes"]["rate"] = 0.1
    job["loader"]["distinct_batches"] = 1
    first, second = losses(launch_ok(tmp_path, job, preloaded=True))
    assert first != second
    assert relative_error(first, whole) < 0.7


@pytest.mark.parametrize(("servers", "sharding"), [(1, "round_robin"), (2, "round_robin"), (3, "balanced")])
def test_two_workers_give_the_weights_of_the_oracle(tmp_path: Path, servers: int, sharding: str) -> None:
    """What the servers hold is what one process computes from both shards, whichever holds what."""
    how: dict[str, Any] = {"batch": 8, "steps": 6, "optimizer": {**SETTINGS, "learning_rate": 0.02}}
    oracle = check_job("reference", "single", "lenet5", options={"shards": 2}, **how)
    expected = launch_ok(tmp_path, oracle, preloaded=True).weights[0]
    job = check_job("tensorflow1", "ps_sync", "lenet5", workers=2, options={"sharding": sharding}, **how)
    result = launch_ok(tmp_path, job, workers=2, servers=servers, preloaded=True)
    assert max(weight_error(result.weights[rank], expected)[0] for rank in range(2)) < 1e-4
    held = result.record("session")["facts"]["bytes_per_server"]
    assert len(held) == servers
    assert sum(held) == 61_706 * 4
    if sharding == "balanced":
        assert held == [41_400, 192_088, 13_336]  # the largest array alone has 192_000


def test_xla_trains_the_same(tmp_path: Path) -> None:
    """Clusters of operations are other programs for the same computation."""
    plain, compiled = (
        launch_ok(tmp_path, check_job("tensorflow1", "single", "lenet5", options={"xla": xla})) for xla in (False, True)
    )
    assert weight_error(compiled.weights[0], plain.weights[0])[0] < 1e-4
    assert compiled.record("session")["facts"]["xla"] is True


def test_one_asynchronous_worker_trains_like_a_worker_alone(tmp_path: Path) -> None:
    """Nothing is stale then."""
    alone = losses(launch_ok(tmp_path, check_job("tensorflow1", "single", "lenet5", steps=4), preloaded=True))
    served = losses(
        launch_ok(tmp_path, check_job("tensorflow1", "ps_async", "lenet5", steps=4), servers=2, preloaded=True)
    )
    assert relative_error(served, alone) < 1e-5


def test_asynchronous_workers_count_how_late_they_are(tmp_path: Path) -> None:
    """Every update behind the pause is counted once, and servers end by themselves."""
    job = timing_job("tensorflow1", "ps_async", "lenet5", loader=digits(tmp_path), batch=5, workers=2, steps=30)
    result = launch_ok(tmp_path, job, workers=2, servers=1, preloaded=True)
    for rank in range(2):
        counted = result.record("steps", f"worker-{rank}")["staleness"]
        assert sum(counted.values()) == 31
        assert min(map(int, counted)) >= 0
    assert result.record("done", "worker-1")


def test_synchronous_workers_are_never_late(tmp_path: Path) -> None:
    """And say so by saying nothing."""
    job = timing_job("tensorflow1", "ps_sync", "lenet5", loader=digits(tmp_path), batch=5, workers=2, steps=30)
    result = launch_ok(tmp_path, job, workers=2, servers=1, preloaded=True)
    assert result.record("steps")["staleness"] is None


@pytest.mark.parametrize("processes", [0, 2])
def test_photographs_are_loaded(tmp_path: Path, processes: int) -> None:
    """For several epochs, with one thread and with two."""
    shape = {"input_shape": (3, SIDE, SIDE), "classes": 10}
    loader = photos(tmp_path, processes=processes)
    job = timing_job("tensorflow1", "single", "lenet5", loader=loader, batch=5, steps=8, **shape)
    result = launch_ok(tmp_path, job, preloaded=True)
    assert np.isfinite(result.record("steps")["loss"])
    assert result.record("session")["facts"]["loader_threads"] == processes


def test_the_version_says_what_it_is(tmp_path: Path) -> None:
    """A TensorFlow 2 that plays version 1 is not passed off as version 1."""
    version = launch_ok(tmp_path, check_job("tensorflow1", "single", "lenet5", steps=1), preloaded=True).record(
        "session"
    )["facts"]
    assert version["framework_version"].startswith("1.") or version["framework_version"].endswith("(compat.v1)")
