"""``pytest --device cuda`` ends well only where something was tested on a device, and what matters comes first."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
FILE = "tests/frameworks/test_cuda.py"
CLAIM = f"{FILE}::test_a_framework_that_is_left_out_says_why"


def on_a_device(gpus: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run one claim on a machine that a stand-in of NVIDIA's management library makes up."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--device", "cuda", "-k", "left_out"]
    env = {**os.environ, "FAKE_GPUS": gpus, "PYTHONPATH": "tests/fake_driver"}
    return subprocess.run([*command, *options, FILE], cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def test_a_run_without_a_device_fails() -> None:
    done = on_a_device("none")
    assert done.returncode == 1, done.stdout
    assert f"did not hold  {CLAIM}[caffe]: not run" in done.stdout


def test_a_run_with_a_device_names_what_held_and_goes_on_behind_what_held_on_another_day(tmp_path: Path) -> None:
    """MXNet, Caffe and others have nothing for an H100."""
    held = tmp_path / "held.txt"
    held.write_text(f"{CLAIM}[mxnet]\n")
    done = on_a_device("h100", "--held", str(held))
    assert done.returncode == 0, done.stdout
    assert f"held          {CLAIM}[caffe]" in done.stdout
    assert f"{CLAIM}[caffe] PASSED" in done.stdout
    assert f"{CLAIM}[mxnet]" not in done.stdout
    assert {f"{CLAIM}[mxnet]", f"{CLAIM}[caffe]"} < set(held.read_text().splitlines())


def test_every_claim_is_tested_by_pytorch_before_any_is_by_another_framework(request: pytest.FixtureRequest) -> None:
    plugins = request.config.pluginmanager.get_plugins()
    shared = next(each for each in plugins if getattr(each, "__file__", None) == str(ROOT / "tests/conftest.py"))
    cases = [("trains", "jax"), ("trains", "pytorch"), ("times", "jax"), ("times", "pytorch"), ("times", "mxnet")]
    items = [
        SimpleNamespace(
            nodeid=f"{claim}[{name}]",
            path=ROOT / FILE,
            callspec=SimpleNamespace(params={"name": name}),
            iter_markers=lambda _: iter(()),
        )
        for claim, name in cases
    ]
    found = [item.nodeid for item in shared._claims_first(items)]
    assert found == ["trains[pytorch]", "times[pytorch]", "trains[jax]", "times[jax]", "times[mxnet]"]
