"""TensorFlow 1 trains what the reference trains: alone, with its parameter servers, and from files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launching import LaunchResult, check_job, launch, launch_ok, relative_error, timing_job
from PIL import Image

from steptime.runner.equivalence.tolerances import update_error, weight_error
from steptime.worker.samples import epoch_indices
from steptime.worker.weights import initial_weights
from steptime.workloads.kinds import KINDS
from steptime.workloads.layers import Network, Workload

pytestmark = pytest.mark.framework("tensorflow1")

SMALL_RESNET = {"input_shape": (3, 64, 64), "classes": 10, "batch": 4}
SAMPLES = 12
SIDE = 32
SETTINGS = {"learning_rate": 0.05, "momentum": 0.8, "weight_decay": 0.01}


def each_kind() -> Workload:
    """Every kind of layer, with sizes for which channels last and TensorFlow's names for padding are no help."""
    net = Network((4, 15, 10))
    x = net.conv2d("uneven", net.input, 6, (3, 5), stride=2, padding=(1, 2), groups=2)
    x = net.relu("relu", net.batch_norm("norm", x, epsilon=1e-5, momentum=0.2))
    x = net.lrn("lrn", x, size=3, alpha=0.6, beta=0.7, k=1.5)
    x = net.max_pool("past_the_edge", x, 3, stride=2, padding=1, ceil_mode=True)
    below_zero = net.tanh("tanh", net.conv2d("same", x, 6, 3, padding=1, bias=False))
    x = net.concat("concat", [net.max_pool("padded", below_zero, 3, stride=1, padding=1), x])
    x = net.avg_pool("average", x, 3, stride=1, padding=1)
    tall = net.dropout("dropout", net.sigmoid("sigmoid", net.flatten("flatten", x)), 0.4)
    wide = net.flatten("squeeze", net.global_avg_pool("global", x))
    both = net.add("sum", [net.linear("of_all", tall, 7), net.linear("of_means", wide, 7, bias=False)])
    net.linear("output", net.concat("flat_concat", [both, tall]), 5)
    return net.finish("each_kind", classes=5)


def autoencoder() -> Workload:
    """Images in, images of the same shape out."""
    net = Network((2, 6, 5))
    net.conv2d("widen", net.tanh("tanh", net.conv2d("narrow", net.input, 3, 3, padding=1)), 2, 3, padding=1)
    return net.finish("autoencoder", classes=10, loss="mean_squared_error")


def digits(folder: Path) -> dict[str, Any]:
    """A native loader over random images that lie in memory."""
    images = np.random.default_rng(0).integers(0, 256, (SAMPLES, 1, 28, 28), dtype=np.uint8)
    np.savez(folder / "digits.npz", images=images, labels=np.arange(SAMPLES) % 10)
    transform = {"mean": [0.5], "std": [0.25]}
    dataset = {"form": "arrays", "path": str(folder / "digits.npz"), "samples": SAMPLES, "transform": transform}
    return {"kind": "native", "processes": 0, "dataset": dataset}


def photos(folder: Path, *, processes: int = 0, broken: int | None = None) -> dict[str, Any]:
    """A native loader over JPEG files that must be shrunk, one of which may be cut short."""
    stream = np.random.default_rng(0)
    for index in range(SAMPLES):
        pixels = stream.integers(0, 256, (SIDE + 9, SIDE + 20, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.jpg")
    if broken is not None:
        whole = (folder / f"{broken}.jpg").read_bytes()
        (folder / f"{broken}.jpg").write_bytes(whole[: len(whole) // 2])
    files = [[f"{index}.jpg", index % 10] for index in range(SAMPLES)]
    (folder / "index.json").write_text(json.dumps({"files": files, "classes": list("abcdefghij")}))
    dataset = {
        "form": "image_folder",
        "root": str(folder),
        "index": str(folder / "index.json"),
        "samples": SAMPLES,
        "transform": {"size": [SIDE, SIDE], "resize": SIDE + 2, "flip": True, "mean": [0.5] * 3, "std": [0.25] * 3},
    }
    return {"kind": "native", "processes": processes, "dataset": dataset}


def losses(result: LaunchResult) -> list[float]:
    """The losses of a check by worker 0."""
    found: list[float] = result.record("check")["losses"]
    return found


@pytest.mark.parametrize("workload", [each_kind(), autoencoder()], ids=lambda workload: workload.name)
def test_layers_train_as_in_the_reference(tmp_path: Path, workload: Workload) -> None:
    """With momentum and weight decay, the weights agree to 1e-4 after three steps."""
    how: dict[str, Any] = {"batch": 6, "steps": 3, "optimizer": SETTINGS}
    expected = launch_ok(tmp_path, check_job("reference", "single", workload, **how))
    found = launch_ok(tmp_path, check_job("tensorflow1", "single", workload, **how))
    assert weight_error(found.weights[0], expected.weights[0])[0] < 1e-4
    assert found.record("check")["output_shape"] == expected.record("check")["output_shape"]


def test_the_workload_of_each_kind_has_each_kind() -> None:
    """So that a new kind is not forgotten here."""
    assert {layer.kind for layer in each_kind().layers} == set(KINDS)


def test_dropout_differs_from_step_to_step(tmp_path: Path) -> None:
    """On one and the same batch, with a learning rate that changes nothing; its rate is what is dropped, not kept."""
    net = Network((1000,))
    net.linear("fc", net.dropout("dropout", net.input, 0.1), 3)
    still = {"learning_rate": 1e-30, "momentum": 0.0}
    job = check_job("tensorflow1", "single", net.finish("dropped_here", classes=3), steps=2, optimizer=still)
    whole = losses(launch_ok(tmp_path, job))[0]
    job["workload"]["layers"][0]["attributes"]["rate"] = 0.1
    job["loader"]["distinct_batches"] = 1
    first, second = losses(launch_ok(tmp_path, job))
    assert first != second
    assert relative_error(first, whole) < 0.7


@pytest.mark.parametrize(("servers", "sharding"), [(1, "round_robin"), (2, "round_robin"), (3, "balanced")])
def test_two_workers_give_the_weights_of_the_oracle(tmp_path: Path, servers: int, sharding: str) -> None:
    """What the servers hold is what one process computes from both shards, whichever holds what."""
    how: dict[str, Any] = {"batch": 8, "steps": 6, "optimizer": {**SETTINGS, "learning_rate": 0.02}}
    oracle = check_job("reference", "single", "lenet5", options={"shards": 2}, **how)
    expected = launch_ok(tmp_path, oracle).weights[0]
    job = check_job("tensorflow1", "ps_sync", "lenet5", workers=2, options={"sharding": sharding}, **how)
    result = launch_ok(tmp_path, job, workers=2, servers=servers)
    assert max(weight_error(result.weights[rank], expected)[0] for rank in range(2)) < 1e-4
    held = result.record("session")["facts"]["bytes_per_server"]
    assert len(held) == servers
    assert sum(held) == 61_706 * 4
    if sharding == "balanced":
        assert held == [41_400, 192_088, 13_336]  # the largest array alone has 192_000


def test_two_workers_of_resnet50_give_the_update_of_the_oracle(tmp_path: Path) -> None:
    """After one step, of whose update a worker's missing gradient would be a half and rounding is little."""
    oracle = check_job("reference", "single", "resnet50", steps=1, options={"shards": 2}, **SMALL_RESNET)
    expected = launch_ok(tmp_path, oracle).weights[0]
    job = check_job("tensorflow1", "ps_sync", "resnet50", workers=2, steps=1, **SMALL_RESNET)
    result = launch_ok(tmp_path, job, workers=2, servers=2, time_limit_s=300)
    first = initial_weights(job["workload"]["layers"], 0)
    assert max(update_error(result.weights[rank], expected, first)[0] for rank in range(2)) < 0.02


def test_one_asynchronous_worker_trains_like_a_worker_alone(tmp_path: Path) -> None:
    """Nothing is stale then."""
    alone = losses(launch_ok(tmp_path, check_job("tensorflow1", "single", "lenet5", steps=4)))
    served = losses(launch_ok(tmp_path, check_job("tensorflow1", "ps_async", "lenet5", steps=4), servers=2))
    assert relative_error(served, alone) < 1e-5


def test_asynchronous_workers_count_how_late_they_are(tmp_path: Path) -> None:
    """Every update behind the pause is counted once, and servers end by themselves."""
    job = timing_job("tensorflow1", "ps_async", "lenet5", loader=digits(tmp_path), batch=5, workers=2, steps=30)
    result = launch_ok(tmp_path, job, workers=2, servers=1)
    for rank in range(2):
        counted = result.record("steps", f"worker-{rank}")["staleness"]
        assert sum(counted.values()) == 31
        assert min(map(int, counted)) >= 0
    assert result.record("done", "worker-1")


def test_synchronous_workers_are_never_late(tmp_path: Path) -> None:
    """And say so by saying nothing."""
    job = timing_job("tensorflow1", "ps_sync", "lenet5", loader=digits(tmp_path), batch=5, workers=2, steps=30)
    result = launch_ok(tmp_path, job, workers=2, servers=1)
    assert result.record("steps")["staleness"] is None


@pytest.mark.parametrize("processes", [0, 2])
def test_photographs_are_loaded(tmp_path: Path, processes: int) -> None:
    """For several epochs, with one thread and with two."""
    shape = {"input_shape": (3, SIDE, SIDE), "classes": 10}
    loader = photos(tmp_path, processes=processes)
    job = timing_job("tensorflow1", "single", "lenet5", loader=loader, batch=5, steps=8, **shape)
    result = launch_ok(tmp_path, job)
    assert np.isfinite(result.record("steps")["loss"])
    assert result.record("session")["facts"]["loader_threads"] == max(1, processes)


def test_a_broken_photograph_ends_all_and_is_named(tmp_path: Path) -> None:
    """Worker 1 meets it in its second batch; worker 0 and the server, which wait for its gradients, end too."""
    broken = int(epoch_indices(SAMPLES, 0, 0, 1, 2)[3])
    shape = {"input_shape": (3, SIDE, SIDE), "classes": 10}
    loader = photos(tmp_path, broken=broken)
    job = timing_job("tensorflow1", "ps_sync", "lenet5", loader=loader, workers=2, batch=2, steps=8, **shape)
    result = launch(tmp_path, job, workers=2, servers=1, time_limit_s=100)
    assert not result.outcome.ok
    assert str(tmp_path / f"{broken}.jpg") in result.record("error", "worker-1")["message"]
    assert "time limit" not in (result.outcome.reason or "")


def test_the_version_says_what_it_is(tmp_path: Path) -> None:
    """A TensorFlow 2 that plays version 1 is not passed off as version 1."""
    version = launch_ok(tmp_path, check_job("tensorflow1", "single", "lenet5", steps=1)).record("session")["facts"]
    assert version["framework_version"].startswith("1.") or version["framework_version"].endswith("(compat.v1)")
