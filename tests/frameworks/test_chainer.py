"""Chainer trains what the reference trains: alone, over MPI, and from files."""

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
from steptime.workloads.table import LIBRARY, build_workload

pytestmark = pytest.mark.framework("chainer")

SMALL_RESNET = {"input_shape": (3, 64, 64), "classes": 10, "batch": 4}
SAMPLES = 12
SIDE = 32


def every_kind() -> Workload:
    """A workload that holds every kind of layer, with the attributes in which libraries differ."""
    net = Network((4, 13, 11))
    x = net.conv2d("grouped", net.input, 6, (3, 2), stride=(2, 1), padding=(1, 1), groups=2)
    x = net.tanh("tanh", net.batch_norm("norm", x, epsilon=1e-3, momentum=0.3))
    x = net.lrn("lrn", x, size=5, alpha=0.8, beta=0.75, k=2.0)
    x = net.max_pool("ceil", x, 2, stride=2, padding=1, ceil_mode=True)
    pooled = net.max_pool("floor", x, 3, stride=1, padding=1)
    averaged = net.avg_pool("average", x, 3, stride=1, padding=1)
    x = net.concat("concat", [net.add("add", [pooled, averaged, x]), averaged])
    x = net.relu("relu", net.conv2d("pointwise", x, 8, 1, bias=False))
    x = net.dropout("dropout", net.flatten("flatten", net.global_avg_pool("global", x)), 0.5)
    net.linear("output", net.sigmoid("sigmoid", net.linear("hidden", x, 7)), 5, bias=False)
    return net.finish("every_kind", classes=5)


def squared_error() -> Workload:
    """An autoencoder, whose output has another shape than the images that it is compared with."""
    net = Network((1, 6, 5))
    x = net.sigmoid("sigmoid", net.linear("encoder", net.flatten("flatten", net.input), 8))
    net.linear("decoder", x, 30)
    return net.finish("squared_error", classes=10, loss="mean_squared_error")


def digits(folder: Path) -> dict[str, Any]:
    """A native loader over random images that lie in memory."""
    stream = np.random.default_rng(0)
    images = stream.integers(0, 256, (SAMPLES, 1, 28, 28), dtype=np.uint8)
    np.savez(folder / "digits.npz", images=images, labels=np.arange(SAMPLES) % 10)
    transform = {"mean": [0.5], "std": [0.25]}
    dataset = {"form": "arrays", "path": str(folder / "digits.npz"), "samples": SAMPLES, "transform": transform}
    return {"kind": "native", "processes": 0, "dataset": dataset}


def photos(folder: Path, *, processes: int, broken: int | None = None) -> dict[str, Any]:
    """A native loader over random JPEG files, one of which may be no JPEG at all."""
    stream = np.random.default_rng(0)
    for index in range(SAMPLES):
        pixels = stream.integers(0, 256, (SIDE + 9, SIDE + 20, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.jpg")
    if broken is not None:
        (folder / f"{broken}.jpg").write_bytes(b"no photograph")
    files = [[f"{index}.jpg", index % 10] for index in range(SAMPLES)]
    (folder / "index.json").write_text(json.dumps({"files": files, "classes": list("abcdefghij")}))
    dataset = {
        "form": "image_folder",
        "root": str(folder),
        "index": str(folder / "index.json"),
        "samples": SAMPLES,
        "transform": {"size": [SIDE, SIDE], "resize": SIDE + 4, "flip": True, "mean": [0.5] * 3, "std": [0.25] * 3},
    }
    return {"kind": "native", "processes": processes, "dataset": dataset}


def losses(result: LaunchResult) -> list[float]:
    """The losses of a check by worker 0."""
    found: list[float] = result.record("check")["losses"]
    return found


@pytest.mark.parametrize(("workload", "shape"), [(build_workload("lenet5"), {"batch": 8}), ("resnet50", SMALL_RESNET)])
def test_losses_are_those_of_the_reference(tmp_path: Path, workload: Any, shape: dict[str, Any]) -> None:
    """The first loss to 1e-4, the loss after five steps to 1e-2."""
    expected = losses(launch_ok(tmp_path, check_job("reference", "single", workload, **dict(shape))))
    found = losses(launch_ok(tmp_path, check_job("chainer", "single", workload, **dict(shape))))
    assert relative_error(found[0], expected[0]) < 1e-4
    assert relative_error(found[-1], expected[-1]) < 1e-2


@pytest.mark.parametrize(
    ("workload", "shape"), [("lenet5", {}), ("resnet50", {"input_shape": (3, 64, 64), "classes": 1000})]
)
def test_parameters_are_as_many_as_published(tmp_path: Path, workload: str, shape: dict[str, Any]) -> None:
    """Counted in Chainer's own parameters."""
    job = check_job("chainer", "single", workload, batch=2, steps=1, **shape)
    found = launch_ok(tmp_path, job).record("check")["parameters"]
    assert found == LIBRARY[workload].published_parameters


@pytest.mark.parametrize("workload", [every_kind(), squared_error()], ids=["every kind", "squared error"])
def test_every_kind_of_layer_trains_as_in_the_reference(tmp_path: Path, workload: Workload) -> None:
    """With momentum and weight decay, the weights agree to 1e-4 after three steps."""
    settings = {"learning_rate": 0.05, "momentum": 0.8, "weight_decay": 0.01}
    how: dict[str, Any] = {"batch": 6, "steps": 3, "optimizer": settings}
    expected = launch_ok(tmp_path, check_job("reference", "single", workload, **dict(how))).weights[0]
    found = launch_ok(tmp_path, check_job("chainer", "single", workload, **dict(how))).weights[0]
    assert weight_error(found, expected)[0] < 1e-4


def test_the_workload_of_every_kind_has_every_kind() -> None:
    """So that a new kind is not forgotten here."""
    assert {layer.kind for layer in every_kind().layers} == set(KINDS)


def test_output_shape_is_the_workloads(tmp_path: Path) -> None:
    """With the batch in front."""
    result = launch_ok(tmp_path, check_job("chainer", "single", "lenet5", batch=3, steps=1))
    assert result.record("check")["output_shape"] == [3, 10]


@pytest.mark.parametrize("repeat", range(3))
def test_two_workers_give_the_weights_of_the_oracle(tmp_path: Path, repeat: int) -> None:
    """Each worker holds what one process computes from both shards; the first step counts like any other."""
    how: dict[str, Any] = {"batch": 8, "steps": 5, "seed": repeat}
    oracle = check_job("reference", "single", "lenet5", options={"shards": 2}, **dict(how))
    expected = launch_ok(tmp_path, oracle).weights[0]
    job = check_job("chainer", "allreduce", "lenet5", workers=2, **dict(how))
    result = launch_ok(tmp_path, job, workers=2)
    assert max(weight_error(result.weights[rank], expected)[0] for rank in range(2)) < 1e-4


def test_two_workers_of_resnet50_give_the_weights_of_the_oracle(tmp_path: Path) -> None:
    """After one step, of whose update a worker's missing gradient would be a half and rounding is little.

    Rounding moves values across the kink of a ReLU, which ones depends on the processor, and batch norm spreads that:
    an offset that starts at zero may be 1 % off.
    """
    oracle = check_job("reference", "single", "resnet50", steps=1, options={"shards": 2}, **SMALL_RESNET)
    expected = launch_ok(tmp_path, oracle).weights[0]
    job = check_job("chainer", "allreduce", "resnet50", workers=2, steps=1, **SMALL_RESNET)
    result = launch_ok(tmp_path, job, workers=2)
    first = initial_weights(job["workload"]["layers"], 0)
    assert max(update_error(result.weights[rank], expected, first)[0] for rank in range(2)) < 0.02


def test_allreduce_works_with_one_worker(tmp_path: Path) -> None:
    """The baseline of a scaling curve trains like the single strategy."""
    alone = launch_ok(tmp_path, check_job("chainer", "single", "lenet5", steps=2))
    over_mpi = launch_ok(tmp_path, check_job("chainer", "allreduce", "lenet5", steps=2))
    assert losses(over_mpi) == losses(alone)


def test_synthetic_batches_are_timed(tmp_path: Path) -> None:
    """Over MPI, every worker writes the end of every step."""
    result = launch_ok(tmp_path, timing_job("chainer", "allreduce", "lenet5", workers=2, steps=6), workers=2)
    assert [len(result.record("steps", f"worker-{rank}")["ends_s"]) for rank in range(2)] == [6, 6]


def test_arrays_are_loaded(tmp_path: Path) -> None:
    """For several epochs, with a batch that leaves a rest."""
    result = launch_ok(tmp_path, timing_job("chainer", "single", "lenet5", loader=digits(tmp_path), batch=5, steps=8))
    assert np.isfinite(result.record("steps")["loss"])


@pytest.mark.parametrize("processes", [0, 1])
def test_photographs_are_loaded_by_both_workers(tmp_path: Path, processes: int) -> None:
    """In the training process, and in helper processes beside MPI."""
    shape = {"input_shape": (3, SIDE, SIDE), "classes": 10}
    loader = photos(tmp_path, processes=processes)
    job = timing_job("chainer", "allreduce", "lenet5", loader=loader, workers=2, batch=2, steps=8, **shape)
    result = launch_ok(tmp_path, job, workers=2)
    assert np.isfinite(result.record("steps", "worker-1")["loss"])


@pytest.mark.parametrize("processes", [0, 1])
def test_a_broken_photograph_ends_both_workers_and_is_named(tmp_path: Path, processes: int) -> None:
    """Worker 1 meets it first; worker 0, which waits for it in an all-reduce, is ended long before the time limit."""
    broken = int(epoch_indices(SAMPLES, 0, 0, 1, 2)[0])
    shape = {"input_shape": (3, SIDE, SIDE), "classes": 10}
    loader = photos(tmp_path, processes=processes, broken=broken)
    job = timing_job("chainer", "allreduce", "lenet5", loader=loader, workers=2, batch=2, steps=8, **shape)
    result = launch(tmp_path, job, workers=2)
    assert not result.outcome.ok
    assert str(tmp_path / f"{broken}.jpg") in result.record("error", "worker-1")["message"]
    assert result.outcome.wall_s < 30


def test_a_communicator_for_other_devices_is_refused(tmp_path: Path) -> None:
    """The message lists what works here."""
    job = check_job("chainer", "allreduce", "lenet5", steps=1, options={"communicator": "pure_nccl"})
    result = launch(tmp_path, job)
    assert "choices: auto, naive" in result.record("error")["message"]


def test_a_precision_that_chainer_lacks_is_refused(tmp_path: Path) -> None:
    """Instead of training in another one."""
    result = launch(tmp_path, check_job("chainer", "single", "lenet5", steps=1, precision="bf16"))
    assert "set precision to fp32" in result.record("error")["message"]
