"""What every framework must do on a CUDA device; ``pytest --device cuda`` runs it on a machine that has one.

Each test is one claim of docs/gpu.md. Frameworks without a build for the devices are
none of its cases.
"""

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from image_files import digits
from launching import (
    TOLERANCES,
    check_job,
    interpreter_for,
    launch,
    launch_ok,
    library_workload,
    timing_job,
    trial_of,
    weight_error,
)

from steptime.catalog.accelerators import Accelerator, Accelerators, find_accelerators
from steptime.catalog.choices import strategy_named
from steptime.catalog.manifest import load_manifests
from steptime.runner.jobs import AblationSchedule, ablation_job

pytestmark = pytest.mark.cuda
FOUND = find_accelerators()
_PLANNED = FOUND if len(FOUND) else Accelerators((Accelerator("a GPU", capability=(8, 0)),), "580.65.06")
"""The devices of this machine, or one that all builds run on, by which it is known what would be run."""
MANIFESTS = {name: each for name, each in load_manifests().items() if each.cuda and each.cuda_build(_PLANNED)}
PRECISIONS = [(name, each) for name, manifest in MANIFESTS.items() for each in manifest.cuda_precisions]
STRATEGIES = [
    (name, strategy, min(len(_PLANNED), 2, support.max_workers or 2))
    for name, manifest in MANIFESTS.items()
    for strategy, support in manifest.strategies.items()
    if support.min_workers <= len(_PLANNED)
]
"""Framework, strategy and as many workers as it and the devices allow, two at most."""
_CLOSE = {"fp32": 1e-3, "tf32": 1e-2, "fp16": 1e-2, "bf16": 5e-2}
"""Of a first loss, relative to the reference's."""


@pytest.fixture(autouse=True)
def on_a_device() -> None:
    """Skip the test where there is no device."""
    if not len(FOUND):
        pytest.skip("no CUDA device on this machine")


@pytest.mark.parametrize("name", [name for name, each in load_manifests().items() if name not in MANIFESTS])
def test_a_framework_that_is_left_out_says_why(name: str) -> None:
    manifest = load_manifests()[name]
    assert manifest.no_cuda_reason(FOUND)


@pytest.mark.parametrize(("name", "strategy", "workers"), STRATEGIES)
def test_a_strategy_on_devices_trains_as_on_processors(tmp_path: Path, name: str, strategy: str, workers: int) -> None:
    """With the same weights and batches; where workers do not wait for each other, it trains at all."""
    servers = 1 if strategy_named(strategy).servers else 0
    how = {"workers": workers, "servers": servers}
    job = check_job(name, strategy, "lenet5", workers=workers, device="cuda")
    seen = launch_ok(tmp_path / "device", job, **how)
    losses = seen.record("check")["losses"]
    assert all(np.isfinite(losses))
    if strategy_named(strategy).synchronous:
        truth = launch_ok(tmp_path / "processor", {**job, "device": "cpu"}, **how)
        right = truth.record("check")["losses"]
        assert abs(losses[0] - right[0]) < _CLOSE["fp32"] * right[0]
        rank = min(seen.weights)
        assert weight_error(seen.weights[rank], truth.weights[rank])[0] < 10 * TOLERANCES["fp32"]["weights"]


@pytest.mark.parametrize(("name", "precision"), PRECISIONS)
def test_a_device_computes_the_reference_first_loss_in_the_precision_of_the_job(
    tmp_path: Path, name: str, precision: str
) -> None:
    truth = launch_ok(tmp_path / "reference", check_job("reference", "single", "lenet5", steps=3))

    seen = launch_ok(tmp_path / name, check_job(name, "single", "lenet5", steps=3, device="cuda", precision=precision))

    assert seen.record("session")["facts"]["precision"] == precision
    right, found = (each.record("check")["losses"][0] for each in (truth, seen))
    assert abs(found - right) < _CLOSE[precision] * right


@pytest.mark.parametrize("name", MANIFESTS)
def test_steps_on_a_device_are_timed_and_end_one_after_the_other(tmp_path: Path, name: str) -> None:
    job = timing_job(name, "single", "lenet5", batch=32, warmup_steps=5, steps=50, device="cuda")

    ends = launch_ok(tmp_path, job).record("steps")["ends_s"]

    assert len(ends) >= 50
    assert all(later > earlier for earlier, later in pairwise(ends))


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_breakdown_on_a_device_copies_batches_as_a_step_does(tmp_path: Path, name: str) -> None:
    workload = library_workload("lenet5")
    trial = trial_of(name, "single", workload, batch=4, device="cuda")
    schedule = AblationSchedule(warmup_steps=3, seconds=0.5, min_blocks=2, max_blocks=2, max_steps=20)

    seen = launch_ok(tmp_path, ablation_job(trial, workload, digits(tmp_path), schedule)).record("ablation")

    assert {"forward", "backward", "h2d", "step"} <= set(seen["stages"])


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_worker_without_a_device_of_its_own_is_refused(tmp_path: Path, name: str, monkeypatch) -> None:
    """By its build for the device, which is chosen while the device is in sight."""
    python = interpreter_for(name, device="cuda")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    result = launch(tmp_path, check_job(name, "single", "lenet5", steps=1, device="cuda"), python=python)

    assert not result.outcome.ok
    assert re.search("device|GPU", result.record("error")["message"])
