"""What NCCL's collectives cost over links of two kinds, and what no link may change."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptime.model.collectives import Link
from steptime.model.interconnect import Interconnect, communication_cost
from steptime.model.nccl import LAUNCH

SIZES = np.array([8.0, 65536.0, 2.0**20, 2.0**24, 2.0**28, 2.0**33])
NVLINKS = st.builds(Link, rate=st.floats(5e9, 9e11), latency=st.floats(1e-7, 1e-5), medium=st.just("nvlink"))
CARDS = st.builds(Link, rate=st.floats(1e8, 5e10), latency=st.floats(1e-7, 1e-5))
CLUSTERS = st.fixed_dictionaries(
    {
        "operation": st.sampled_from(["allreduce", "all_gather", "reduce_scatter"]),
        "algorithm": st.sampled_from(["nccl", "ring"]),
        "gpus": st.sampled_from([1, 2, 4, 8]),
        "hosts": st.sampled_from([1, 2, 3, 4, 8, 16, 128]),
        "inner": NVLINKS,
        "outer": CARDS,
        "cards": st.sampled_from([1, 2, 4, 8]),
    }
)


def seconds(  # noqa: PLR0913 - what a cluster has
    *, operation="allreduce", algorithm="nccl", sizes=SIZES, gpus=8, hosts=1, inner=None, outer=None, cards=8
):
    inner = inner or Link(240e9, 0.6e-6, medium="nvlink")
    connected = Interconnect(outer or Link(25e9, 2.7e-6), algorithm, gpus, inner=inner, nics_per_host=cards)
    return communication_cost(operation, sizes, gpus * hosts, connected).total


def test_short_messages_take_the_steps_of_the_quickest_algorithm():
    one, many = seconds(sizes=np.array([8.0])), seconds(sizes=np.array([8.0]), hosts=128)

    assert one[0] == pytest.approx(LAUNCH + 6.6e-6 + 14 * 0.6e-6, rel=0.01)
    assert many[0] == pytest.approx(LAUNCH + 6.8e-6 + 2 * (7 * 0.6e-6 + 7 * 5e-6), rel=0.01)


def test_a_hundred_hosts_do_not_pay_the_steps_of_a_ring():
    assert seconds(sizes=np.array([8.0]), hosts=128)[0] < 0.1 * 2 * 127 * 4e-6 * 10


def test_long_messages_send_twice_their_bytes_over_the_slowest_links():
    assert seconds(sizes=np.array([1e11]), hosts=4)[0] == pytest.approx(2 * 31 / 32 * 1e11 / 200e9, rel=0.01)


def test_a_tree_of_two_hosts_sends_a_message_once_in_each_direction():
    slow = Link(1e9, 2.7e-6)

    assert seconds(sizes=np.array([1e10]), hosts=2, outer=slow, cards=1)[0] == pytest.approx(10 / 0.92, rel=0.15)


def test_a_switch_that_reduces_moves_nine_eighths_of_a_message():
    reducing = Link(370e9, 0.6e-6, medium="nvlink", switch_share=0.85)

    assert seconds(sizes=np.array([1e11]), inner=reducing)[0] == pytest.approx(9 / 8 * 1e11 / 370e9 / 0.85, rel=0.01)


def test_ll128_is_for_nvlink_alone():
    linked, plugged = (
        seconds(sizes=np.array([4e6]), inner=Link(24e10, 0.6e-6, medium=medium)) for medium in ("nvlink", "pcie")
    )

    assert linked[0] < plugged[0]


@settings(max_examples=50, deadline=None)
@given(CLUSTERS)
def test_nothing_gets_shorter_by_more_hosts_of_as_many_workers(cluster):
    one, more = seconds(**cluster), seconds(**{**cluster, "hosts": 2 * cluster["hosts"]})

    assert (more >= one * (1 - 1e-9)).all()


@settings(max_examples=50, deadline=None)
@given(CLUSTERS)
def test_the_same_workers_on_more_hosts_take_at_least_as_long(cluster):
    together = {**cluster, "operation": "allreduce", "gpus": max(cluster["gpus"], 2)}
    apart = {**together, "gpus": together["gpus"] // 2, "hosts": 2 * together["hosts"]}

    assert (seconds(**apart) >= seconds(**together) * (1 - 1e-9)).all()


@settings(max_examples=50, deadline=None)
@given(CLUSTERS, st.floats(1.0, 100.0), st.sampled_from(["inner", "outer"]))
def test_more_bandwidth_never_takes_longer(cluster, times, which):
    quicker = {**cluster, which: replace(cluster[which], rate=times * cluster[which].rate)}

    assert (seconds(**quicker) <= seconds(**cluster) * (1 + 1e-9)).all()


@settings(max_examples=40, deadline=None)
@given(CLUSTERS)
def test_with_infinite_bandwidth_only_the_starts_are_left(cluster):
    endless = {name: replace(cluster[name], rate=1e30) for name in ("inner", "outer")}
    short, longer = seconds(**{**cluster, **endless, "sizes": np.array([8.0, 2.0**20])})

    # LL has a rate of its own, which no link changes.
    assert longer - short <= 8 * 2.0**20 / 35e9


@settings(max_examples=40, deadline=None)
@given(CLUSTERS)
def test_with_no_bandwidth_between_hosts_nothing_ends(cluster):
    found = seconds(**{**cluster, "hosts": 2 * cluster["hosts"], "outer": Link(1e-6, 3e-6)})

    assert (found > 1e5).all()


@pytest.mark.parametrize("algorithm", ["nccl", "ring"])
def test_one_worker_exchanges_nothing(algorithm):
    assert (seconds(algorithm=algorithm, gpus=1) == 0).all()
