"""PyTorch trains what the reference trains: alone, with DDP and FSDP2, and from files."""

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_files import PHOTO, digits, photos
from launching import (
    LaunchResult,
    check_job,
    interpreter_for,
    launch,
    launch_ok,
    printed_in,
    relative_error,
    timing_job,
    weight_error,
)
from layer_workloads import autoencoder_of_values, transformer_of_tokens, values_read_twice

from steptime.catalog.workloads.costs import costs
from steptime.catalog.workloads.layers import Workload
from steptime.catalog.workloads.table import LIBRARY, build_workload

pytestmark = pytest.mark.framework("pytorch")

SMALL_RESNET = {"input_shape": (3, 64, 64), "classes": 10, "batch": 4}


def losses(result: LaunchResult) -> list[float]:
    """The losses of a check by worker 0."""
    found: list[float] = result.record("check")["losses"]
    return found


def require_devices(count: int) -> None:
    """Skip the test where torch sees fewer CUDA devices."""
    if cuda_devices() < count:
        pytest.skip(f"needs {count} CUDA devices, torch sees {cuda_devices()}")


@cache
def cuda_devices() -> int:
    """How many CUDA devices torch sees."""
    count = [interpreter_for("pytorch", device="cuda"), "-c", "import torch; print(torch.cuda.device_count())"]
    return int(subprocess.run(count, check=True, stdout=subprocess.PIPE, text=True).stdout)


def test_parameters_are_those_of_the_workload() -> None:
    """For every workload of the library, under its names and in its shapes, and no others."""
    workloads = {name: build_workload(name) for name in LIBRARY}
    code = """
import torch
from steptime.libraries.torch.network import TorchWorkload
found = {}
with torch.device("meta"):  # shapes without memory
    for name, workload in workloads.items():
        built = TorchWorkload(workload)
        shapes = {name: list(parameter.shape) for name, parameter in built.parameters().items()}
        found[name] = [shapes, sum(parameter.numel() for parameter in built.module.parameters())]
print(json.dumps(found))
"""
    found = printed_in("pytorch", code, workloads={name: each.to_json() for name, each in workloads.items()})
    for name, each in workloads.items():
        shapes = {parameter.name: list(parameter.shape) for layer in each.layers for parameter in layer.parameters}
        assert found[name] == [shapes, each.parameter_count], name


def test_the_flops_of_a_model_are_those_that_torch_counts() -> None:
    """Of the forward pass of every workload, within 1 %; a step is three times as much by definition."""
    workloads = {name: build_workload(name) for name in LIBRARY}
    code = """
import torch
from torch.utils.flop_counter import FlopCounterMode
from steptime.libraries.torch.network import TorchWorkload
found = {}
with torch.device("meta"):
    for name, workload in workloads.items():
        tokens = workload["layers"][0]["kind"] == "embedding"
        sample = torch.zeros([1, *workload["input_shape"]], dtype=torch.int64 if tokens else torch.float32)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            TorchWorkload(workload).module(sample)
        found[name] = counter.get_total_flops()
print(json.dumps(found))
"""
    found = printed_in("pytorch", code, workloads={name: each.to_json() for name, each in workloads.items()})
    for name, each in workloads.items():
        assert costs(each).model_flops / 3 == pytest.approx(found[name], rel=0.01), name


def test_a_residual_block_is_one_child_of_the_network() -> None:
    """So that FSDP and users see blocks, and nothing is interpreted layer by layer."""
    code = """
from steptime.libraries.torch.network import TorchWorkload
print(json.dumps([type(child).__name__ for child in TorchWorkload(workload).module]))
"""
    children = printed_in("pytorch", code, workload=build_workload("resnet50", input_shape=(3, 64, 64)).to_json())
    assert children.count("Block") == 16
    assert children[:4] == ["Conv2d", "BatchNorm2d", "ReLU", "MaxPool2d"]
    assert children[-3:] == ["AdaptiveAvgPool2d", "Flatten", "Linear"]


@pytest.mark.parametrize("channels_last", ["yes", "no"])
@pytest.mark.parametrize("workload", [values_read_twice(), autoencoder_of_values()], ids=lambda it: it.name)
def test_layers_train_as_in_the_reference(tmp_path: Path, workload: Workload, channels_last: str) -> None:
    """With momentum and weight decay, of biases and scales too, the weights agree to 1e-4 after three steps."""
    settings = {"learning_rate": 0.05, "momentum": 0.8, "weight_decay": 0.01}
    how: dict[str, Any] = {"batch": 6, "steps": 3, "optimizer": settings}
    expected = launch_ok(tmp_path, check_job("reference", "single", workload, **how), preloaded=True).weights[0]
    job = check_job("pytorch", "single", workload, options={"channels_last": channels_last}, **how)
    assert weight_error(launch_ok(tmp_path, job, preloaded=True).weights[0], expected)[0] < 1e-4


@pytest.mark.parametrize("strategy", ["allreduce", "fsdp"])
def test_two_workers_give_the_weights_of_the_oracle(tmp_path: Path, strategy: str) -> None:
    """To 1e-4, of what one process computes from both shards; mlp is large enough to be sharded in groups."""
    workload = "mlp"
    how: dict[str, Any] = {"batch": 8, "steps": 5, "optimizer": {"learning_rate": 0.02, "weight_decay": 0.01}}
    oracle = check_job("reference", "single", workload, options={"shards": 2}, **how)
    expected = launch_ok(tmp_path, oracle, preloaded=True).weights[0]
    job = check_job("pytorch", strategy, workload, workers=2, **how)
    result = launch_ok(tmp_path, job, workers=2, preloaded=True)
    assert sorted(result.weights) == [0, 1]
    assert max(weight_error(result.weights[rank], expected)[0] for rank in range(2)) < 1e-4


def test_a_weight_that_two_layers_have_is_in_no_group_of_fsdp(tmp_path: Path) -> None:
    """The root gathers it; two workers then give the weights of the oracle to 1e-4."""
    workload = transformer_of_tokens()
    how: dict[str, Any] = {"batch": 6, "steps": 3, "optimizer": {"learning_rate": 0.05, "weight_decay": 0.01}}
    oracle = check_job("reference", "single", workload, options={"shards": 2, "bits": 64}, **how)
    expected = launch_ok(tmp_path, oracle, preloaded=True).weights[0]
    job = check_job("pytorch", "fsdp", workload, workers=2, options={"group_values": 100}, **how)
    result = launch_ok(tmp_path, job, workers=2, preloaded=True)
    assert max(weight_error(result.weights[rank], expected)[0] for rank in range(2)) < 1e-4
    assert result.record("session")["facts"]["sharded_groups"] > 1


def test_output_shape_is_the_workloads(tmp_path: Path) -> None:
    """With the batch in front, from a network that FSDP has sharded."""
    job = check_job("pytorch", "fsdp", "lenet5", workers=2, batch=3, steps=1)
    result = launch_ok(tmp_path, job, workers=2, preloaded=True)
    assert result.record("check")["output_shape"] == [3, 10]
    assert result.record("check")["parameters"] == build_workload("lenet5").parameter_count


def test_mixed_precision_starts_from_nearly_the_same_loss(tmp_path: Path) -> None:
    """But not from the same: bf16 keeps eight bits of each factor."""
    how: dict[str, Any] = {"batch": 32, "steps": 1}
    full, mixed = (
        losses(launch_ok(tmp_path, check_job("pytorch", "single", "lenet5", precision=each, **how), preloaded=True))
        for each in ("fp32", "bf16")
    )
    assert 1e-6 < relative_error(mixed, full) < 2e-2


@pytest.mark.costly
@pytest.mark.needs("compiler")
def test_a_compiled_network_trains_the_same(tmp_path: Path) -> None:
    """With DDP around it."""
    plain, compiled = (
        check_job("pytorch", "allreduce", "lenet5", workers=1, steps=3, options={"compile": on}) for on in ("no", "yes")
    )
    expected = launch_ok(tmp_path, plain, preloaded=True).weights[0]
    found = launch_ok(tmp_path, compiled, time_limit_s=280.0, preloaded=True).weights[0]
    assert weight_error(found, expected)[0] < 1e-4


@pytest.mark.parametrize(("strategy", "workers"), [("single", 1), ("allreduce", 2), ("fsdp", 2)])
def test_synthetic_batches_are_timed(tmp_path: Path, strategy: str, workers: int) -> None:
    """Every worker writes the end of every step, in order; nothing is complained about."""
    job = timing_job("pytorch", strategy, "lenet5", workers=workers, batch=64, steps=20)
    result = launch_ok(tmp_path, job, workers=workers, preloaded=True)
    for rank in range(workers):
        record = result.record("steps", f"worker-{rank}")
        ends = np.array([record["origin_s"], *record["ends_s"]])
        assert len(ends) == 21
        assert np.all(np.diff(ends) > 0)
        assert result.stderr[f"worker-{rank}"] == ""


def test_threads_are_those_of_the_job(tmp_path: Path) -> None:
    """And not as many as there are cores."""
    result = launch_ok(tmp_path, timing_job("pytorch", "single", "lenet5", threads=1))
    assert result.record("session")["facts"]["threads"] == 1


@pytest.mark.parametrize("channels_last", ["yes", "no"])
def test_arrays_are_loaded(tmp_path: Path, channels_last: str) -> None:
    """For several epochs, with a batch that leaves a rest."""
    how: dict[str, Any] = {"batch": 5, "steps": 8, "workers": 2, "options": {"channels_last": channels_last}}
    job = timing_job("pytorch", "allreduce", "lenet5", loader=digits(tmp_path), **how)
    result = launch_ok(tmp_path, job, workers=2, preloaded=True)
    assert np.isfinite(result.record("steps")["loss"])


def test_a_flat_workload_takes_arrays_of_images(tmp_path: Path) -> None:
    """As the autoencoder does, whose targets they are too."""
    job = timing_job("pytorch", "single", "autoencoder", loader=digits(tmp_path), batch=5, steps=4)
    assert np.isfinite(launch_ok(tmp_path, job, preloaded=True).record("steps")["loss"])


def test_the_number_of_helpers_does_not_change_what_is_trained_on(tmp_path: Path) -> None:
    """Crops and flips belong to the sample and its epoch, not to the process that draws them."""
    found = []
    for processes in (0, 3):
        loader = photos(tmp_path, processes=processes)
        job = timing_job("pytorch", "single", "lenet5", loader=loader, batch=4, steps=7, **PHOTO)
        found.append(launch_ok(tmp_path, job, preloaded=True).record("steps")["loss"])
    assert found[0] == found[1]


def test_every_layout_holds_the_same_photographs(tmp_path: Path) -> None:
    """Channels innermost change the order in memory, not the values."""
    code = """
import itertools, torch, types
from steptime.libraries.torch.loader import open_torch_batches
place = types.SimpleNamespace(rank=1, workers=2)
feeds = [open_torch_batches(job, place, torch.device("cpu"), layout) for layout in (True, False)]
pairs = list(itertools.islice(zip(*feeds), 4))
inner = all(a.is_contiguous(memory_format=torch.channels_last) for (a, _), _ in pairs)
print(json.dumps([inner, all(torch.equal(a, b) for (a, _), (b, _) in pairs)]))
"""
    job = timing_job("pytorch", "single", "lenet5", loader=photos(tmp_path, processes=0), batch=3, **PHOTO)
    assert printed_in("pytorch", code, job=job) == [True, True]


def test_arrays_of_another_size_are_refused(tmp_path: Path) -> None:
    """With both shapes in the message."""
    job = timing_job("pytorch", "single", "cifar_cnn", loader=digits(tmp_path), batch=4)
    message = launch(tmp_path, job, preloaded=True).record("error")["message"]
    assert "images of [1, 28, 28] where the workload expects [3, 32, 32]" in message


def test_a_missing_device_is_refused(tmp_path: Path) -> None:
    """With what to do instead."""
    if cuda_devices():
        pytest.skip("there is a CUDA device")
    result = launch(tmp_path, check_job("pytorch", "single", "lenet5", steps=1, device="cuda"), preloaded=True)
    assert "use fewer workers or device: cpu" in result.record("error")["message"]


@pytest.mark.cuda
@pytest.mark.parametrize(("workload", "shape"), [("lenet5", {"batch": 8}), ("resnet50", SMALL_RESNET)])
def test_a_cuda_device_computes_the_losses_of_the_reference(
    tmp_path: Path, workload: str, shape: dict[str, Any]
) -> None:
    """In fp32 proper, without TF32."""
    require_devices(1)
    expected = losses(launch_ok(tmp_path, check_job("reference", "single", workload, **shape)))
    result = launch_ok(tmp_path, check_job("pytorch", "single", workload, device="cuda", **shape))
    assert result.record("session")["facts"]["tf32"] is False
    assert relative_error(losses(result)[0], expected[0]) < 1e-4
    assert relative_error(losses(result)[-1], expected[-1]) < 1e-2


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("source", ["synthetic", "arrays", "photos"])
def test_a_cuda_device_is_timed_with_events(tmp_path: Path, source: str, precision: str) -> None:
    """Whose ends, tied to the host's clock, rise and fill the time that was spent."""
    require_devices(1)
    shape = PHOTO if source == "photos" else {}
    loader = {"synthetic": None, "arrays": digits(tmp_path), "photos": photos(tmp_path, processes=2)}[source]
    how: dict[str, Any] = {"batch": 4, "warmup_steps": 5, "steps": 50, "device": "cuda", "precision": precision}
    record = launch_ok(tmp_path, timing_job("pytorch", "single", "lenet5", loader=loader, **how, **shape)).record(
        "steps"
    )
    ends = np.array([record["origin_s"], *record["ends_s"]])
    assert np.all(np.diff(ends) > 0)
    assert ends[-1] - ends[0] <= 1.05 * record["usage"]["wall_s"]


@pytest.mark.cuda
@pytest.mark.parametrize("strategy", ["allreduce", "fsdp"])
def test_two_cuda_devices_give_the_weights_of_the_oracle(tmp_path: Path, strategy: str) -> None:
    """Over NCCL."""
    require_devices(2)
    oracle = check_job("reference", "single", "lenet5", options={"shards": 2})
    expected = launch_ok(tmp_path, oracle).weights[0]
    job = check_job("pytorch", strategy, "lenet5", workers=2, device="cuda")
    result = launch_ok(tmp_path, job, workers=2)
    assert max(weight_error(result.weights[rank], expected)[0] for rank in range(2)) < 1e-4
