"""CNTK trains what the reference trains: alone, over MPI, and from files."""

import json
import os
import shutil
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
from launching import (
    LaunchResult,
    check_job,
    interpreter_for,
    launch,
    launch_ok,
    relative_error,
    timing_job,
    weight_error,
)
from system_packages import install_command

from steptime.catalog.manifest import load_manifests
from steptime.environments.spec import how_to_get
from steptime.worker.process_context import ProcessContext

pytestmark = pytest.mark.framework("cntk")

DISTRIBUTED = ["allreduce", "onebit", "block_momentum"]
FINISH = load_manifests()["cntk"].folder / "finish.py"


def losses(result: LaunchResult, worker: int = 0) -> list[float]:
    """The losses of a check by one worker."""
    found: list[float] = result.record("check", f"worker-{worker}")["losses"]
    return found


@pytest.mark.parametrize("repeat", range(3))
def test_two_workers_give_the_weights_of_the_oracle(tmp_path: Path, repeat: int) -> None:
    """Each worker holds what one process computes from both shards, and says the loss of its own batch."""
    how: dict[str, Any] = {"batch": 8, "steps": 5, "seed": repeat}
    oracle = launch_ok(
        tmp_path, check_job("reference", "single", "lenet5", options={"shards": 2}, **dict(how)), preloaded=True
    )
    job = check_job("cntk", "allreduce", "lenet5", workers=2, **dict(how))
    result = launch_ok(tmp_path, job, workers=2)
    assert max(weight_error(result.weights[rank], oracle.weights[0])[0] for rank in range(2)) < 1e-4
    assert relative_error(losses(result), losses(oracle)) < 1e-4
    assert losses(result, worker=1) != losses(result, worker=0)


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
    oracle = check_job("reference", "single", "lenet5", options={"shards": 2}, **how)
    expected = launch_ok(tmp_path, oracle, preloaded=True).weights[0]
    job = check_job("cntk", "onebit", "lenet5", workers=2, options={"bits": 16}, **how)
    assert weight_error(launch_ok(tmp_path, job, workers=2).weights[0], expected)[0] < 0.1


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
    with pytest.raises(RuntimeError, match=r"worker 0 of 1, the launcher 1 of 2"):
        learners.distributed_learner(cntk, None, {"strategy": "allreduce"}, context)


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
        found = shutil.which(name)
        if found is None:
            pytest.skip(f"missing {name}: {install_command(['gcc', 'libc6-dev'])}")
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


@pytest.mark.parametrize("pack_mb", [0.0, 0.125])
def test_the_pack_of_gradients_is_as_large_as_asked_for_and_changes_nothing(tmp_path: Path, pack_mb: float) -> None:
    """The threshold is read back from CNTK; LeNet-5 has one gradient of 188 KiB and nine small ones."""
    oracle = check_job("reference", "single", "lenet5", steps=2, options={"shards": 2})
    job = check_job("cntk", "allreduce", "lenet5", steps=2, workers=2, options={"pack_mb": pack_mb})
    result = launch_ok(tmp_path, job, workers=2)
    assert result.record("session")["facts"]["pack_mb"] == pack_mb
    assert weight_error(result.weights[1], launch_ok(tmp_path, oracle, preloaded=True).weights[0])[0] < 1e-4
