"""Intervals: what the model's error applies to, how an interval splits, and what would narrow it."""

import numpy as np
import pytest
from gpu_hosts import a_gpu_observation, a_gpu_profile
from world import World, a_profile, asked, observed

from steptime.predict.extrapolation import Extrapolation
from steptime.predict.posterior import DRAWS
from steptime.predict.uncertainty import uncertain_step

FAR = Extrapolation(workers=16.0, crosses=True)


def phases(computing_s: float = 0.1, exposed_s: float = 0.01):
    names = {"forward": computing_s, "comm_exposed": exposed_s, "sync_wait": 0.0, "input_wait": 0.0}
    return {name: np.full(DRAWS, value) for name, value in names.items()}


def drawn(extrapolation=FAR, spread=0.0, **seconds):
    return uncertain_step(phases(**seconds), extrapolation, spread, np.random.default_rng(1))


@pytest.fixture(scope="module")
def one_host():
    return a_gpu_profile(a_gpu_observation(8, 0.111, 0.030))


def test_no_step_is_shorter_than_its_computing():
    assert drawn().seen.min() >= 0.1


def test_the_error_of_the_model_is_skewed_upward():
    low, middle, high = np.quantile(drawn(exposed_s=1.0).seen, [0.05, 0.5, 0.95])

    assert np.log(high / middle) > 2 * np.log(middle / low)


def test_another_workload_errs_to_both_sides():
    low, middle, high = np.quantile(drawn(Extrapolation(workload=4.0)).seen, [0.05, 0.5, 0.95])

    assert np.log(high / middle) == pytest.approx(np.log(middle / low), rel=0.3)


def test_launches_differ_in_computing_too():
    assert drawn(Extrapolation(), spread=0.05).seen.min() < 0.1


def test_inside_what_was_measured_the_model_does_not_err():
    found = drawn(Extrapolation())

    assert (found.seen == found.modelled).all()


def test_shares_of_the_interval_add_up():
    shares = drawn(spread=0.02).shares

    assert shares.parameters + shares.launches + shares.extrapolation == pytest.approx(1.0)


def test_a_prediction_never_reaches_below_the_computing_that_was_measured(one_host):
    found = asked(one_host, 1024, "workers_per_host=8", "interconnect.bandwidth=100Gbit/s")

    computing = found.phases["forward"].low_s + found.phases["backward"].low_s
    assert found.step_s.low > 0.95 * computing


def test_far_outside_the_interval_is_one_of_extrapolation(one_host):
    found = asked(one_host, 1024, "workers_per_host=8", "interconnect.bandwidth=1000Gbit/s", "nics_per_host=8")

    assert found.shares.extrapolation > found.shares.launches
    assert found.narrowing.startswith(("two hosts", "more workers"))


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
