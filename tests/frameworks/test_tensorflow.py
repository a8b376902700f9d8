"""TensorFlow trains what the reference trains: alone, around a ring, and from files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launching import LaunchResult, check_job, launch, launch_ok, relative_error, timing_job
from PIL import Image

from steptime.runner.equivalence.tolerances import weight_error
from steptime.worker.samples import epoch_indices
from steptime.workloads.kinds import KINDS
from steptime.workloads.layers import Network, Workload
from steptime.workloads.table import LIBRARY

pytestmark = pytest.mark.framework("tensorflow")

SMALL_RESNET = {"input_shape": (3, 64, 64), "classes": 10, "batch": 4}
SAMPLES = 12
SIDE = 32
PHOTO_SHAPE = {"input_shape": (3, SIDE, SIDE), "classes": 10}


def all_kinds() -> Workload:
    """Every kind of layer, with sizes for which channels last and TensorFlow's names for padding are no help."""
    net = Network((4, 15, 10))
    x = net.conv2d("uneven", net.input, 6, (3, 5), stride=2, padding=(1, 2), groups=2)
    x = net.relu("relu", net.batch_norm("norm", x, epsilon=1e-3, momentum=0.2))
    x = net.lrn("lrn", x, size=3, alpha=0.6, beta=0.7, k=1.5)
    x = net.max_pool("past_the_edge", x, 3, stride=2, padding=1, ceil_mode=True)
    below_zero = net.tanh("tanh", net.conv2d("same", x, 6, 3, padding=1, bias=False))
    x = net.concat("concat", [net.max_pool("padded", below_zero, 3, stride=1, padding=1), x])
    x = net.avg_pool("average", x, 3, stride=1, padding=1)
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


def digits(folder: Path, shape: tuple[int, int, int] = (1, 28, 28)) -> dict[str, Any]:
    """A native loader over random images that lie in memory."""
    images = np.random.default_rng(0).integers(0, 256, (SAMPLES, *shape), dtype=np.uint8)
    np.savez(folder / "digits.npz", images=images, labels=np.arange(SAMPLES) % 10)
    transform = {"mean": [0.5], "std": [0.25]}
    dataset = {"form": "arrays", "path": str(folder / "digits.npz"), "samples": SAMPLES, "transform": transform}
    return {"kind": "native", "processes": 0, "dataset": dataset}


def photos(folder: Path, *, processes: int = 0, broken: int | None = None, resize: int = SIDE + 9) -> dict[str, Any]:
    """A native loader over JPEG files, one of which may be cut short."""
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
        "transform": {"size": [SIDE, SIDE], "resize": resize, "flip": True, "mean": [0.5] * 3, "std": [0.25] * 3},
    }
    return {"kind": "native", "processes": processes, "dataset": dataset}


def losses(result: LaunchResult, worker: int = 0) -> list[float]:
    """The losses of a check, by one worker."""
    found: list[float] = result.record("check", f"worker-{worker}")["losses"]
    return found


@pytest.mark.parametrize(
    ("workload", "shape"), [("lenet5", {}), ("resnet50", {"input_shape": (3, 64, 64), "classes": 1000})]
)
def test_parameters_are_as_many_as_published(tmp_path: Path, workload: str, shape: dict[str, Any]) -> None:
    """Counted in TensorFlow's own variables."""
    job = check_job("tensorflow", "single", workload, batch=2, steps=1, **shape)
    found = launch_ok(tmp_path, job).record("check")["parameters"]
    assert found == LIBRARY[workload].published_parameters


@pytest.mark.parametrize(("workload", "shape"), [("lenet5", {"batch": 8}), ("resnet50", SMALL_RESNET)])
def test_losses_are_those_of_the_reference(tmp_path: Path, workload: str, shape: dict[str, Any]) -> None:
    """The first loss to 1e-4, the loss after five steps to 1e-2."""
    expected = losses(launch_ok(tmp_path, check_job("reference", "single", workload, **dict(shape))))
    found = losses(launch_ok(tmp_path, check_job("tensorflow", "single", workload, **dict(shape))))
    assert relative_error(found[0], expected[0]) < 1e-4
    assert relative_error(found[-1], expected[-1]) < 1e-2


@pytest.mark.parametrize(
    "workload",
    [all_kinds(), autoencoder_of_images(), autoencoder_of_values(), flat_to_the_end()],
    ids=lambda workload: workload.name,
)
def test_every_kind_of_layer_trains_as_in_the_reference(tmp_path: Path, workload: Workload) -> None:
    """With momentum and weight decay, the weights agree to 1e-4 after three steps."""
    how = {"batch": 6, "steps": 3, "optimizer": {"learning_rate": 0.05, "momentum": 0.8, "weight_decay": 0.01}}
    expected = launch_ok(tmp_path, check_job("reference", "single", workload, **how)).weights[0]
    found = launch_ok(tmp_path, check_job("tensorflow", "single", workload, **how)).weights[0]
    assert weight_error(found, expected)[0] < 1e-4


def test_the_workload_of_all_kinds_has_all_kinds() -> None:
    """So that a new kind is not forgotten here."""
    assert {layer.kind for layer in all_kinds().layers} == set(KINDS)


@pytest.mark.parametrize("workload", [all_kinds(), autoencoder_of_images()], ids=lambda workload: workload.name)
def test_the_output_has_the_workloads_layout(tmp_path: Path, workload: Workload) -> None:
    """Channels first, with the batch in front."""
    result = launch_ok(tmp_path, check_job("tensorflow", "single", workload, batch=3, steps=1))
    assert result.record("check")["output_shape"] == [3, *workload.output_shape]


def test_dropout_differs_from_step_to_step(tmp_path: Path) -> None:
    """On one and the same batch, with a learning rate that changes nothing."""
    net = Network((6,))
    net.linear("fc", net.dropout("dropout", net.input, 0.5), 3)
    still = {"learning_rate": 1e-30, "momentum": 0.0}
    job = check_job("tensorflow", "single", net.finish("dropped", classes=3), steps=2, optimizer=still)
    job["workload"]["layers"][0]["attributes"]["rate"] = 0.5
    job["loader"]["distinct_batches"] = 1
    first, second = losses(launch_ok(tmp_path, job))
    assert first != second


def test_mixed_precision_is_near_the_reference(tmp_path: Path) -> None:
    """Eight bits of mantissa keep the first loss to 2 %, and it is not the loss of 32 bits."""
    expected = losses(launch_ok(tmp_path, check_job("reference", "single", "lenet5", steps=1)))
    found = losses(launch_ok(tmp_path, check_job("tensorflow", "single", "lenet5", steps=1, precision="bf16")))
    assert 1e-6 < relative_error(found[0], expected[0]) < 2e-2


def test_xla_trains_the_same(tmp_path: Path) -> None:
    """The compiled step is another program for the same computation."""
    how: dict[str, Any] = {"steps": 3}
    plain = launch_ok(tmp_path, check_job("tensorflow", "single", "lenet5", **how)).weights[0]
    compiled = launch_ok(tmp_path, check_job("tensorflow", "single", "lenet5", options={"xla": True}, **how)).weights[0]
    assert weight_error(compiled, plain)[0] < 1e-4


@pytest.mark.parametrize("pack_mb", [4.0, 0.01])
def test_two_workers_give_the_weights_of_the_oracle(tmp_path: Path, pack_mb: float) -> None:
    """Each worker holds what one process computes from both shards, in however many packs gradients travel."""
    how: dict[str, Any] = {"batch": 8, "steps": 5}
    oracle = check_job("reference", "single", "lenet5", options={"shards": 2}, **how)
    expected = launch_ok(tmp_path, oracle).weights[0]
    job = check_job("tensorflow", "allreduce", "lenet5", workers=2, options={"pack_mb": pack_mb}, **how)
    result = launch_ok(tmp_path, job, workers=2)
    assert max(weight_error(result.weights[rank], expected)[0] for rank in range(2)) < 1e-4


def test_two_workers_of_resnet50_give_the_weights_of_the_oracle(tmp_path: Path) -> None:
    """After one step, since batch normalisation amplifies rounding; the oracle's own is kept out by 64 bits."""
    oracle = check_job("reference", "single", "resnet50", steps=1, options={"shards": 2, "bits": 64}, **SMALL_RESNET)
    expected = launch_ok(tmp_path, oracle).weights[0]
    job = check_job("tensorflow", "allreduce", "resnet50", workers=2, steps=1, **SMALL_RESNET)
    result = launch_ok(tmp_path, job, workers=2)
    assert max(weight_error(result.weights[rank], expected)[0] for rank in range(2)) < 1e-4


def test_a_worker_reports_the_loss_of_its_own_batch(tmp_path: Path) -> None:
    """And not the share of it that is differentiated, nor the other worker's."""
    result = launch_ok(tmp_path, check_job("tensorflow", "allreduce", "lenet5", workers=2, steps=1), workers=2)
    alone = losses(launch_ok(tmp_path, check_job("tensorflow", "single", "lenet5", steps=1)))
    assert losses(result) == alone
    assert losses(result, worker=1) != alone


def test_allreduce_works_with_one_worker(tmp_path: Path) -> None:
    """The baseline of a scaling curve trains like the single strategy."""
    alone = launch_ok(tmp_path, check_job("tensorflow", "single", "lenet5", steps=2))
    mirrored = launch_ok(tmp_path, check_job("tensorflow", "allreduce", "lenet5", steps=2))
    assert losses(mirrored) == losses(alone)


def test_synthetic_batches_are_timed_by_all_workers(tmp_path: Path) -> None:
    """Every worker writes the end of every step."""
    result = launch_ok(tmp_path, timing_job("tensorflow", "allreduce", "lenet5", workers=2, steps=6), workers=2)
    assert [len(result.record("steps", f"worker-{rank}")["ends_s"]) for rank in range(2)] == [6, 6]


def test_a_proxy_does_not_come_between_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that leads nowhere would keep them from ever meeting."""
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    launch_ok(tmp_path, timing_job("tensorflow", "allreduce", "lenet5", workers=2, steps=2), workers=2)


@pytest.mark.parametrize("input_shape", [(1, 28, 28), (784,)], ids=["images", "flat"])
def test_arrays_are_loaded(tmp_path: Path, input_shape: tuple[int, ...]) -> None:
    """For several epochs, with a batch that leaves a rest, for workloads with and without images."""
    net = Network(input_shape)
    net.linear("fc", net.flatten("flatten", net.input), 10)
    job = timing_job(
        "tensorflow", "single", net.finish("one_layer", classes=10), loader=digits(tmp_path), batch=5, steps=8
    )
    assert np.isfinite(launch_ok(tmp_path, job).record("steps")["loss"])


@pytest.mark.parametrize(("processes", "resize"), [(0, SIDE + 9), (2, SIDE + 2)], ids=["as they are", "shrunk"])
def test_photographs_are_loaded_by_both_workers(tmp_path: Path, processes: int, resize: int) -> None:
    """With one thread and with two, which the session's facts say."""
    loader = photos(tmp_path, processes=processes, resize=resize)
    job = timing_job("tensorflow", "allreduce", "lenet5", loader=loader, workers=2, batch=2, steps=8, **PHOTO_SHAPE)
    result = launch_ok(tmp_path, job, workers=2)
    assert np.isfinite(result.record("steps", "worker-1")["loss"])
    assert result.record("session")["facts"]["loader_threads"] == max(1, processes)


def test_a_broken_photograph_ends_both_workers_and_is_named(tmp_path: Path) -> None:
    """Worker 1 meets it in its second batch; worker 0, which waits for it in the ring, ends too."""
    broken = int(epoch_indices(SAMPLES, 0, 0, 1, 2)[3])
    loader = photos(tmp_path, broken=broken)
    job = timing_job("tensorflow", "allreduce", "lenet5", loader=loader, workers=2, batch=2, steps=8, **PHOTO_SHAPE)
    result = launch(tmp_path, job, workers=2, time_limit_s=100)
    assert not result.outcome.ok
    assert str(tmp_path / f"{broken}.jpg") in result.record("error", "worker-1")["message"]
    assert result.outcome.wall_s < 60


def test_a_gpu_that_is_not_there_is_asked_for_in_vain(tmp_path: Path) -> None:
    """The message says what to choose instead; skipped where there is one."""
    job = check_job("tensorflow", "single", "lenet5", steps=1)
    result = launch(tmp_path, {**job, "device": "cuda"})
    if result.outcome.ok:
        pytest.skip("this interpreter's tensorflow sees a GPU")
    assert "choose the device 'cpu'" in result.record("error")["message"]


@pytest.mark.cuda
def test_a_gpu_trains_what_the_reference_trains(tmp_path: Path) -> None:
    """LeNet-5's first loss to 1e-3 (a GPU may round products to 19 bits), and the last to 1e-2."""
    expected = losses(launch_ok(tmp_path, check_job("reference", "single", "lenet5")))
    result = launch(tmp_path, check_job("tensorflow", "single", "lenet5", device="cuda"))
    if not result.outcome.ok and "sees no GPU" in result.record("error")["message"]:
        pytest.skip("this interpreter's tensorflow sees no GPU")
    assert relative_error(losses(result)[0], expected[0]) < 1e-3
    assert relative_error(losses(result)[-1], expected[-1]) < 1e-2
