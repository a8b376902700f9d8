"""Every framework multiplies a probe as its steps multiply, and the record keeps the precision that it showed."""

from pathlib import Path

import pytest
from launching import check_job, launch_ok


@pytest.mark.framework
@pytest.mark.parametrize(
    ("framework", "precision"),
    [
        ("pytorch", "fp32"),
        ("pytorch", "bf16"),
        ("deepspeed", "bf16"),
        ("tensorflow", "fp32"),
        ("tensorflow", "bf16"),
        ("jax", "fp32"),
        ("chainer", "fp32"),
        ("mxnet", "fp32"),
    ],
)
def test_the_precision_of_the_job_is_found_in_its_products(tmp_path: Path, framework: str, precision: str) -> None:
    job = check_job(framework, "single", "lenet5", steps=1, precision=precision)

    result = launch_ok(tmp_path, job, preloaded=True)

    assert result.record("session")["facts"]["precision"] == precision
