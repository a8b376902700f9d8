"""Caffe trains what the reference trains: alone, over MPI in both ways, and from files."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launching import LaunchResult, check_job, interpreter_for, launch, launch_ok, relative_error, timing_job
from PIL import Image

from steptime.frameworks.manifest import load_manifests
from steptime.runner.equivalence.tolerances import weight_error
from steptime.runner.run_folder import make_run_folder
from steptime.worker.samples import epoch_indices
from steptime.workloads.kinds import KINDS
from steptime.workloads.layers import Network, Workload
from steptime.workloads.table import LIBRARY

pytestmark = pytest.mark.framework("caffe")

REDUCTIONS = ["after", "layerwise"]
SETTINGS = {"learning_rate": 0.05, "momentum": 0.8, "weight_decay": 0.01}
SAMPLES = 12
SIDE = 32

DROPPING = """
import json, os
os.environ["GLOG_minloglevel"] = "2"
import numpy
from steptime.frameworks.caffe.network import WorkloadSolver
from steptime.worker.weights import initial_weights

with open("job.json") as file:
    job = json.load(file)
found = []
for seed in (1, 1, 2):
    solver = WorkloadSolver(job["workload"], 6, job["optimizer"], 1.0, seed)
    solver.set_weights(initial_weights(job["workload"]["layers"], 0))
    inputs = numpy.random.RandomState(0).standard_normal([6] + job["workload"]["input_shape"])
    solver.feed_from(inputs.astype(numpy.float32), numpy.arange(6, dtype=numpy.float32) % 5)
    solver.step()
    found.append(solver.loss())
print(json.dumps(found))
"""
COMPARING = """
import json
import numpy
from steptime.frameworks.caffe.loader import open_loader
from steptime.worker.process_context import ProcessContext

if __name__ == "__main__":
    with open("job.json") as file:
        job = json.load(file)
    helped = open_loader(job, ProcessContext({}, "."))
    job["loader"]["processes"] = 0
    alone = open_loader(job, ProcessContext({}, "."))
    ring, labels = helped.inputs.reshape((-1,) + alone.inputs.shape), helped.targets.reshape(-1, 5)
    equal = 0
    for step in range(11):
        helped.fill(), alone.fill()
        equal += numpy.array_equal(ring[step % 4], alone.inputs) and numpy.array_equal(labels[step % 4], alone.targets)
    helped.close()
    print(equal, "equal")
"""
KILLING = """
import json, os, signal
from steptime.frameworks.caffe.loader import open_loader
from steptime.worker.process_context import ProcessContext

if __name__ == "__main__":
    with open("job.json") as file:
        loader = open_loader(json.load(file), ProcessContext({}, "."))
    loader.fill()
    os.kill(loader._helpers[0].pid, signal.SIGKILL)
    try:
        for _ in range(9):
            loader.fill()
    except RuntimeError as error:
        print(error)
    loader.close()
"""


def every_kind() -> Workload:
    """A workload that holds every kind of layer, with the attributes in which libraries differ."""
    net = Network((4, 13, 11))
    x = net.conv2d("grouped", net.input, 6, (3, 2), stride=(2, 1), padding=(1, 1), groups=2)
    x = net.tanh("tanh", net.batch_norm("norm", x, epsilon=1e-3, momentum=0.3))
    x = net.lrn("lrn", x, size=5, alpha=0.8, beta=0.75, k=2.0)
    x = net.max_pool("ceil", x, 2, stride=2, padding=1, ceil_mode=True)
    x = net.max_pool("floor", x, 2, stride=2)
    pooled = net.max_pool("same", x, 3, stride=1, padding=1)
    averaged = net.avg_pool("average", x, 3, stride=1, padding=1)
    x = net.concat("concat", [net.add("add", [pooled, averaged, x]), averaged])
    x = net.relu("relu", net.conv2d("pointwise", x, 8, 1, bias=False))
    x = net.dropout("dropout", net.flatten("flatten", net.global_avg_pool("global", x)), 0.5)
    net.linear("output", net.sigmoid("sigmoid", net.linear("hidden", x, 7)), 5, bias=False)
    return net.finish("every_kind", classes=5)


def shared_outputs() -> Workload:
    """Layers that must not work in place, because somebody else reads what they would overwrite."""
    net = Network((3, 8, 8))
    x = net.conv2d("conv", net.input, 4, 3, padding=1)
    y = net.relu("relu", x)
    z = net.batch_norm("norm", net.dropout("nothing", y, 0.0))
    x = net.add("add", [net.relu("relu.norm", z), x, net.tanh("tanh", y), net.sigmoid("sigmoid", z)])
    net.linear("output", net.relu("relu.flat", net.flatten("flatten", x)), 5)
    return net.finish("shared_outputs", classes=5)


def squared_error() -> Workload:
    """An autoencoder, whose output has another shape than the images that it is compared with."""
    net = Network((1, 6, 5))
    x = net.sigmoid("sigmoid", net.linear("encoder", net.flatten("flatten", net.input), 8))
    net.linear("decoder", x, 30)
    return net.finish("squared_error", classes=10, loss="mean_squared_error")


def surplus_window() -> Workload:
    """Rounding up fits the width, but along the height Caffe would keep a window that lies beyond the image."""
    net = Network((1, 5, 5))
    x = net.max_pool("far", net.input, (1, 2), stride=(5, 2), ceil_mode=True)
    net.linear("output", net.flatten("flatten", x), 3)
    return net.finish("surplus_window", classes=3)


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


def within(folder: Path, job: dict[str, Any], script: str) -> str:
    """Run a script beside a staged job in Caffe's own Python; return what it printed."""
    run = folder / "run"
    make_run_folder(run, load_manifests()["caffe"].folder, job, load_manifests()["caffe"].libraries)
    (run / "script.py").write_text(script)
    command = [interpreter_for("caffe"), "script.py"]
    ended = subprocess.run(command, cwd=run, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def losses(result: LaunchResult) -> list[float]:
    """The losses of a check by worker 0."""
    found: list[float] = result.record("check")["losses"]
    return found


@pytest.mark.parametrize("workload", [every_kind(), shared_outputs(), squared_error()], ids=lambda each: each.name)
def test_every_kind_of_layer_trains_as_in_the_reference(tmp_path: Path, workload: Workload) -> None:
    """With momentum and weight decay, the weights agree to 1e-4 after three steps."""
    how: dict[str, Any] = {"batch": 6, "steps": 3, "optimizer": SETTINGS}
    expected = launch_ok(tmp_path, check_job("reference", "single", workload, **dict(how)))
    found = launch_ok(tmp_path, check_job("caffe", "single", workload, **dict(how)))
    assert relative_error(losses(found), losses(expected)) < 1e-4
    assert weight_error(found.weights[0], expected.weights[0])[0] < 1e-4


def test_the_workload_of_every_kind_has_every_kind() -> None:
    """So that a new kind is not forgotten here."""
    assert {layer.kind for layer in every_kind().layers} == set(KINDS)


def test_resnet50_starts_as_in_the_reference(tmp_path: Path) -> None:
    """Losses agree, and parameters are as many as published, without the sums that Caffe's normalisation keeps."""
    how: dict[str, Any] = {"input_shape": (3, 64, 64), "classes": 1000, "batch": 2, "steps": 2}
    expected = losses(launch_ok(tmp_path, check_job("reference", "single", "resnet50", **dict(how))))
    result = launch_ok(tmp_path, check_job("caffe", "single", "resnet50", **dict(how)))
    assert relative_error(losses(result), expected) < 1e-4
    assert result.record("check")["parameters"] == LIBRARY["resnet50"].published_parameters
    assert result.record("check")["output_shape"] == [2, 1000]


def test_a_pool_that_caffe_would_round_otherwise_is_refused(tmp_path: Path) -> None:
    """With the layer's name, instead of training another workload."""
    result = launch(tmp_path, check_job("caffe", "single", surplus_window(), steps=1))
    assert "layer far" in result.record("error")["message"]


def test_dropout_repeats_with_its_seed(tmp_path: Path) -> None:
    """On equal weights and batches, the same seed drops the same values, another seed others."""
    first, again, other = json.loads(within(tmp_path, timing_job("caffe", "single", every_kind(), batch=6), DROPPING))
    assert first == again
    assert first != other


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_workers_give_the_weights_of_the_oracle(tmp_path: Path, reduction: str) -> None:
    """Each of three workers holds what one process computes from all shards; the first step counts like any other."""
    how: dict[str, Any] = {"batch": 6, "steps": 3, "optimizer": SETTINGS}
    oracle = check_job("reference", "single", every_kind(), options={"shards": 3}, **dict(how))
    expected = launch_ok(tmp_path, oracle).weights[0]
    job = check_job("caffe", "allreduce", every_kind(), workers=3, options={"reduction": reduction}, **dict(how))
    result = launch_ok(tmp_path, job, workers=3)
    assert max(weight_error(result.weights[rank], expected)[0] for rank in range(3)) < 1e-4


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_allreduce_works_with_one_worker(tmp_path: Path, reduction: str) -> None:
    """The baseline of a scaling curve trains like the single strategy."""
    alone = launch_ok(tmp_path, check_job("caffe", "single", "lenet5", steps=2))
    job = check_job("caffe", "allreduce", "lenet5", steps=2, options={"reduction": reduction})
    assert losses(launch_ok(tmp_path, job)) == losses(alone)


def test_arrays_are_loaded(tmp_path: Path) -> None:
    """For several epochs, with a batch that leaves a rest."""
    result = launch_ok(tmp_path, timing_job("caffe", "single", "lenet5", loader=digits(tmp_path), batch=5, steps=8))
    assert np.isfinite(result.record("steps")["loss"])


def test_photographs_are_loaded_by_the_helpers_of_both_workers(tmp_path: Path) -> None:
    """Beside MPI, for longer than the ring is."""
    shape = {"input_shape": (3, SIDE, SIDE), "classes": 10}
    loader = photos(tmp_path, processes=1)
    job = timing_job("caffe", "allreduce", "lenet5", loader=loader, workers=2, batch=2, steps=4, **shape)
    result = launch_ok(tmp_path, job, workers=2)
    assert np.isfinite(result.record("steps", "worker-1")["loss"])


@pytest.mark.parametrize("processes", [0, 1])
def test_a_broken_photograph_ends_both_workers_and_is_named(tmp_path: Path, processes: int) -> None:
    """Worker 1 meets it first; worker 0, which waits for it in an all-reduce, is ended long before the time limit."""
    broken = int(epoch_indices(SAMPLES, 0, 0, 1, 2)[0])
    shape = {"input_shape": (3, SIDE, SIDE), "classes": 10}
    loader = photos(tmp_path, processes=processes, broken=broken)
    job = timing_job("caffe", "allreduce", "lenet5", loader=loader, workers=2, batch=2, steps=8, **shape)
    result = launch(tmp_path, job, workers=2)
    assert result.outcome.reason
    assert "time" not in result.outcome.reason
    assert str(tmp_path / f"{broken}.jpg") in result.record("error", "worker-1")["message"]


def test_two_helpers_give_what_the_training_process_would_read(tmp_path: Path) -> None:
    """The same samples with the same crops, in the same order, round the ring and over the ends of epochs."""
    shape = {"input_shape": (3, SIDE, SIDE), "classes": 10}
    job = timing_job("caffe", "single", "lenet5", loader=photos(tmp_path, processes=2), batch=5, **shape)
    assert within(tmp_path, job, COMPARING).strip() == "11 equal"


def test_a_helper_that_dies_is_reported(tmp_path: Path) -> None:
    """Instead of waiting for its next batch for ever."""
    shape = {"input_shape": (3, SIDE, SIDE), "classes": 10}
    job = timing_job("caffe", "single", "lenet5", loader=photos(tmp_path, processes=1), batch=2, **shape)
    assert f"helper 0 ended with {-signal.SIGKILL}" in within(tmp_path, job, KILLING)


def test_what_caffe_lacks_is_refused(tmp_path: Path) -> None:
    """Instead of training in another precision."""
    result = launch(tmp_path, check_job("caffe", "single", "lenet5", steps=1, precision="bf16"))
    assert "set precision to fp32" in result.record("error")["message"]


def test_its_python_starts_itself_again() -> None:
    """Helpers are started by ``sys.executable``, which must be the wrapper and not the program that it starts."""
    python = interpreter_for("caffe")
    code = "import subprocess, sys; print(subprocess.check_output([sys.executable, '-I', '-c', 'print(6 * 7)']))"
    said = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert "42" in said.stdout


def test_a_system_without_debians_tools_is_told_how_to_get_them(tmp_path: Path) -> None:
    """By the command of the package manager that it has."""
    (tmp_path / "dnf").write_text("#!/bin/sh\n")
    (tmp_path / "dnf").chmod(0o755)
    manifest = load_manifests()["caffe"]
    command = [sys.executable, "-I", *manifest.finish_command[:1], str(tmp_path / "made"), *manifest.finish_command[1:]]
    ended = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "apt-get, dpkg-deb" in ended.stderr
    assert "\nfix: sudo dnf install" in ended.stderr
    assert not (tmp_path / "made").exists()
