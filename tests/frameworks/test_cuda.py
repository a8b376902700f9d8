"""What every framework must do on a CUDA device; ``pytest --device cuda`` runs it on a machine that has one.

Nothing here was ever run: no machine of the project has had a GPU. Each test is one claim of docs/gpu.md.
"""

from itertools import pairwise
from pathlib import Path

import pytest
from image_files import digits
from launching import check_job, launch, launch_ok, library_workload, timing_job, trial_of

from steptime.catalog.accelerators import find_accelerators
from steptime.catalog.manifest import load_manifests
from steptime.runner.jobs import AblationSchedule, ablation_job
from steptime.runner.preparation import ready_interpreter

pytestmark = pytest.mark.cuda
MANIFESTS = {name: manifest for name, manifest in load_manifests().items() if manifest.cuda}
PRECISIONS = [(name, each) for name, manifest in MANIFESTS.items() for each in manifest.cuda_precisions]
_CLOSE = {"fp32": 1e-3, "tf32": 1e-2, "fp16": 1e-2, "bf16": 5e-2}
"""Of a first loss, relative to the reference's."""


@pytest.fixture(autouse=True)
def in_the_cuda_environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launch in the framework's environment for CUDA, or skip the test with what is missing."""
    found = find_accelerators()
    if not len(found):
        pytest.skip("no CUDA device on this machine")
    name = request.getfixturevalue("name")
    interpreter = ready_interpreter(name, device="cuda", accelerators=found)
    if interpreter is None:
        if load_manifests()[name].cuda_build(found) is None:
            pytest.skip(load_manifests()[name].no_cuda_reason(found))
        pytest.skip(f"no environment: steptime env create {name} --device cuda")
    monkeypatch.setenv(f"STEPTIME_TEST_PYTHON_{name.upper()}", str(interpreter))


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
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    result = launch(tmp_path, check_job(name, "single", "lenet5", steps=1, device="cuda"))

    assert not result.outcome.ok
