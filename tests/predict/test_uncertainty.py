"""Intervals: what the model's error applies to, how an interval splits, and what would narrow it."""

import numpy as np
import pytest
from gpu_hosts import a_gpu_observation, a_gpu_profile
from world import World, a_profile, asked, observed


@pytest.fixture(scope="module")
def one_host():
    return a_gpu_profile(a_gpu_observation(8, 0.111, 0.030))


def test_an_interval_far_outside_is_skewed_upward(one_host):
    found = asked(one_host, 256, "workers_per_host=8", "interconnect.bandwidth=10Gbit/s").step_s

    assert np.log(found.high / found.value) > 1.5 * np.log(found.value / found.low)


def test_another_workload_errs_to_both_sides(one_host):
    found = asked(one_host, 1, "workload=alexnet").step_s

    assert np.log(found.high / found.value) == pytest.approx(np.log(found.value / found.low), rel=0.3)


def test_what_hides_behind_computing_widens_no_interval(one_host):
    quick, slow = (
        asked(one_host, 64, "workers_per_host=8", f"interconnect.bandwidth={rate}").step_s
        for rate in ("10000Gbit/s", "25Gbit/s")
    )

    assert quick.high / quick.low < slow.high / slow.low


def test_shares_of_the_interval_add_up(one_host):
    shares = asked(one_host, 64, "workers_per_host=8", "interconnect.bandwidth=25Gbit/s").shares

    assert shares.parameters + shares.launches + shares.extrapolation == pytest.approx(1.0)


def test_a_prediction_never_reaches_below_the_computing_that_was_measured(one_host):
    found = asked(one_host, 1024, "workers_per_host=8", "interconnect.bandwidth=100Gbit/s")

    computing = found.phases["forward"].low_s + found.phases["backward"].low_s
    assert found.step_s.low > 0.95 * computing


def test_far_outside_extrapolation_adds_more_than_launches(one_host):
    found = asked(one_host, 1024, "workers_per_host=8", "interconnect.bandwidth=25Gbit/s")

    assert found.shares.extrapolation > found.shares.launches


def test_an_interval_of_an_unknown_link_is_narrowed_by_measuring_it():
    profile = a_gpu_profile(a_gpu_observation(8, 0.111, 0.030), a_gpu_observation(16, 0.4, hosts=2))

    found = asked(profile, 16, "workers_per_host=8", "nic_bandwidth=10Gbit/s")

    assert "--nccl-tests" in found.narrowing


def test_a_measured_configuration_names_a_command():
    assert "steptime" in asked(a_profile(observed(World(), 1)), 3).narrowing


def test_more_ranks_than_a_host_has_devices_need_hosts(one_host):
    refused = asked(one_host, 16).refused

    assert "gpus_per_host=8" in refused
    assert "16 GPUs" in refused


def test_as_many_ranks_as_devices_need_no_hosts(one_host):
    assert asked(one_host, 8).refused is None
