"""Which process runs on which host."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptime.catalog.cluster import cluster_for


def test_workers_fill_one_host_after_the_other():
    cluster = cluster_for(workers=5, own_servers=0, workers_per_host=2)
    assert [cluster.host_of("worker", rank) for rank in range(5)] == [0, 0, 1, 1, 2]
    assert (len(cluster.hosts), cluster.worker_hosts) == (3, 3)
    assert cluster.ranks_on(1, "worker", 5) == [2, 3]


def test_servers_of_their_own_have_the_hosts_after_the_workers():
    cluster = cluster_for(workers=2, own_servers=2)
    assert [cluster.host_of("server", rank) for rank in range(2)] == [2, 3]
    assert len(cluster.hosts) == 4


def test_colocated_servers_are_dealt_to_the_workers_hosts():
    cluster = cluster_for(workers=2, own_servers=0)
    assert [cluster.host_of("server", rank) for rank in range(3)] == [0, 1, 0]


def test_a_scheduler_runs_on_the_first_host():
    assert cluster_for(workers=2, own_servers=1).host_of("scheduler", 0) == 0


@pytest.mark.parametrize("host", [2, 7])
def test_only_hosts_of_workers_can_be_slow(host):
    cluster = cluster_for(workers=2, own_servers=1, cpu_shares={1: 0.5, host: 0.5})
    assert [each.cpu_share for each in cluster.hosts] == [1.0, 0.5, 1.0]


@given(st.integers(1, 20), st.integers(0, 4), st.integers(1, 5))
def test_nobody_is_without_a_host_and_no_host_without_anybody(workers, own_servers, per_host):
    cluster = cluster_for(workers=workers, own_servers=own_servers, workers_per_host=per_host)
    used = {cluster.host_of("worker", rank) for rank in range(workers)}
    used |= {cluster.host_of("server", rank) for rank in range(own_servers)}
    assert used == set(range(len(cluster.hosts)))


def test_a_cluster_says_in_words_what_changes_a_step():
    cluster = cluster_for(workers=2, own_servers=0, bandwidth_bits_per_s=2e8, delay_s=2e-3, cpu_shares={1: 0.5})
    assert cluster.in_words() == "emulated hosts of 1, links of 200 Mbit/s, 2 ms delay, host 1 at 50%"


def test_a_link_of_its_own_bandwidth_is_named():
    cluster = cluster_for(workers=3, own_servers=0, bandwidth_bits_per_s=2e8, host_bandwidths={1: 2e7, 5: 1e6})
    assert [host.bandwidth_bits_per_s for host in cluster.hosts] == [2e8, 2e7, 2e8]
    assert cluster.in_words() == "emulated hosts of 1, links of 200 Mbit/s, host 1 on 20 Mbit/s"
