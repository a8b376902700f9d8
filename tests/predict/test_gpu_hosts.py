"""Predictions from one host of devices to several, over links of two kinds."""

import pytest
from gpu_hosts import BATCH, GPU_HOST, RESNET, a_gpu_observation, a_gpu_profile
from test_nccl_tests import ONE, TWO
from world import asked

from steptime.fitting.contention import step_model_of
from steptime.fitting.links import device_link, fit_tables
from steptime.fitting.nccl_output import parse_nccl_tests
from steptime.fitting.observation import Deployment
from steptime.fitting.step_model import Contention
from steptime.model.nccl import OTHER_STEP, STEP

SLOW = ("workers_per_host=8", "interconnect.bandwidth=100Gbit/s")


@pytest.fixture(scope="module")
def one_host():
    """Computing of 100 ms, an exchange of 30 ms of which 19 hide, and a step of 111 ms."""
    return a_gpu_profile(a_gpu_observation(8, 0.111, 0.030))


@pytest.fixture(scope="module")
def two_hosts():
    sizes = ((2, 0.104, 0.018), (4, 0.108, 0.025), (8, 0.111, 0.030))
    return a_gpu_profile(*(a_gpu_observation(*each) for each in sizes), a_gpu_observation(16, 0.125, 0.045, hosts=2))


def test_two_hosts_are_not_quicker_than_one(one_host):
    assert asked(one_host, 16, *SLOW).step_s.value >= asked(one_host, 8).step_s.value


def test_more_hosts_never_shorten_a_step(one_host):
    steps = [asked(one_host, workers, *SLOW).step_s.value for workers in (8, 16, 32, 128, 1024)]

    assert steps == sorted(steps)


def test_the_exchange_inside_hosts_is_still_there_behind_a_very_quick_network(one_host):
    quick = asked(one_host, 16, "workers_per_host=8", "interconnect.bandwidth=100000Gbit/s")

    assert quick.phases["comm_exposed"].value_s > 0.8 * asked(one_host, 8).phases["comm_exposed"].value_s


def test_a_point_that_was_fitted_is_predicted_where_it_was_measured(two_hosts):
    found = asked(two_hosts, 16, "workers_per_host=8", "hosts=2")

    assert found.step_s.low <= 0.125 <= found.step_s.high
    assert found.step_s.value == pytest.approx(0.125, rel=0.05)


def test_links_of_both_kinds_have_factors_of_their_own(two_hosts):
    group = next(group for group in two_hosts.groups if group.key.strategy == "allreduce")

    assert {"inner_bandwidth_factor", "bandwidth_factor"} <= set(group.parameters)


def test_links_inside_hosts_are_fitted_alone_where_nothing_crossed_hosts(one_host):
    group = next(group for group in one_host.groups if group.key.strategy == "allreduce")

    assert "inner_bandwidth_factor" in group.parameters
    assert "bandwidth_factor" not in group.parameters


@pytest.mark.parametrize(
    ("people", "other"),
    [
        (("gpus_per_host=8", "nic_bandwidth=100Gbit/s"), SLOW),
        (("gpus_per_host=8", "nic=infiniband-hdr"), ("workers_per_host=8", "nic=infiniband-hdr")),
    ],
)
def test_keys_as_people_know_them_mean_the_same(one_host, people, other):
    assert asked(one_host, 16, *people).step_s == asked(one_host, 16, *other).step_s


def test_more_cards_shorten_a_step_that_they_hold_up(one_host):
    few, many = (asked(one_host, 32, *SLOW, f"nics_per_host={count}").step_s.value for count in (1, 8))

    assert many < few


def test_a_slower_link_inside_hosts_makes_a_longer_step(one_host):
    steps = [asked(one_host, 16, *SLOW, f"inner_link={name}").step_s.value for name in ("nvlink3", "pcie4", "pcie3")]

    assert steps == sorted(steps)
    assert steps[0] < steps[-1]


def test_tables_of_nccl_tests_stand_for_the_links_of_their_hosts():
    tables = [table for text in (ONE, TWO) for table in parse_nccl_tests(text, "out.txt")]
    net = tuple(each.link for each in fit_tables(tables))
    profile = a_gpu_profile(a_gpu_observation(8, 0.101), net=net)

    found = asked(profile, 16, "workers_per_host=8")

    assert found.refused is None
    assert found.step_s.value >= asked(profile, 8).step_s.value


@pytest.mark.parametrize(
    ("library", "source", "latency_s"),
    [
        ("nccl", "believed", STEP["nvlink"]),
        ("gloo", "believed", OTHER_STEP["nvlink"]),
        ("gloo", "net", STEP["nvlink"]),
    ],
)
def test_other_libraries_take_longer_for_a_step_than_nccl_over_a_link_that_nobody_measured(library, source, latency_s):
    link = device_link(GPU_HOST).model_copy(update={"source": source})
    deployment = Deployment(8, BATCH, workers_per_host=8, collectives=library)

    assert step_model_of(RESNET, deployment, link, Contention(8, 8)).link.latency == pytest.approx(latency_s)
