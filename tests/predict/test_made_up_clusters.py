"""A profile of one host of eight devices, asked for two hosts, against clusters that are simulated as events.

``benchmarks/clusters/made_up_clusters.py`` does it for two hundred clusters and more hosts.
"""

import numpy as np
import pytest
from host_events import GPUS, a_cluster, profile_of
from world import asked

CLUSTERS = 5


@pytest.fixture(scope="module")
def predictions():
    """The true step of 16 devices and its prediction from one host, for each cluster."""
    found = []
    for seed in range(CLUSTERS):
        cluster = a_cluster(seed)
        link = f"nic_bandwidth={cluster.nominal * 8 / 1e9:g}Gbit/s"
        profile = profile_of(cluster, seed)
        step = asked(profile, 16, f"gpus_per_host={GPUS}", link, f"nics_per_host={cluster.cards}").step_s
        found.append((cluster.step_s(16, np.random.default_rng(seed), 3), step))
    return found


def test_two_hosts_are_predicted_from_one_within_their_intervals(predictions):
    assert sum(step.low <= true <= step.high for true, step in predictions) >= CLUSTERS - 1


def test_two_hosts_are_predicted_from_one_within_a_tenth_most_of_the_time(predictions):
    assert sum(abs(step.value / true - 1) < 0.1 for true, step in predictions) > CLUSTERS // 2
