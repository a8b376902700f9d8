"""JAX trains what the reference trains: alone, with gradients averaged by gloo, and from files."""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launching import LaunchResult, check_job, interpreter_for, launch, launch_ok, relative_error, timing_job
from PIL import Image

import steptime
from steptime.runner.equivalence.tolerances import weight_error
from steptime.worker.samples import epoch_indices
from steptime.workloads.kinds import KINDS
from steptime.workloads.layers import Network, Workload

pytestmark = pytest.mark.framework("jax")

SAMPLES = 12
SIDE = 32
MOVING: dict[str, Any] = {"learning_rate": 0.02, "momentum": 0.9, "weight_decay": 0.01}


def all_kinds() -> Workload:
    """Every kind of layer, with each form of a convolution and sizes for which channels last are no help."""
    net = Network((4, 15, 10))
    x = net.conv2d("uneven", net.input, 6, (3, 5), stride=2, padding=(1, 2), groups=2)
    x = net.relu("relu", net.batch_norm("norm", x, epsilon=1e-3, momentum=0.2))
    x = net.lrn("lrn", x, size=3, alpha=0.6, beta=0.7, k=1.5)
    x = net.max_pool("past_the_edge", x, 3, stride=2, padding=1, ceil_mode=True)
    below_zero = net.tanh("tanh", net.conv2d("small", x, 6, 5, padding=2, bias=False))
    x = net.concat("concat", [net.max_pool("padded", below_zero, 3, stride=1, padding=1), x])
    x = net.conv2d("pointwise", net.avg_pool("average", x, 3, stride=1, padding=1), 8, 1, groups=2)
    tall = net.dropout("dropout", net.sigmoid("sigmoid", net.flatten("flatten", x)), 0.4)
    wide = net.flatten("squeeze", net.global_avg_pool("global", x))
    both = net.add("sum", [net.linear("of_all", tall, 7), net.linear("of_means", wide, 7, bias=False)])
    net.linear("output", net.concat("flat_concat", [both, tall]), 5)
    return net.finish("all_kinds", classes=5)


def autoencoder_of_images() -> Workload:
    """Images in, images of the same shape out."""
    net = Network((2, 6, 5))
    x = net.tanh("tanh", net.conv2d("narrow", net.input, 3, 3, padding=1))
    net.conv2d("widen", x, 2, 3, padding=1)
    return net.finish("autoencoder_of_images", classes=10, loss="mean_squared_error")


def autoencoder_of_values() -> Workload:
    """Images in, a flat output whose order matters."""
    net = Network((2, 3, 4))
    net.linear("decoder", net.relu("relu", net.flatten("flatten", net.input)), 24)
    return net.finish("autoencoder_of_values", classes=10, loss="mean_squared_error")


def flat_to_the_end() -> Workload:
    """Nothing after the flatten that could put its values into the workload's order."""
    net = Network((2, 3, 4))
    net.relu("relu", net.flatten("flatten", net.conv2d("conv", net.input, 2, 3, padding=1)))
    return net.finish("flat_to_the_end", classes=24)


def photos(folder: Path, *, processes: int, broken: int | None = None) -> dict[str, Any]:
    """A native loader over JPEG files of random pixels, one of which may be cut short."""
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
        "transform": {"size": [SIDE, SIDE], "resize": SIDE + 4, "flip": True, "mean": [0.5] * 3, "std": [0.25] * 3},
    }
    return {"kind": "native", "processes": processes, "dataset": dataset}


def losses(result: LaunchResult) -> list[float]:
    """The losses of a check by worker 0."""
    found: list[float] = result.record("check")["losses"]
    return found


@pytest.mark.parametrize(
    "workload",
    [all_kinds(), autoencoder_of_images(), autoencoder_of_values(), flat_to_the_end()],
    ids=lambda workload: workload.name,
)
def test_every_kind_of_layer_trains_as_in_the_reference(tmp_path: Path, workload: Workload) -> None:
    """Weights after three steps with momentum and decay, and the shape of the output."""
    how: dict[str, Any] = {"batch": 6, "steps": 3, "optimizer": MOVING}
    expected = launch_ok(tmp_path, check_job("reference", "single", workload, **how))
    found = launch_ok(tmp_path, check_job("jax", "single", workload, **how))
    assert weight_error(found.weights[0], expected.weights[0])[0] < 1e-4
    assert found.record("check")["output_shape"] == expected.record("check")["output_shape"]


def test_the_workload_of_all_kinds_has_all_kinds() -> None:
    """So that a new kind is not forgotten here."""
    assert {layer.kind for layer in all_kinds().layers} == set(KINDS)


def test_a_small_resnet_has_the_losses_of_the_reference(tmp_path: Path) -> None:
    """The first loss to 1e-4, the loss after two steps to 1e-2."""
    how: dict[str, Any] = {"input_shape": (3, 32, 32), "classes": 10, "batch": 4, "steps": 2}
    expected = losses(launch_ok(tmp_path, check_job("reference", "single", "resnet50", **dict(how))))
    found = losses(launch_ok(tmp_path, check_job("jax", "single", "resnet50", **dict(how))))
    assert relative_error(found[0], expected[0]) < 1e-4
    assert relative_error(found[-1], expected[-1]) < 1e-2


@pytest.mark.parametrize("pack_kb", [1, 0])  # the contract tests have the default
def test_two_workers_give_the_weights_of_the_oracle(tmp_path: Path, pack_kb: int) -> None:
    """Whether some gradients travel together or each alone."""
    how: dict[str, Any] = {"batch": 8, "steps": 5, "optimizer": MOVING}
    oracle = check_job("reference", "single", "lenet5", options={"shards": 2}, **how)
    expected = launch_ok(tmp_path, oracle).weights[0]
    job = check_job("jax", "allreduce", "lenet5", workers=2, options={"pack_kb": pack_kb}, **how)
    result = launch_ok(tmp_path, job, workers=2)
    assert weight_error(result.weights[0], expected)[0] < 1e-4


def test_each_worker_normalises_its_own_batch(tmp_path: Path) -> None:
    """Batch statistics do not cross workers."""
    net = Network((3, 6, 6))
    x = net.batch_norm("norm", net.conv2d("conv", net.input, 4, 3))
    net.linear("output", net.flatten("flatten", x), 5)
    workload = net.finish("normalised", classes=5)
    oracle = check_job("reference", "single", workload, options={"shards": 2}, optimizer=MOVING)
    expected = launch_ok(tmp_path, oracle).weights[0]
    result = launch_ok(tmp_path, check_job("jax", "allreduce", workload, workers=2, optimizer=MOVING), workers=2)
    assert weight_error(result.weights[0], expected)[0] < 1e-4


def test_what_is_dropped_differs_between_steps_layers_and_workers(tmp_path: Path) -> None:
    """Half of the values, and twice the rest."""
    net = Network((1000,))
    net.dropout("second", net.dropout("first", net.input, 0.5), 0.5)
    workload = net.finish("dropping", classes=1000).to_json()
    code = f"""
import sys
sys.path.insert(0, {str(Path(steptime.__file__).parents[1])!r})
from steptime.frameworks.jax.network import JaxNetwork, import_jax
jax = import_jax(1, "cpu", 0)
import numpy
network = JaxNetwork({workload!r})
keys = [jax.random.fold_in(jax.random.key(worker), step) for worker in (0, 1) for step in (0, 1)]
found = [numpy.asarray(network.outputs({{}}, {{}}, numpy.ones((1, 1000), numpy.float32), key)[0]) for key in keys]
numpy.save("dropped.npy", numpy.concatenate(found))
"""
    subprocess.run([str(interpreter_for("jax")), "-c", code], cwd=tmp_path, check=True)
    dropped = np.load(tmp_path / "dropped.npy")
    assert set(np.unique(dropped)) == {0.0, 4.0}
    assert np.all(np.abs((dropped > 0).mean(axis=1) - 0.25) < 0.1)
    assert len({row.tobytes() for row in dropped}) == 4


def test_photographs_are_loaded_by_both_workers(tmp_path: Path) -> None:
    """By helpers, which end with the training; ends of steps are in order."""
    shape = {"input_shape": (3, SIDE, SIDE), "classes": 10}
    loader = photos(tmp_path, processes=2)
    job = timing_job("jax", "allreduce", "lenet5", loader=loader, workers=2, batch=2, steps=8, **shape)
    result = launch_ok(tmp_path, job, workers=2)
    record = result.record("steps", "worker-1")
    assert np.isfinite(record["loss"])
    assert np.all(np.diff([record["origin_s"], *record["ends_s"]]) > 0)


def test_the_number_of_helpers_does_not_change_what_is_trained_on(tmp_path: Path) -> None:
    """Batches come in the order of the plan, and chance belongs to a batch."""
    shape = {"input_shape": (3, SIDE, SIDE), "classes": 10}
    found = []
    for processes in (0, 3):
        loader = photos(tmp_path, processes=processes)
        job = timing_job("jax", "single", "lenet5", loader=loader, batch=4, steps=7, **shape)
        found.append(launch_ok(tmp_path, job).record("steps")["loss"])
    assert found[0] == found[1]


@pytest.mark.parametrize("processes", [0, 1])
def test_a_broken_photograph_ends_both_workers_and_is_named(tmp_path: Path, processes: int) -> None:
    """Worker 1 meets it; worker 0, which waits for its gradients, is ended long before the limit."""
    broken = int(epoch_indices(SAMPLES, 0, 0, 1, 2)[3])
    shape = {"input_shape": (3, SIDE, SIDE), "classes": 10}
    loader = photos(tmp_path, processes=processes, broken=broken)
    job = timing_job("jax", "allreduce", "lenet5", loader=loader, workers=2, batch=2, steps=8, **shape)
    result = launch(tmp_path, job, workers=2)
    assert not result.outcome.ok
    assert str(tmp_path / f"{broken}.jpg") in result.record("error", "worker-1")["message"]


def test_a_gpu_that_is_not_there_is_asked_for_in_vain(tmp_path: Path) -> None:
    """The message says that the environment has the build for CPUs."""
    result = launch(tmp_path, check_job("jax", "single", "lenet5", steps=1, device="cuda"))
    assert "sees no GPU" in result.record("error")["message"]
