"""What moves a prediction: links and values from a prior, halved and doubled."""

import pytest
from gpu_hosts import a_gpu_observation, a_gpu_profile
from world import World, a_profile, asked, observed

from steptime.predict.predict import predict
from steptime.predict.query import read_queries
from steptime.predict.sensitivity import sensitivities


@pytest.fixture(scope="module")
def gpu_host():
    return a_gpu_profile(a_gpu_observation(8, 0.111, 0.030))


def moved(profile, workers, *overrides):
    rows = sensitivities(asked(profile, workers, *overrides))
    return {row.name: row for row in rows}


def test_twice_the_bandwidth_is_the_step_of_a_link_of_twice_the_rate(gpu_host):
    steps = [
        asked(gpu_host, 64, "workers_per_host=8", f"interconnect.bandwidth={rate}Gbit/s").step_s.value
        for rate in (5, 10)
    ]
    row = moved(gpu_host, 64, "workers_per_host=8", "interconnect.bandwidth=5Gbit/s")["bandwidth between hosts"]
    assert row.doubled.value == pytest.approx(steps[1] / steps[0], rel=0.02)


def test_the_largest_comes_first(gpu_host):
    prediction = asked(gpu_host, 64, "workers_per_host=8", "interconnect.bandwidth=5Gbit/s")
    changes = [row.moves for row in sensitivities(prediction)]
    assert changes == sorted(changes, reverse=True)


def test_a_stated_bandwidth_is_stated_and_its_latency_assumed(gpu_host):
    rows = moved(gpu_host, 64, "workers_per_host=8", "interconnect.bandwidth=5Gbit/s")
    assert (rows["bandwidth between hosts"].how, rows["latency between hosts"].how) == ("stated", "assumed")


def test_a_link_that_was_measured_is_not_assumed():
    rows = moved(a_profile(observed(World(), 0)), 2, "batch_per_worker=32")
    assert {row.how for name, row in rows.items() if name.startswith(("bandwidth", "latency"))} == {"measured"}


def test_values_that_were_measured_are_left_out():
    profile = a_profile(observed(World(), 0))
    assert not {"slowdown of workers that share a host", "time to load a sample"} & moved(profile, 2).keys()


def test_one_worker_depends_on_no_link(gpu_host):
    assert not any("between" in name for name in moved(gpu_host, 1))


def test_shares_of_a_step_add_up_to_all_of_it(gpu_host):
    for prediction in predict(gpu_host, [1, 8], read_queries([], gpu_host)):
        if prediction.step_s:
            assert sum(share.value for share in prediction.made_of.values()) == pytest.approx(1.0)


def test_communication_takes_a_larger_share_over_a_slower_link(gpu_host):
    quick, slow = (
        asked(gpu_host, 64, "workers_per_host=8", f"interconnect.bandwidth={rate}").made_of["communication"].value
        for rate in ("100Gbit/s", "5Gbit/s")
    )
    assert slow > 2 * quick
