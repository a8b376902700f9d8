from dataclasses import replace

import numpy as np
import pytest
from world import KEY, World, a_profile, asked, observed

from steptime.fitting.profile import Machine, read_profile, write_profile
from steptime.predict.targets import measured_device

CUDA = replace(KEY, device="cuda")


def on(gpu: str | None):
    """A profile of one worker of a device."""
    machine = Machine(cpu=None, cores=8, gpus=1, gpu=gpu)
    observations = observed(World(machine=machine), 1, [(1, 32), (1, 64)], replace(CUDA, strategy="single"))
    return a_profile(observations, machine=machine)


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("Tesla V100-SXM2-16GB", "v100"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA H200", "h200"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 3090", "rtx3090"),
        ("NVIDIA GeForce RTX 2080 Ti", "rtx2080ti"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA L40S", None),
        ("something else", None),
        (None, None),
    ],
)
def test_a_device_is_known_by_the_name_of_its_driver(driver, name):
    found = measured_device(Machine(cpu=None, cores=1, gpus=1, gpu=driver))
    assert (found.name if found else None) == name


def test_a_quicker_device_takes_less_time_with_more_doubt():
    profile = on("Tesla V100-SXM2-16GB")
    here, there = asked(profile, 1, "batch_per_worker=64"), asked(profile, 1, "batch_per_worker=64", "device=h200")
    assert there.step_s.value < here.step_s.value
    assert np.log(there.step_s.high / there.step_s.low) > 0.8 > np.log(here.step_s.high / here.step_s.low)


def test_the_device_that_was_measured_is_not_in_doubt():
    profile = on("Tesla V100-SXM2-16GB")
    here, same = asked(profile, 1, "batch_per_worker=64"), asked(profile, 1, "batch_per_worker=64", "device=v100")
    assert same.step_s.value == pytest.approx(here.step_s.value, rel=1e-6)


def test_a_device_without_a_data_sheet_relates_to_no_other():
    assert "data sheets" in asked(on("something else"), 1, "device=h200").refused


def test_a_processor_says_nothing_of_a_device():
    assert "cuda" in asked(a_profile(observed(World(), 1)), 2, "device=h200").refused


GPT2 = replace(CUDA, strategy="single", workload="gpt2", input_shape=(1024,), classes=50257, precision="bf16")
"""Of 124 million parameters: with batch 8 PyTorch allocated 8.70 GB at its most on an H100, on which 92 fit."""


def gpt2_of(device_bytes):
    """A profile of it with batch 8."""
    machine = Machine(cpu=None, cores=16, gpus=1, gpu="NVIDIA H100 80GB HBM3")
    measured = observed(World(machine=machine), 1, [(1, 4), (1, 8)], GPT2)
    peaks = [device_bytes and device_bytes / 2, device_bytes]
    return a_profile(
        [replace(each, device_bytes=peak) for each, peak in zip(measured, peaks, strict=True)], machine=machine
    )


@pytest.mark.parametrize(("batch", "fits"), [(92, True), (128, False), (192, False)])
def test_what_fits_a_device_follows_from_the_memory_that_was_measured(batch, fits):
    refused = asked(gpt2_of(8.70e9), 1, f"batch_per_worker={batch}").refused

    assert (refused is None or "of memory" not in refused) == fits


def test_the_batch_that_may_fit_is_named():
    assert "batch_per_worker=96 may fit" in asked(gpt2_of(8.70e9), 1, "batch_per_worker=128").refused


@pytest.mark.parametrize(("device_bytes", "fits"), [(None, True), (12e9, False)])
def test_measured_memory_counts_more_than_its_estimate(device_bytes, fits):
    refused = asked(gpt2_of(device_bytes), 1, "batch_per_worker=80").refused

    assert (refused is None or "of memory" not in refused) == fits


@pytest.mark.parametrize("device_bytes", [None, 8.7e9])
def test_a_profile_keeps_measured_memory_and_writes_none_that_is_unknown(tmp_path, device_bytes):
    path = tmp_path / "gpt2.profile.json"
    write_profile(gpt2_of(device_bytes), path)

    assert ("device_bytes" in path.read_text()) == (device_bytes is not None)
    assert read_profile(path).groups[0].measured[-1].device_bytes == device_bytes
