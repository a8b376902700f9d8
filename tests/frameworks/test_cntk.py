"""CNTK trains what the reference trains: alone, over MPI, and from files."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from launching import LaunchResult, check_job, interpreter_for, launch, launch_ok, relative_error, timing_job
from PIL import Image

from steptime.environments.pythons import how_to_get
from steptime.frameworks.manifest import load_manifests
from steptime.runner.equivalence.tolerances import weight_error
from steptime.worker.process_context import ProcessContext
from steptime.worker.samples import epoch_indices
from steptime.workloads.kinds import KINDS
from steptime.workloads.layers import Network, Workload
from steptime.workloads.table import LIBRARY

pytestmark = pytest.mark.framework("cntk")

DISTRIBUTED = ["allreduce", "onebit", "block_momentum"]
FINISH = load_manifests()["cntk"].folder / "finish.py"
SAMPLES = 12
SIDE = 32


def every_kind() -> Workload:
    """A workload that holds every kind of layer, with the attributes in which CNTK differs from the protocol."""
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


def every_padding() -> Workload:
    """Windows that CNTK's own padding would put elsewhere or refuse, beside some that it places as wanted."""
    net = Network((2, 9, 9))
    branches = [
        net.conv2d("spread", net.input, 4, 3, stride=3, padding=1),
        net.conv2d("depthwise", net.input, 4, 3, stride=2, padding=1, groups=2),
        net.conv2d("even", net.input, 4, 4, padding=1),
        net.conv2d("wide", net.input, 4, (1, 7), padding=(0, 3)),
        net.max_pool("rest", net.input, 2, stride=2, ceil_mode=True),
        net.avg_pool("edges", net.input, 3, stride=2, padding=1),
    ]
    small = net.max_pool("small", net.input, 5, stride=4)
    branches += [net.conv2d("larger", small, 4, 3, padding=1), net.max_pool("beyond", small, 3, padding=1, stride=1)]
    flat = [net.linear(f"{name}.linear", net.flatten(f"{name}.flatten", name), 5) for name in branches]
    net.linear("output", net.add("add", flat), 5)
    return net.finish("every_padding", classes=5)


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


def losses(result: LaunchResult, worker: int = 0) -> list[float]:
    """The losses of a check by one worker."""
    found: list[float] = result.record("check", f"worker-{worker}")["losses"]
    return found


def test_resnet50_trains_as_in_the_reference(tmp_path: Path) -> None:
    """The losses of two steps to 1e-4, with as many parameters as are published."""
    how: dict[str, Any] = {"input_shape": (3, 64, 64), "batch": 2, "steps": 2}
    expected = launch_ok(tmp_path, check_job("reference", "single", "resnet50", **dict(how)))
    found = launch_ok(tmp_path, check_job("cntk", "single", "resnet50", **dict(how)))
    assert relative_error(losses(found), losses(expected)) < 1e-4
    assert found.record("check")["parameters"] == LIBRARY["resnet50"].published_parameters


@pytest.mark.parametrize("workload", [every_kind(), every_padding(), squared_error()], ids=lambda it: it.name)
def test_layers_train_as_in_the_reference(tmp_path: Path, workload: Workload) -> None:
    """With momentum and weight decay, of biases and scales too, the weights agree to 1e-4 after three steps."""
    settings = {"learning_rate": 0.05, "momentum": 0.8, "weight_decay": 0.01}
    how: dict[str, Any] = {"batch": 6, "steps": 3, "optimizer": settings}
    expected = launch_ok(tmp_path, check_job("reference", "single", workload, **how)).weights[0]
    found = launch_ok(tmp_path, check_job("cntk", "single", workload, **how)).weights[0]
    assert weight_error(found, expected)[0] < 1e-4


def test_the_workload_of_every_kind_has_every_kind() -> None:
    """So that a new kind is not forgotten here."""
    assert {layer.kind for layer in every_kind().layers} == set(KINDS)


def test_the_network_is_the_workloads(tmp_path: Path) -> None:
    """As many parameters as are published, and the output's shape with the batch in front."""
    found = launch_ok(tmp_path, check_job("cntk", "single", "lenet5", batch=3, steps=1)).record("check")
    assert (found["parameters"], found["output_shape"]) == (LIBRARY["lenet5"].published_parameters, [3, 10])


@pytest.mark.parametrize("repeat", range(3))
def test_two_workers_give_the_weights_of_the_oracle(tmp_path: Path, repeat: int) -> None:
    """Each worker holds what one process computes from both shards, and says the loss of its own batch."""
    how: dict[str, Any] = {"batch": 8, "steps": 5, "seed": repeat}
    oracle = launch_ok(tmp_path, check_job("reference", "single", "lenet5", options={"shards": 2}, **dict(how)))
    job = check_job("cntk", "allreduce", "lenet5", workers=2, **dict(how))
    result = launch_ok(tmp_path, job, workers=2)
    assert max(weight_error(result.weights[rank], oracle.weights[0])[0] for rank in range(2)) < 1e-4
    assert relative_error(losses(result), losses(oracle)) < 1e-4
    assert losses(result, worker=1) != losses(result, worker=0)


@pytest.mark.parametrize("strategy", DISTRIBUTED)
def test_one_worker_over_mpi_trains_like_one_alone(tmp_path: Path, strategy: str) -> None:
    """The baseline of a scaling curve; with nobody to talk to, there is nothing to quantise or to filter."""
    alone = launch_ok(tmp_path, check_job("cntk", "single", "lenet5", steps=3))
    over_mpi = launch_ok(tmp_path, check_job("cntk", strategy, "lenet5", steps=3))
    assert losses(over_mpi) == losses(alone)


@pytest.mark.parametrize(("strategy", "options"), [("onebit", {}), ("block_momentum", {"block_size": 32})])
def test_inexact_strategies_lower_the_loss(tmp_path: Path, strategy: str, options: dict[str, Any]) -> None:
    """On one batch per worker, seen again and again; the workers end with the same weights."""
    job = check_job("cntk", strategy, "lenet5", workers=2, batch=8, steps=40, options=options)
    job["loader"]["distinct_batches"] = 1
    result = launch_ok(tmp_path, job, workers=2)
    for worker in range(2):
        found = losses(result, worker)
        assert np.mean(found[-5:]) < 0.5 * np.mean(found[:5])
    assert weight_error(result.weights[0], result.weights[1])[0] < 1e-6


def test_workers_train_alone_within_a_block(tmp_path: Path) -> None:
    """They differ after two steps of 16 samples in a block of 64."""
    how: dict[str, Any] = {"workers": 2, "batch": 8, "steps": 2, "options": {"block_size": 64}}
    result = launch_ok(tmp_path, check_job("cntk", "block_momentum", "lenet5", **how), workers=2)
    assert weight_error(result.weights[0], result.weights[1])[0] > 1e-3


def test_more_bits_come_nearer_to_the_exact_gradient(tmp_path: Path) -> None:
    """With one bit the weights of five steps are half their size away from the oracle's, with 16 a twentieth."""
    how: dict[str, Any] = {"batch": 8, "steps": 5}
    oracle = launch_ok(tmp_path, check_job("reference", "single", "lenet5", options={"shards": 2}, **how)).weights[0]
    job = check_job("cntk", "onebit", "lenet5", workers=2, options={"bits": 16}, **how)
    assert weight_error(launch_ok(tmp_path, job, workers=2).weights[0], oracle)[0] < 0.1


def test_arrays_are_loaded(tmp_path: Path) -> None:
    """For several epochs, with a batch that leaves a rest."""
    result = launch_ok(tmp_path, timing_job("cntk", "single", "lenet5", loader=digits(tmp_path), batch=5, steps=8))
    assert np.isfinite(result.record("steps")["loss"])


@pytest.mark.parametrize(("workers", "processes"), [(1, 0), (2, 2)])
def test_photographs_are_loaded_by_all_workers(tmp_path: Path, workers: int, processes: int) -> None:
    """In the training thread, and in threads beside it."""
    how: dict[str, Any] = {"input_shape": (3, SIDE, SIDE), "classes": 10, "batch": 2, "workers": workers}
    strategy = "allreduce" if workers > 1 else "single"
    job = timing_job("cntk", strategy, "lenet5", loader=photos(tmp_path, processes=processes), steps=8, **how)
    result = launch_ok(tmp_path, job, workers=workers)
    for rank in range(workers):
        assert np.isfinite(result.record("steps", f"worker-{rank}")["loss"])


@pytest.mark.parametrize(("workers", "processes"), [(1, 0), (2, 2)])
def test_a_broken_photograph_ends_all_workers_and_is_named(tmp_path: Path, workers: int, processes: int) -> None:
    """The last worker meets it first; one that waits for it in an all-reduce is ended long before the time limit."""
    broken = int(epoch_indices(SAMPLES, 0, 0, workers - 1, workers)[0])
    how: dict[str, Any] = {"input_shape": (3, SIDE, SIDE), "classes": 10, "batch": 2, "workers": workers}
    loader = photos(tmp_path, processes=processes, broken=broken)
    strategy = "allreduce" if workers > 1 else "single"
    result = launch(tmp_path, timing_job("cntk", strategy, "lenet5", loader=loader, steps=8, **how), workers=workers)
    assert not result.outcome.ok
    assert str(tmp_path / f"{broken}.jpg") in result.record("error", f"worker-{workers - 1}")["message"]
    assert result.outcome.wall_s < 60


def test_a_killed_worker_ends_the_launch(tmp_path: Path) -> None:
    """Long before its steps are over, and before the time limit."""
    job = timing_job("cntk", "allreduce", "lenet5", workers=2, steps=10**6)
    killer = threading.Thread(target=_kill_when_warm, args=(tmp_path / "launch-0" / "worker-1.jsonl",))
    killer.start()
    result = launch(tmp_path, job, workers=2, time_limit_s=90)
    killer.join()
    assert not result.outcome.ok
    assert "time limit" not in (result.outcome.reason or "")


def _kill_when_warm(records: Path) -> None:
    """Kill the process that writes ``records`` once it has trained."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        lines = [json.loads(line) for line in records.read_text().splitlines()] if records.exists() else []
        if any(line["kind"] == "warmup" for line in lines):
            os.kill(lines[0]["pid"], signal.SIGKILL)
            return
        time.sleep(0.05)


def test_another_mpi_than_the_launchers_is_noticed() -> None:
    """Instead of two workers that each train alone and call it a race."""
    alone = SimpleNamespace(rank=lambda: 0, num_workers=lambda: 1)
    learners = import_module("steptime.frameworks.cntk.learners")
    cntk = SimpleNamespace(distributed=SimpleNamespace(Communicator=alone))
    context = ProcessContext({"STEPTIME_RANK": "1", "STEPTIME_WORKERS": "2"}, "")
    with pytest.raises(RuntimeError, match=r"worker 0 of 1 where the launcher says 1 of 2"):
        learners.distributed(cntk, None, {"strategy": "allreduce"}, context)


@pytest.mark.parametrize(
    ("fields", "hint"), [({"precision": "bf16"}, "precision to fp32"), ({"device": "cuda"}, "cpu")]
)
def test_what_cntk_lacks_is_refused(tmp_path: Path, fields: dict[str, str], hint: str) -> None:
    """Instead of training otherwise."""
    result = launch(tmp_path, check_job("cntk", "single", "lenet5", steps=1, **fields))
    assert hint in result.record("error")["message"]


def test_the_environment_is_finished_where_the_compiler_is_only_cc(tmp_path: Path) -> None:
    """Both libraries are made, and found by their names."""
    interpreter = interpreter_for("cntk")
    programs, libraries = tmp_path / "programs", tmp_path / "lib/python3.6/site-packages/cntk/libs"
    programs.mkdir()
    for name in ("cc", "as", "ld"):
        found = subprocess.run(["which", name], capture_output=True, text=True, check=False).stdout.strip()
        if not found:
            pytest.skip(f"there is no {name} on this machine")
        (programs / name).symlink_to(found)
    libraries.mkdir(parents=True)
    (tmp_path / "lib/libmpi.so.40").symlink_to(interpreter.parent.parent / "lib/libmpi.so.40")
    command = [str(interpreter), "-I", str(FINISH), str(tmp_path)]
    done = subprocess.run(command, env={"PATH": str(programs)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in libraries.iterdir()) == ["libmpi.so.12", "libmpi_cxx.so.1"]


def test_a_machine_without_a_compiler_is_told_how_to_get_one(tmp_path: Path) -> None:
    """The command is marked as the one that would help."""
    command = [sys.executable, "-I", str(FINISH), str(tmp_path)]
    done = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("fix: sudo apt-get install gcc")


def test_only_what_has_a_python_3_6_is_advised() -> None:
    """Which uv, unlike pyenv, has not."""
    commands = how_to_get("3.6", [])
    assert "pyenv install 3.6" in commands
    assert not any(command.startswith("uv") for command in commands)
