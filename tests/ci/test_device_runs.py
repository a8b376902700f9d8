"""``pytest --device cuda`` ends well only where something was tested on a device."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("gpus", "code", "said"),
    [
        (
            "none",
            1,
            "did not hold  tests/frameworks/test_cuda.py::test_a_framework_that_is_left_out_says_why[caffe]: not run",
        ),
        ("h100", 0, "held          tests/frameworks/test_cuda.py::test_a_framework_that_is_left_out_says_why[mxnet]"),
    ],
)
def test_a_run_without_a_device_fails_and_one_with_it_names_what_held(gpus: str, code: int, said: str) -> None:
    """On a machine that a stand-in of NVIDIA's management library makes up; MXNet has nothing for an H100."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--device", "cuda", "-k", "left_out"]
    done = subprocess.run(
        [*command, "tests/frameworks/test_cuda.py"],
        cwd=ROOT,
        env={**os.environ, "FAKE_GPUS": gpus, "PYTHONPATH": "tests/fake_driver"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout
    assert said in done.stdout
