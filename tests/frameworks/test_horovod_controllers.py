"""What holds for Horovod under every framework that it comes with: one build, two controllers, one meeting."""

import json
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launching import LaunchResult, Weights, check_job, interpreter_for, launch, launch_ok, timing_job, weight_error

from steptime.catalog.manifest import load_manifests
from steptime.catalog.workloads.layers import Network, Workload

FRAMEWORKS = [name for name in load_manifests() if name.startswith("horovod_")]
CONTROLLERS = ["gloo", "mpi"]
"""Of which workers under ``mpi`` cannot be forked from a process that has imported their framework."""
SETTINGS = {"learning_rate": 0.02, "momentum": 0.9, "weight_decay": 0.01}
SAMPLES = 12


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.framework(name)) for name in FRAMEWORKS])
def framework(request: pytest.FixtureRequest) -> str:
    """Each framework, skipped where its environment is missing."""
    interpreter_for(request.param)
    name: str = request.param
    return name


def normed() -> Workload:
    """A small network with filters wide enough that their channels may lie innermost, normalised and joined."""
    net = Network((16, 6, 6))
    x = net.relu("first", net.batch_norm("norm", net.conv2d("wide", net.input, 16, 3, padding=1, bias=False)))
    x = net.add("joined", [x, net.conv2d("pointwise", net.input, 16, 1)])
    net.linear("output", net.flatten("flatten", net.global_avg_pool("global", x)), 5)
    return net.finish("normed", classes=5)


def oracle(folder: Path, workload: Any, workers: int, **how: Any) -> Weights:
    """The weights that the reference computes from the batches of all workers."""
    job = check_job("reference", "single", workload, options={"shards": workers}, optimizer=SETTINGS, **how)
    return launch_ok(folder, job, preloaded=True).weights[0]


def distance(result: LaunchResult, expected: Weights) -> float:
    """How far the worst of all workers is from the oracle."""
    return max(weight_error(weights, expected)[0] for weights in result.weights.values())


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_two_workers_give_the_weights_of_the_oracle(tmp_path: Path, framework: str, controller: str) -> None:
    """With momentum and weight decay, and on both workers."""
    job = check_job(
        framework, "allreduce", normed(), workers=2, seed=3, optimizer=SETTINGS, options={"controller": controller}
    )
    result = launch_ok(tmp_path, job, workers=2, preloaded=True)
    assert sorted(result.weights) == [0, 1]
    assert distance(result, oracle(tmp_path, normed(), 2, seed=3)) < 1e-4


def test_three_workers_meet_without_fusion(tmp_path: Path, framework: str) -> None:
    """Each gradient is sent by itself, and each look for more takes its time."""
    options = {"fusion_mb": 0.0, "cycle_ms": 3.5}
    job = check_job(framework, "allreduce", normed(), workers=3, optimizer=SETTINGS, options=options)
    result = launch_ok(tmp_path, job, workers=3, preloaded=True)
    assert distance(result, oracle(tmp_path, normed(), 3)) < 1e-4
    facts = result.record("session", "worker-2")["facts"]
    assert {name: facts[name] for name in options} == options


def test_one_worker_may_be_told_to_average(tmp_path: Path, framework: str) -> None:
    """As a baseline that has Horovod in it."""
    result = launch_ok(tmp_path, check_job(framework, "allreduce", normed(), optimizer=SETTINGS), preloaded=True)
    assert distance(result, oracle(tmp_path, normed(), 1)) < 1e-4


def with_mpi_by(which: str) -> list[Any]:
    """Every framework with its own meeting, and one of them with MPI's, for what is the same code under all."""
    cases = [(name, "gloo") for name in FRAMEWORKS] + [(which, "mpi")]
    return [pytest.param(*case, marks=pytest.mark.framework(case[0]), id="-".join(case)) for case in cases]


@pytest.mark.parametrize(("framework", "controller"), with_mpi_by("horovod_tensorflow"), indirect=["framework"])
def test_a_timeline_is_written_where_it_is_asked_for(
    tmp_path: Path, framework: str, controller: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into the run folder, whatever the user's shell says to Horovod."""
    monkeypatch.setenv("HOROVOD_TIMELINE", str(tmp_path / "foreign.json"))
    monkeypatch.setenv("HOROVOD_CONTROLLER", "nonsense")
    options = {"controller": controller, "timeline": True}
    job = timing_job(framework, "allreduce", normed(), workers=2, options=options)
    result = launch_ok(tmp_path, job, workers=2, preloaded=True)
    text = (result.folder / "timeline.json").read_text().rstrip().rstrip(",")
    events = json.loads(text if text.endswith("]") else text + "]")  # Horovod may leave the end out
    assert any("ALLREDUCE" in event.get("name", "") for event in events)
    assert not (tmp_path / "foreign.json").exists()


def test_arrays_are_loaded_and_no_timeline_is_written(tmp_path: Path, framework: str) -> None:
    """By the pipeline of the framework itself."""
    images = np.random.default_rng(0).integers(0, 256, (SAMPLES, 16, 6, 6), dtype=np.uint8)
    np.savez(tmp_path / "set.npz", images=images, labels=np.arange(SAMPLES) % 5)
    transform = {"mean": [0.5] * 16, "std": [0.25] * 16}
    dataset = {"form": "arrays", "path": str(tmp_path / "set.npz"), "samples": SAMPLES, "transform": transform}
    loader = {"kind": "native", "processes": 0, "dataset": dataset}
    job = timing_job(framework, "allreduce", normed(), workers=2, batch=2, loader=loader)
    result = launch_ok(tmp_path, job, workers=2, preloaded=True)
    assert np.isfinite(result.record("steps", "worker-1")["loss"])
    assert not (result.folder / "timeline.json").exists()


@pytest.mark.parametrize(("framework", "controller"), with_mpi_by("horovod_mxnet"), indirect=["framework"])
def test_a_killed_worker_ends_the_launch(tmp_path: Path, framework: str, controller: str) -> None:
    """The other one, which waits for gradients, does not stay behind."""
    job = timing_job(
        framework, "allreduce", normed(), workers=2, warmup_steps=200_000, options={"controller": controller}
    )
    found: list[LaunchResult] = []
    running = threading.Thread(target=lambda: found.append(launch(tmp_path, job, workers=2)))
    running.start()
    victim = wait_for_session(tmp_path / "launch-0" / "worker-1.jsonl", running)
    survivor = wait_for_session(tmp_path / "launch-0" / "worker-0.jsonl", running)
    os.kill(victim, signal.SIGKILL)
    running.join(60)
    assert not running.is_alive()
    assert not found[0].outcome.ok
    assert not Path(f"/proc/{survivor}").exists()


def wait_for_session(path: Path, running: threading.Thread) -> int:
    """Return the process id of a worker that has begun to train; a launch that ends before fails the test."""
    while running.is_alive():
        lines = path.read_text().splitlines() if path.exists() else []
        if any('"session"' in line for line in lines):
            number: int = json.loads(lines[0])["pid"]
            return number
        threading.Event().wait(0.05)
    pytest.fail("the launch ended before its worker trained")


@pytest.mark.parametrize("framework", ["pytorch", "tensorflow", "mxnet"])
def test_a_build_without_a_compiler_says_what_to_install(tmp_path: Path, framework: str) -> None:
    """As a line that the making of environments shows."""
    done = build(tmp_path, f"horovod_{framework}", framework, "horovod==0.28.1", PATH=str(tmp_path))
    assert done.returncode
    assert "\nfix: apt-get install g++ make" in done.stderr


def test_a_release_whose_source_is_unknown_is_not_built(tmp_path: Path) -> None:
    """Since the changes to the source fit one release."""
    done = build(tmp_path, "horovod_pytorch", "pytorch", "horovod==0.27.0")
    assert "only horovod==0.28.1 can be built" in done.stderr


def build(folder: Path, framework: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the building program of a framework in its environment, with nothing built before."""
    if framework not in load_manifests():
        pytest.skip(f"there is no framework {framework}")
    program = load_manifests()[framework].program_of(load_manifests()[framework].finish)[0]
    return subprocess.run(
        [str(interpreter_for(framework)), "-I", program, str(folder), *arguments],
        env={**os.environ, "STEPTIME_WHEELS": str(folder), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
