"""MXNet trains what the reference trains: alone, with parameter servers, and from files."""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launching import LaunchResult, check_job, interpreter_for, launch, launch_ok, relative_error, timing_job
from PIL import Image

import steptime
from steptime.runner.equivalence.tolerances import update_error, weight_error
from steptime.worker.samples import epoch_indices
from steptime.worker.weights import initial_weights
from steptime.workloads.kinds import KINDS
from steptime.workloads.layers import Network, Workload
from steptime.workloads.table import LIBRARY, build_workload

pytestmark = pytest.mark.framework("mxnet")

SMALL_RESNET = {"input_shape": (3, 64, 64), "classes": 10, "batch": 4}
SAMPLES = 12
SIDE = 32


def every_kind() -> Workload:
    """A workload that holds every kind of layer, with the attributes in which MXNet differs from the protocol."""
    net = Network((4, 7, 6))
    x = net.tanh("tanh", net.conv2d("grouped", net.input, 6, (3, 2), padding=(1, 1), groups=2))
    x = net.batch_norm("norm", x, epsilon=1e-3, momentum=0.3)
    rows, columns = net.shape(x)[1:]
    assert (rows, columns) == (7, 7)
    branches = [
        net.lrn("lrn", net.max_pool("floor", x, 2, stride=2), size=5, alpha=0.8, beta=0.75, k=2.0),
        net.max_pool("ceil", net.avg_pool("average", x, 2, stride=1), 3, stride=3, ceil_mode=True),
        net.conv2d("strided", x, 3, 1, stride=3, bias=False),
    ]
    branches.append(net.max_pool("padded", x, 3, stride=3, padding=1))
    flat = [net.linear(f"flat.{name}", net.flatten(f"flatten.{name}", name), 6) for name in branches]
    flat.append(
        net.flatten("flatten.global", net.global_avg_pool("global", net.avg_pool("edges", x, 3, stride=2, padding=1)))
    )
    pair = net.add("pair", flat[:2])
    x = net.add("three", [net.relu("relu", pair), *flat[2:4]])
    x = net.concat("concat", [x, flat[4]])
    x = net.dropout("dropout", net.sigmoid("sigmoid", x), 0.5)
    net.linear("output", x, 5, bias=False)
    return net.finish("every_kind", classes=5)


def pooled_beyond_the_edge() -> Workload:
    """Ceil-mode pooling where MXNet's convention has one more window than the workload's, in the padding alone."""
    net = Network((2, 7, 6))
    x = net.max_pool("pool", net.conv2d("conv", net.input, 4, 1), 2, stride=2, padding=1, ceil_mode=True)
    assert net.shape(x) == (4, 4, 4)
    net.linear("output", net.flatten("flatten", x), 5)
    return net.finish("pooled_beyond_the_edge", classes=5)


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


def photos(folder: Path, *, processes: int, pixels: Any = None) -> dict[str, Any]:
    """A native loader over JPEG files: of random pixels, or all of ``pixels``."""
    stream = np.random.default_rng(0)
    for index in range(SAMPLES):
        own = stream.integers(0, 256, (SIDE + 9, SIDE + 20, 3), dtype=np.uint8) if pixels is None else pixels
        Image.fromarray(own).save(folder / f"{index}.jpg", quality=95)
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


@pytest.mark.parametrize(("workload", "shape"), [("lenet5", {"batch": 8}), ("resnet50", SMALL_RESNET)])
def test_losses_are_those_of_the_reference(tmp_path: Path, workload: str, shape: dict[str, Any]) -> None:
    """The first loss to 1e-4, the loss after five steps to 1e-2."""
    expected = losses(launch_ok(tmp_path, check_job("reference", "single", workload, **shape)))
    found = losses(launch_ok(tmp_path, check_job("mxnet", "single", workload, **shape)))
    assert relative_error(found[0], expected[0]) < 1e-4
    assert relative_error(found[-1], expected[-1]) < 1e-2


@pytest.mark.parametrize(
    ("workload", "shape"), [("lenet5", {}), ("resnet50", {"input_shape": (3, 64, 64), "classes": 1000})]
)
def test_parameters_are_as_many_as_published(tmp_path: Path, workload: str, shape: dict[str, Any]) -> None:
    """Counted in the gradients that MXNet allocates."""
    found = launch_ok(tmp_path, check_job("mxnet", "single", workload, batch=2, steps=1, **shape)).record("check")
    assert found["parameters"] == LIBRARY[workload].published_parameters


@pytest.mark.parametrize("workload", [every_kind(), pooled_beyond_the_edge(), squared_error()], ids=lambda it: it.name)
def test_layers_train_as_in_the_reference(tmp_path: Path, workload: Workload) -> None:
    """With momentum and weight decay, of biases and scales too, the weights agree to 1e-4 after three steps."""
    settings = {"learning_rate": 0.05, "momentum": 0.8, "weight_decay": 0.01}
    how: dict[str, Any] = {"batch": 6, "steps": 3, "optimizer": settings}
    expected = launch_ok(tmp_path, check_job("reference", "single", workload, **how)).weights[0]
    found = launch_ok(tmp_path, check_job("mxnet", "single", workload, **how)).weights[0]
    assert weight_error(found, expected)[0] < 1e-4


def test_the_workload_of_every_kind_has_every_kind() -> None:
    """So that a new kind is not forgotten here."""
    assert {layer.kind for layer in every_kind().layers} == set(KINDS)


def test_output_shape_is_the_workloads(tmp_path: Path) -> None:
    """With the batch in front."""
    result = launch_ok(tmp_path, check_job("mxnet", "single", "lenet5", batch=3, steps=1))
    assert result.record("check")["output_shape"] == [3, 10]


@pytest.mark.parametrize("repeat", range(3))
@pytest.mark.parametrize("servers", [1, 2])
def test_two_workers_give_the_weights_of_the_oracle(tmp_path: Path, servers: int, repeat: int) -> None:
    """What the servers hold is what one process computes from both shards; arrays are cut between two servers."""
    how: dict[str, Any] = {
        "batch": 8,
        "steps": 5,
        "seed": repeat,
        "optimizer": {"learning_rate": 0.02, "momentum": 0.9, "weight_decay": 0.01},
    }
    oracle = check_job("reference", "single", "lenet5", options={"shards": 2}, **how)
    expected = launch_ok(tmp_path, oracle).weights[0]
    job = check_job("mxnet", "ps_sync", "lenet5", workers=2, options={"bigarray_bound": 1000}, **how)
    result = launch_ok(tmp_path, job, workers=2, servers=servers)
    assert max(weight_error(result.weights[rank], expected)[0] for rank in range(2)) < 1e-4


@pytest.mark.parametrize("servers", [1, 2])
def test_steps_that_are_not_waited_for_give_the_loss_of_the_oracle(tmp_path: Path, servers: int) -> None:
    """When timed, a worker issues the next step while servers still work on the last one."""
    settings = {"learning_rate": 1e-3, "momentum": 0.9}  # keeps the loss far from zero, to which errors are relative
    how: dict[str, Any] = {"batch": 8, "steps": 40, "optimizer": settings}
    oracle = timing_job("reference", "single", "lenet5", options={"shards": 2}, **how)
    expected = launch_ok(tmp_path, oracle).record("steps")["loss"]
    job = timing_job("mxnet", "ps_sync", "lenet5", workers=2, **how)
    found = launch_ok(tmp_path, job, workers=2, servers=servers).record("steps")["loss"]
    assert relative_error(found, expected) < 1e-3


def test_two_workers_of_resnet50_give_the_weights_of_the_oracle(tmp_path: Path) -> None:
    """After one step, of whose update a worker's missing gradient would be a half and rounding is little.

    Rounding is more than in lenet5: it moves values across the kink of a ReLU, and batch norm spreads that.
    """
    oracle = check_job("reference", "single", "resnet50", steps=1, options={"shards": 2}, **SMALL_RESNET)
    expected = launch_ok(tmp_path, oracle).weights[0]
    job = check_job("mxnet", "ps_sync", "resnet50", workers=2, steps=1, **SMALL_RESNET)
    result = launch_ok(tmp_path, job, workers=2, servers=1)
    first = initial_weights(job["workload"]["layers"], 0)
    assert max(update_error(result.weights[rank], expected, first)[0] for rank in range(2)) < 0.02


def test_the_servers_hold_weights_and_not_gradients(tmp_path: Path) -> None:
    """Guards against MXNet's update on the workers, which is now and then wrong: the store would hold gradients.

    The learning rate is so small that weights cannot leave their first values, which gradients are far from.
    """
    settings = {"learning_rate": 1e-9, "momentum": 0.0}
    job = check_job("mxnet", "ps_sync", "lenet5", workers=2, steps=2, optimizer=settings)
    result = launch_ok(tmp_path, job, workers=2, servers=1)
    assert result.record("session")["facts"]["updated_by"] == "server"
    first = initial_weights(build_workload("lenet5").to_json()["layers"], 0)
    assert weight_error(result.weights[0], first)[0] < 1e-6


def test_one_worker_with_a_server_trains_like_a_worker_alone(tmp_path: Path) -> None:
    """The baseline of a scaling curve."""
    alone = losses(launch_ok(tmp_path, check_job("mxnet", "single", "lenet5", steps=3)))
    served = losses(launch_ok(tmp_path, check_job("mxnet", "ps_sync", "lenet5", steps=3), servers=1))
    assert relative_error(served, alone) < 1e-6


def test_asynchronous_workers_lower_the_loss(tmp_path: Path) -> None:
    """There is no fixed answer, since each worker's gradient is applied when it comes."""
    job = check_job("mxnet", "ps_async", "lenet5", workers=2, steps=40, batch=16)
    job["loader"]["distinct_batches"] = 1
    found = losses(launch_ok(tmp_path, job, workers=2, servers=2))
    assert np.mean(found[-5:]) < 0.5 * found[0]


@pytest.mark.parametrize("servers", [1, 2])
def test_asynchronous_updates_are_late_by_those_of_the_other_worker(tmp_path: Path, servers: int) -> None:
    """Every timed update is counted once, and some came after another's, since both train at the same time."""
    job = timing_job("mxnet", "ps_async", "lenet5", workers=2, batch=16, warmup_steps=4, steps=40)
    result = launch_ok(tmp_path, job, workers=2, servers=servers)
    found = [result.record("steps", f"worker-{rank}")["staleness"] for rank in range(2)]
    assert [sum(counts.values()) for counts in found] == [41, 41]  # with the step that lines the workers up
    assert all(int(late) >= 0 for counts in found for late in counts)
    assert sum(int(late) * count for counts in found for late, count in counts.items()) > 0


def test_updates_of_one_asynchronous_worker_are_never_late(tmp_path: Path) -> None:
    """Its own updates do not count."""
    job = timing_job("mxnet", "ps_async", "lenet5", batch=16, warmup_steps=2, steps=20)
    assert launch_ok(tmp_path, job, servers=1).record("steps")["staleness"] == {"0": 21}


def test_updates_that_are_made_together_have_no_staleness(tmp_path: Path) -> None:
    """The servers wait for all workers."""
    job = timing_job("mxnet", "ps_sync", "lenet5", workers=2, steps=3)
    assert launch_ok(tmp_path, job, workers=2, servers=1).record("steps")["staleness"] is None


def test_counting_does_not_change_what_is_trained(tmp_path: Path) -> None:
    """One asynchronous worker trains like a worker alone, its servers' momentum included."""
    settings = {"learning_rate": 0.02, "momentum": 0.9, "weight_decay": 0.01}
    expected = launch_ok(tmp_path, check_job("mxnet", "single", "lenet5", optimizer=settings)).weights[0]
    job = check_job("mxnet", "ps_async", "lenet5", optimizer=settings)
    assert weight_error(launch_ok(tmp_path, job, servers=2).weights[0], expected)[0] < 1e-5


@pytest.mark.parametrize(("strategy", "workers", "servers"), [("single", 1, 0), ("ps_sync", 2, 1), ("ps_async", 2, 1)])
def test_synthetic_batches_are_timed(tmp_path: Path, strategy: str, workers: int, servers: int) -> None:
    """Every worker writes the end of every step, in order and within the time that was spent."""
    job = timing_job("mxnet", strategy, "lenet5", workers=workers, batch=64, steps=60)
    result = launch_ok(tmp_path, job, workers=workers, servers=servers)
    for rank in range(workers):
        record = result.record("steps", f"worker-{rank}")
        ends = np.array([record["origin_s"], *record["ends_s"]])
        assert len(ends) == 61
        assert np.all(np.diff(ends) > 0)
        assert ends[-1] - ends[0] <= 1.05 * record["usage"]["wall_s"]


def test_arrays_are_loaded(tmp_path: Path) -> None:
    """For several epochs, with a batch that leaves a rest."""
    job = timing_job("mxnet", "ps_sync", "lenet5", loader=digits(tmp_path), batch=5, steps=8, workers=2)
    result = launch_ok(tmp_path, job, workers=2, servers=1)
    assert np.isfinite(result.record("steps")["loss"])


@pytest.mark.parametrize("processes", [0, 2])
def test_photographs_are_loaded_by_both_workers(tmp_path: Path, processes: int) -> None:
    """In the training process, and by helper threads."""
    shape = {"input_shape": (3, SIDE, SIDE), "classes": 10}
    loader = photos(tmp_path, processes=processes)
    job = timing_job("mxnet", "ps_sync", "lenet5", loader=loader, workers=2, batch=2, steps=8, **shape)
    result = launch_ok(tmp_path, job, workers=2, servers=1)
    assert np.isfinite(result.record("steps", "worker-1")["loss"])


def test_the_number_of_helpers_does_not_change_what_is_trained_on(tmp_path: Path) -> None:
    """Crops and flips are drawn in the order of the samples."""
    shape = {"input_shape": (3, SIDE, SIDE), "classes": 10}
    found = []
    for processes in (0, 3):
        loader = photos(tmp_path, processes=processes)
        job = timing_job("mxnet", "single", "lenet5", loader=loader, batch=4, steps=7, **shape)
        found.append(launch_ok(tmp_path, job).record("steps")["loss"])
    assert found[0] == found[1]


def loaded(folder: Path, loader: dict[str, Any], batches: int) -> np.ndarray:
    """Return the inputs of the first batches of four samples, as MXNet's loader gives them to worker 1 of 2."""
    job = {"loader": loader, "workload": {"input_shape": (3, SIDE, SIDE)}, "batch_per_worker": 4, "seed": 5}
    code = f"""
import sys, types
sys.path.insert(0, {str(Path(steptime.__file__).parents[1])!r})
import mxnet, numpy
from steptime.libraries.mxnet.loader import batches
feed = batches({job!r}, types.SimpleNamespace(rank=1, workers=2), mxnet.cpu())
numpy.save("loaded.npy", numpy.concatenate([next(feed)[0].asnumpy() for _ in range({batches})]))
"""
    subprocess.run([str(interpreter_for("mxnet")), "-c", code], cwd=folder, check=True)
    inputs: np.ndarray = np.load(folder / "loaded.npy")
    return inputs


def test_crops_and_flips_are_drawn_anew_in_every_epoch(tmp_path: Path) -> None:
    """On a slope from left to right, the first column says where the crop began and whether it was flipped."""
    slope = np.broadcast_to(np.arange(SIDE + 4, dtype=np.uint8)[None, :, None] * 6, (SIDE + 4, SIDE + 4, 3))
    loader = photos(tmp_path, processes=0, pixels=slope)
    inputs = loaded(tmp_path, loader, 10)
    rising = inputs[:, 0, :, -1].mean(axis=1) > inputs[:, 0, :, 0].mean(axis=1)
    starts = np.round((np.where(rising, inputs[:, 0, 16, 0], inputs[:, 0, 16, -1]) * 0.25 + 0.5) * 255 / 6)
    assert 10 < rising.sum() < 30
    assert set(starts) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize("content", [b"no photograph", b"", None], ids=["text", "empty", "cut off"])
def test_a_broken_photograph_ends_both_workers_and_is_named(
    tmp_path: Path, processes: int, content: bytes | None
) -> None:
    """Worker 1 meets it; worker 0 and the server, which wait for its gradients, are ended long before the limit."""
    broken = tmp_path / f"{int(epoch_indices(SAMPLES, 0, 0, 1, 2)[0])}.jpg"
    shape = {"input_shape": (3, SIDE, SIDE), "classes": 10}
    loader = photos(tmp_path, processes=processes)
    whole = broken.read_bytes()
    broken.write_bytes(whole[: len(whole) * 2 // 3] if content is None else content)
    job = timing_job("mxnet", "ps_sync", "lenet5", loader=loader, workers=2, batch=2, steps=8, **shape)
    result = launch(tmp_path, job, workers=2, servers=1)
    assert not result.outcome.ok
    assert str(broken) in result.record("error", "worker-1")["message"]
    assert result.outcome.wall_s < 30


def test_servers_and_scheduler_end_by_themselves(tmp_path: Path) -> None:
    """After the last worker has left, with nothing to complain about."""
    job = check_job("mxnet", "ps_sync", "lenet5", workers=2, steps=1)
    result = launch_ok(tmp_path, job, workers=2, servers=2)
    assert [result.stderr[name] for name in ("server-0", "server-1", "scheduler-0")] == ["", "", ""]
    assert result.outcome.wall_s < 30


def test_a_precision_that_mxnet_lacks_is_refused(tmp_path: Path) -> None:
    """Instead of training in another one."""
    result = launch(tmp_path, check_job("mxnet", "single", "lenet5", steps=1, precision="bf16"))
    assert "set precision to fp32" in result.record("error")["message"]


def test_a_device_that_this_mxnet_lacks_is_refused(tmp_path: Path) -> None:
    """The message says that another build is needed."""
    result = launch(tmp_path, check_job("mxnet", "single", "lenet5", steps=1, device="cuda"))
    assert "has no CUDA" in result.record("error")["message"]
