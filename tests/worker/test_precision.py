"""What a framework really computes in is read off a product, and a mismatch ends the launch."""

import os

import numpy as np
import pytest

from steptime.worker.precision import (
    PROBE,
    computed_in,
    identity_kernel,
    limit_libraries,
    precision_of,
    probe_size,
    require_precision,
)


@pytest.mark.parametrize(
    ("value", "element_type", "precision"),
    [
        (PROBE, "float32", "fp32"),
        (PROBE, "torch.float32", "fp32"),
        (PROBE + 2.0**-17, "float32", "fp32"),
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


def test_a_library_may_compute_in_fp32_where_tf32_is_allowed():
    products = {"matrix products": (PROBE, "float32"), "convolutions": (1.0, "float32")}
    assert require_precision("tf32", products) == "tf32"
    assert computed_in(products) == "convolutions tf32, matrix products fp32"
    with pytest.raises(RuntimeError, match="to be tf32, and the framework computed convolutions in bf16"):
        require_precision("tf32", {"convolutions": (1.0, "bfloat16")})


def test_products_on_a_gpu_are_large_enough_for_its_libraries_to_use_tf32():
    size = probe_size("cuda")
    assert (size.matrix, size.channels, size.kernel) == (1024, 256, 3)
    assert identity_kernel(size)[:, :, 1, 1].tolist() == np.eye(256).tolist()
    assert identity_kernel(size).sum() == 256


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
