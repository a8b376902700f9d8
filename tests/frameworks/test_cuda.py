"""What every framework must do on a CUDA device; ``pytest --device cuda`` runs it on a machine that has one.

Each test is one claim of docs/gpu.md. Frameworks without a build for the devices are
none of its cases.
"""

import re
from itertools import pairwise
from pathlib import Path
from statistics import mean

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
from simulated import a_launch, a_trial, a_worker

from steptime.analysis.resources import resources_of
from steptime.catalog.accelerators import Accelerator, Accelerators, find_accelerators
from steptime.catalog.choices import strategy_named
from steptime.catalog.manifest import load_manifests
from steptime.catalog.workloads.costs import memory_bytes
from steptime.execution.jobs import AblationSchedule, ablation_job
from steptime.results.gpus import GpuSamples
from steptime.results.json_form import IntervalOverLaunches

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


TORCH = [name for name, each in MANIFESTS.items() if "torch" in each.libraries]


@pytest.mark.parametrize("name", TORCH)
def test_cudnn_searches_kernels_in_timed_launches_and_in_no_check(tmp_path: Path, name: str) -> None:
    timed = launch_ok(tmp_path / "timed", timing_job(name, "single", "lenet5", steps=5, device="cuda"))
    checked = launch_ok(tmp_path / "checked", check_job(name, "single", "lenet5", steps=1, device="cuda"))
    found = [each.record("session")["facts"]["cudnn_benchmark"] for each in (timed, checked)]
    assert found == [True, False]


@pytest.mark.parametrize("name", TORCH)
def test_the_memory_of_a_batch_is_predicted_from_that_of_a_smaller_one(tmp_path: Path, name: str) -> None:
    """As `predict` does it: the estimate times what a measured batch took over its estimate."""
    workload, peaks = library_workload("gpt2_tiny"), {}
    for batch in (32, 128):
        job = timing_job(name, "single", "gpt2_tiny", batch=batch, steps=5, device="cuda")
        seen = launch_ok(tmp_path / str(batch), job)
        peaks[batch] = seen.record("threads")["device_peak_bytes"] / memory_bytes(workload, batch)
    assert peaks[32] == pytest.approx(peaks[128], rel=0.1)


@pytest.mark.parametrize("seconds", [0.5, 8.0])
def test_energy_is_known_of_long_launches_alone(tmp_path: Path, seconds: float) -> None:
    """Whose bounds hold the mean power that the driver gives meanwhile."""
    job = timing_job("pytorch", "single", "gpt2_tiny", batch=32, steps=10, device="cuda")
    job["schedule"] = {**job["schedule"], "seconds": seconds, "max_steps": 10**6}
    with GpuSamples() as samples:
        seen = launch_ok(tmp_path, job)
    steps = seen.record("steps")
    noise = samples.noise(steps["origin_s"], steps["ends_s"][-1], 1)
    watts = [states[0].power_w for at_s, states in samples._found if steps["origin_s"] <= at_s <= steps["ends_s"][-1]]
    one = a_trial(device="cuda")
    workers = [a_worker([0.1, 0.2], 0)]
    found = resources_of(one, [a_launch(one, 0, workers=workers, noise=noise)], IntervalOverLaunches(1.0, 1.0, 1.0))
    joules = found.joules_per_sample
    if seconds < 1.0:
        assert joules.value is None
        assert "moves every" in found.not_read
    else:
        assert 0.95 * joules.low <= mean(watts) <= 1.05 * joules.high


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
