"""Chainer's settings take effect, and what it lacks is refused; what it trains, tests/contract looks at."""

import subprocess
from pathlib import Path

import pytest
from launching import LaunchResult, check_job, interpreter_for, launch, launch_ok, weight_errors

from steptime.catalog.manifest import load_manifests

pytestmark = pytest.mark.framework("chainer")


def test_a_communicator_for_other_devices_is_refused(tmp_path: Path) -> None:
    """The message lists what works here."""
    job = check_job("chainer", "allreduce", "lenet5", steps=1, options={"communicator": "pure_nccl"})
    result = launch(tmp_path, job)
    assert "choices: auto, naive" in result.record("error")["message"]


def test_a_precision_that_chainer_lacks_is_refused(tmp_path: Path) -> None:
    """Instead of training in another one."""
    result = launch(tmp_path, check_job("chainer", "single", "lenet5", steps=1, precision="bf16"))
    assert "set precision to fp32" in result.record("error")["message"]


def test_double_buffering_without_nccl_is_refused(tmp_path: Path) -> None:
    """The message names the communicator that it needs; updating one step late must not happen unsaid."""
    job = check_job("chainer", "allreduce", "lenet5", steps=1, options={"double_buffering": True})
    result = launch(tmp_path, job)
    assert "needs ChainerMN's communicator pure_nccl" in result.record("error")["message"]


def test_the_tier_tuned_computes_with_ideep_where_it_is_installed(tmp_path: Path) -> None:
    """The fact is read back from Chainer; the weights are those of the tier documented but for rounding."""
    settings = {"learning_rate": 0.02, "momentum": 0.9, "weight_decay": 0.01}
    found: dict[str, LaunchResult] = {}
    for tuning in ("documented", "tuned"):
        options = load_manifests()["chainer"].tier_options(tuning, "allreduce", "cpu")
        job = check_job("chainer", "allreduce", "lenet5", workers=2, options=options, optimizer=settings)
        found[tuning] = launch_ok(tmp_path, job, workers=2)
    used = {tuning: result.record("session")["facts"]["ideep"] for tuning, result in found.items()}
    assert used == {"documented": "not used", "tuned": installed_ideep()}
    for rank in range(2):
        assert max(weight_errors(found["tuned"].weights[rank], found["documented"].weights[rank]).values()) < 1e-5


def installed_ideep() -> str:
    """The version of iDeep in Chainer's environment, or what the adapter says where there is none."""
    code = "import importlib; print(importlib.import_module('ideep4py').__version__)"
    command = [str(interpreter_for("chainer")), "-c", code]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "not used"
