"""Caffe trains what the reference trains: alone, over MPI in both ways, and from files."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from image_files import SIDE, photos
from launching import LaunchResult, check_job, interpreter_for, launch, launch_ok, timing_job, weight_error
from layer_workloads import every_kind

from steptime.catalog.manifest import load_manifests
from steptime.catalog.workloads.layers import Network, Workload
from steptime.execution.run_folder import make_run_folder

pytestmark = pytest.mark.framework("caffe")

REDUCTIONS = ["after", "layerwise"]
SETTINGS = {"learning_rate": 0.05, "momentum": 0.8, "weight_decay": 0.01}

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
KEEPING = """
import json, os, stat, tempfile
os.environ["GLOG_minloglevel"] = "2"
os.environ["TMPDIR"] = os.getcwd()
from steptime.frameworks.caffe.network import WorkloadSolver
from steptime.worker.weights import initial_weights

with open("job.json") as file:
    job = json.load(file)
before = set(os.listdir("."))
solvers = [WorkloadSolver(job["workload"], 6, job["optimizer"], 1.0, 1) for _ in range(2)]
solvers[0].set_weights(initial_weights(job["workload"]["layers"], 0))
solvers[1].set_state(solvers[0].state())
made = [os.path.abspath(name) for name in sorted(set(os.listdir(".")) - before)]
modes = [stat.S_IMODE(os.stat(folder).st_mode) for folder in made]
left = [os.listdir(folder) for folder in made]
for solver in solvers:
    solver.close()
print(json.dumps([made, modes, left, sorted(set(os.listdir(".")) - before)]))
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


def surplus_window() -> Workload:
    """Rounding up fits the width, but along the height Caffe would keep a window that lies beyond the image."""
    net = Network((1, 5, 5))
    x = net.max_pool("far", net.input, (1, 2), stride=(5, 2), ceil_mode=True)
    net.linear("output", net.flatten("flatten", x), 3)
    return net.finish("surplus_window", classes=3)


def within(folder: Path, job: dict[str, Any], script: str) -> str:
    """Run a script beside a job in a run folder in Caffe's own Python; return what it printed."""
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


def test_a_pool_that_caffe_would_round_otherwise_is_refused(tmp_path: Path) -> None:
    """With the layer's name, instead of training another workload."""
    result = launch(tmp_path, check_job("caffe", "single", surplus_window(), steps=1))
    assert "layer far" in result.record("error")["message"]


def test_dropout_repeats_with_its_seed(tmp_path: Path) -> None:
    """On equal weights and batches, the same seed drops the same values, another seed others."""
    first, again, other = json.loads(within(tmp_path, timing_job("caffe", "single", every_kind(), batch=6), DROPPING))
    assert first == again
    assert first != other


def test_files_of_a_solver_lie_in_a_private_folder_of_an_unforeseeable_name_and_are_removed(tmp_path: Path) -> None:
    job = timing_job("caffe", "single", "lenet5", batch=6)
    made, modes, left, remaining = json.loads(within(tmp_path, job, KEEPING))
    assert (modes, left, remaining) == ([0o700, 0o700], [[], []], [])
    assert not any(re.fullmatch(r"steptime-caffe-\d+", Path(folder).name) for folder in made)


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
    command = [
        sys.executable,
        "-I",
        *manifest.program_of(manifest.finish[:1]),
        str(tmp_path / "made"),
        *manifest.finish[1:],
    ]
    ended = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "apt-get, dpkg-deb" in ended.stderr
    assert "\nfix: sudo dnf install" in ended.stderr
    assert not (tmp_path / "made").exists()
