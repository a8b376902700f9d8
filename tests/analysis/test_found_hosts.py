"""The emulated cluster of a trial, from what its launches found."""

import pytest
from simulated import a_launch, a_store, a_trial

from steptime.analysis.emulated_cluster import cluster_of
from steptime.analysis.summary import summarise


def found(alpha_s=1e-4, rate=97e6, sent=1000):
    """What a launch found of two hosts, the second one without a limit on its link."""
    shared = {"burst_bytes": 16375, "throttled_periods": None, "periods": None, "received_bytes": 500}
    hosts = [
        {"name": "h0", "address": "10.77.0.1", "roles": ["worker-0"], "cores": [0], "bandwidth_bits_per_s": 1e8}
        | {"cpu_quota_cores": 0.5, "sent_bytes": sent, "throttled_s": 0.2, **shared},
        {"name": "h1", "address": "10.77.0.2", "roles": ["worker-1"], "cores": [1], "bandwidth_bits_per_s": None}
        | {"cpu_quota_cores": None, "sent_bytes": sent, "throttled_s": None, **shared},
    ]
    path = {"source": 0, "target": 1, "alpha_s": alpha_s, "bandwidth_bits_per_s": rate, "message_bytes": 1000000}
    settings = {"kind": "emulated", "delay_s": 0.0, "delay_by": None, "cpu_groups": None, "users": True}
    return {**settings, "congestion_control": "reno", "hosts": hosts, "paths": [path]}


def launch(number=0, foreign=0.02, **changes):
    return a_launch(a_trial(), number, noise={"foreign_cpu_cores": foreign}, cluster=found(**changes))


def test_launches_without_hosts_of_their_own_have_no_cluster():
    assert cluster_of([a_launch(a_trial())]) is None


def test_a_link_has_the_median_of_what_was_measured_and_its_extremes():
    launches = [launch(number, alpha_s=alpha) for number, alpha in enumerate((3e-4, 1e-4, 2e-4))]
    (link,) = cluster_of(launches).links
    assert (link.alpha_s.least, link.alpha_s.value, link.alpha_s.most) == (1e-4, 2e-4, 3e-4)


def test_what_was_asked_for_stands_beside_what_was_measured():
    (link,) = cluster_of([launch()]).links
    assert link.nominal_bandwidth_bits_per_s == 1e8
    assert link.bandwidth_bits_per_s.value == 97e6


def test_a_link_without_a_limit_has_no_nominal_bandwidth():
    assert cluster_of([launch()]).hosts[1].nominal_bandwidth_bits_per_s is None


def test_a_host_that_nothing_held_back_is_not_said_to_be_held_back_for_no_time():
    first, second = cluster_of([launch()]).hosts
    assert first.throttled_s.value == pytest.approx(0.2)
    assert second.throttled_s is None


@pytest.mark.parametrize(("cores", "flagged"), [(0.02, False), (0.3, True), (None, None)])
def test_foreign_load_is_flagged_when_it_is_known(cores, flagged):
    assert cluster_of([launch(0), launch(1, cores)] if cores else [launch(0, None)]).foreign_load is flagged


def test_the_json_of_a_trial_has_its_cluster(tmp_path):
    store = a_store(tmp_path / "results")
    trial = a_trial()
    store.add_trial(trial)
    store.append(a_launch(trial, 0, cluster=found(sent=2000)))
    (shown,) = summarise(store).to_json()["trials"]
    assert [host["sent_bytes"]["value"] for host in shown["cluster"]["hosts"]] == [2000, 2000]


def test_the_json_of_a_trial_without_hosts_of_its_own_has_null(tmp_path):
    store = a_store(tmp_path / "results")
    store.add_trial(a_trial())
    store.append(a_launch(a_trial()))
    (shown,) = summarise(store).to_json()["trials"]
    assert shown["cluster"] is None
