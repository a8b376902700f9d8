"""Computing parted into layers, on shared cores and on other devices."""

import numpy as np
import pytest

from steptime.catalog.workloads.costs import costs
from steptime.catalog.workloads.table import build_workload
from steptime.model.compute import DEVICES, layer_seconds, layer_shares, pass_seconds, transfer, turns

RESNET = costs(build_workload("resnet50")).layers
FLOPS = [layer.forward_flops + layer.backward_flops for layer in RESNET]
TRAFFIC = [6.0 * layer.activation_bytes for layer in RESNET]
PUBLISHED = {("p100", 32): 195.0, ("p100", 64): 219.0, ("k80", 32): 49.5, ("k80", 64): 51.9}
"""Images per second of ResNet-50 in TensorFlow's benchmarks of 2017, by device and batch."""


def _shares():
    return layer_shares([layer.forward_flops for layer in RESNET], [layer.backward_flops for layer in RESNET], TRAFFIC)


def test_shares_of_layers_add_up():
    assert (_shares().forward.sum(), _shares().backward.sum()) == pytest.approx((1.0, 1.0))


def test_the_backward_pass_is_over_with_the_first_layer():
    passed = _shares().passed

    assert passed[0] == 1.0
    assert (np.diff(passed) <= 0).all()


def test_the_forward_pass_begins_with_the_first_layer():
    reached = _shares().reached

    assert reached[0] == 0.0
    assert (np.diff(reached) >= 0).all()


def test_layers_without_work_share_a_pass_evenly():
    assert layer_shares([0, 0], [0, 0], [0, 0]).forward == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize(("workers", "cores", "factor"), [(1, 2, 1), (2, 2, 1), (3, 2, 2), (4, 2, 2), (5, 2, 3)])
def test_workers_take_whole_turns_on_cores(workers, cores, factor):
    assert turns(workers, cores) == factor


def test_the_same_device_takes_as_long_without_doubt():
    found = transfer(FLOPS, TRAFFIC, DEVICES["v100"], DEVICES["v100"])

    assert (found.low, found.value, found.high) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("batch", [32, 64])
def test_published_speeds_of_two_devices_lie_within_what_is_stated(batch):
    found = transfer(FLOPS, TRAFFIC, DEVICES["p100"], DEVICES["k80"])

    assert found.low < PUBLISHED["p100", batch] / PUBLISHED["k80", batch] < found.high


def test_going_there_and_back_changes_nothing():
    there = transfer(FLOPS, TRAFFIC, DEVICES["p100"], DEVICES["a100-80gb"]).value
    back = transfer(FLOPS, TRAFFIC, DEVICES["a100-80gb"], DEVICES["p100"]).value

    assert there * back == pytest.approx(1.0)


def test_half_precision_uses_tensor_cores_where_there_are_any():
    single, half = (
        transfer(FLOPS, [0.0] * len(FLOPS), DEVICES["p100"], DEVICES["v100"], precision).value
        for precision in ("fp32", "bf16")
    )

    assert half < single


def test_the_layers_of_a_step_add_up_to_what_was_measured():
    parts = layer_seconds(3.0, [1e9, 2e9, 0], [1e6, 1e6, 1e9], 1e9, 1e9)
    assert parts.sum() == pytest.approx(3.0)
    assert parts == pytest.approx(np.array([1, 2, 1]) * 0.75)


def test_a_pass_is_affine_in_the_batch():
    assert pass_seconds(np.array([1, 100]), 0.5, 1e-3) == pytest.approx([0.501, 0.6])
