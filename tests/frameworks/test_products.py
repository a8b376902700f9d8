"""Every framework multiplies a probe as its steps multiply, and the record keeps the precision that it showed."""

from pathlib import Path

import pytest
from launching import check_job, launch_ok, relative_error
from layer_workloads import grouped_tokens


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


@pytest.mark.framework
@pytest.mark.parametrize("framework", ["pytorch", "tensorflow", "jax"])
def test_tokens_too_are_computed_in_the_precision_of_the_job(tmp_path: Path, framework: str) -> None:
    """The first loss is nearly that of fp32, and not it: bf16 keeps eight bits of each factor."""
    full, mixed = (
        launch_ok(tmp_path, check_job(framework, "single", grouped_tokens(), steps=1, precision=each), preloaded=True)
        for each in ("fp32", "bf16")
    )
    losses = [result.record("check")["losses"][:1] for result in (mixed, full)]
    assert 1e-6 < relative_error(*losses) < 2e-2
