from dataclasses import replace

import numpy as np
import pytest
from world import KEY, World, a_profile, asked, observed

from steptime.predict.profile import Machine
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
