"""DeepSpeed trains what the reference trains, whatever it splits over the workers."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from killing import survivors_of
from launching import LaunchResult, check_job, launch, launch_ok, relative_error, timing_job, weight_error

from steptime.catalog.workloads.layers import Network, Workload

pytestmark = pytest.mark.framework("deepspeed")

SETTINGS = {"learning_rate": 0.05, "momentum": 0.8, "weight_decay": 0.01}
TOGETHER = ["allreduce", "zero1", "zero2", "zero3"]


def images() -> Workload:
    """A small network of wide images with a shortcut, whose activations are overwritten."""
    net = Network((16, 6, 6))
    x = net.relu("first.relu", net.batch_norm("norm", net.conv2d("first", net.input, 16, 3, padding=1)))
    x = net.relu("relu", net.add("sum", [net.conv2d("second", x, 16, 1, bias=False), x]))
    net.linear("output", net.flatten("flatten", x), 5)
    return net.finish("images", classes=5)


def losses(result: LaunchResult) -> list[float]:
    """The losses of a check by worker 0."""
    found: list[float] = result.record("check")["losses"]
    return found


@pytest.mark.parametrize("strategy", TOGETHER)
def test_two_workers_give_the_weights_of_the_oracle(tmp_path: Path, strategy: str) -> None:
    """From gradients that clipping would have changed: the weights of the oracle agree to 1e-4."""
    how: dict[str, Any] = {"batch": 4, "steps": 4, "optimizer": SETTINGS}
    oracle = check_job("reference", "single", images(), options={"shards": 2}, **how)
    expected = launch_ok(tmp_path, oracle, preloaded=True).weights[0]
    result = launch_ok(
        tmp_path, check_job("deepspeed", strategy, images(), workers=2, **how), workers=2, preloaded=True
    )
    assert sorted(result.weights) == [0, 1]
    assert max(weight_error(weights, expected)[0] for weights in result.weights.values()) < 1e-4
    facts = result.record("session")["facts"]
    assert facts["zero_stage"] == TOGETHER.index(strategy)
    assert facts["gradient_clipping"] == 0.0
    assert facts["channels_last"]
    assert set(result.stderr.values()) == {""}


def test_small_buckets_change_nothing(tmp_path: Path) -> None:
    """Also where a parameter is larger than a bucket."""
    how: dict[str, Any] = {"batch": 4, "steps": 3, "workers": 2}
    found = [
        losses(
            launch_ok(
                tmp_path, check_job("deepspeed", "zero2", images(), options=options, **how), workers=2, preloaded=True
            )
        )
        for options in ({}, {"bucket_values": 500})
    ]
    assert relative_error(found[1], found[0]) < 1e-5


@pytest.mark.parametrize("strategy", ["single", "zero3"])
def test_mixed_precision_starts_from_nearly_the_same_loss(tmp_path: Path, strategy: str) -> None:
    """But not from the same: bf16 keeps eight bits of each factor."""
    how: dict[str, Any] = {"batch": 32, "steps": 1}
    full = losses(launch_ok(tmp_path, check_job("deepspeed", strategy, "lenet5", **how), preloaded=True))
    mixed = losses(
        launch_ok(tmp_path, check_job("deepspeed", strategy, "lenet5", precision="bf16", **how), preloaded=True)
    )
    assert 1e-6 < relative_error(mixed, full) < 2e-2


class Planted:
    """An object that makes a folder where it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._folder),)


@pytest.mark.parametrize("strategy", ["single", "zero3"])
def test_a_checkpoint_from_somebody_else_runs_nothing(tmp_path: Path, strategy: str) -> None:
    """Under ``engine`` older versions kept what they had pickled."""
    job, executed = check_job("deepspeed", strategy, images(), batch=4, steps=2), tmp_path / "executed"
    kept = launch_ok(tmp_path, job, script=[(1, "state", "state")], preloaded=True).folder / "state-0.npz"
    with np.load(kept, allow_pickle=False) as file:
        state = {name: file[name] for name in file.files if not name.startswith("engine")}
    np.savez(kept, **state, engine=np.frombuffer(pickle.dumps(Planted(executed)), dtype=np.uint8))

    result = launch(tmp_path, job, script=[(0, "set_state", str(kept.with_name("state")))], preloaded=True)

    assert not executed.exists()
    assert "engine/form" in result.record("error")["message"]


def test_a_launch_whose_engine_holds_weights_in_bf16_goes_on_from_a_state(tmp_path: Path) -> None:
    how: dict[str, Any] = {"batch": 8, "precision": "bf16", "options": {"mixed_precision": "engine"}}
    job = check_job("deepspeed", "zero2", "lenet5", steps=6, optimizer=SETTINGS, **how)
    job["loader"] = {"kind": "synthetic", "distinct_batches": 2}
    whole = launch_ok(tmp_path, job, script=[(4, "state", "state")], preloaded=True)

    rest = launch_ok(tmp_path, job, script=[(0, "set_state", str(whole.folder / "state"))], preloaded=True)

    assert relative_error(losses(rest)[:2], losses(whole)[4:]) < 1e-4


def test_a_killed_worker_ends_the_launch(tmp_path: Path) -> None:
    """The other one, which waits for weights, does not stay behind."""
    job = timing_job("deepspeed", "zero3", images(), workers=2, warmup_steps=1_000_000)
    assert survivors_of(tmp_path, job, "worker-1", workers=2) == []
