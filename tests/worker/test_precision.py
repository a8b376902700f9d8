"""What a framework really computes in is read off a product, and a mismatch ends the launch."""

import os

import pytest

from steptime.worker.precision import PROBE, limit_libraries, precision_of, require_precision


@pytest.mark.parametrize(
    ("value", "element_type", "precision"),
    [
        (PROBE, "float32", "fp32"),
        (PROBE, "torch.float32", "fp32"),
        (1.0, "torch.float32", "tf32"),
        (1.0, "bfloat16", "bf16"),
        (1.0, "torch.float16", "fp16"),
        (PROBE, "float64", "float64"),
    ],
)
def test_a_product_tells_its_precision(value, element_type, precision):
    assert precision_of(value, element_type) == precision


def test_a_product_of_another_precision_than_the_job_is_refused_by_name():
    products = {"matrix products": (PROBE, "float32"), "convolutions": (1.0, "float32")}
    with pytest.raises(RuntimeError, match="to be fp32, and the framework computed convolutions in tf32"):
        require_precision("fp32", products)


def test_products_of_the_jobs_precision_pass():
    assert require_precision("bf16", {"matrix products": (1.0, "torch.bfloat16")}) == "bf16"


@pytest.mark.parametrize(
    ("device", "precision", "variable"),
    [("cuda", "fp32", "0"), ("cuda", "bf16", "0"), ("cuda", "fp16", "0"), ("cuda", "tf32", None), ("cpu", "fp32", "1")],
)
def test_nvidias_libraries_use_tf32_only_where_the_job_says_so(monkeypatch, device, precision, variable):
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    limit_libraries({"device": device, "precision": precision})
    assert os.environ.get("NVIDIA_TF32_OVERRIDE") == variable
