from dataclasses import replace as replaced

import numpy as np
import pytest
from launch_phases import launch_of
from simulated import a_failure, a_launch, a_store, a_trial

from steptime.catalog.cluster import cluster_for
from steptime.catalog.cluster_findings import ClusterFindings, HostFindings, PathFindings
from steptime.catalog.optimizer import Optimizer
from steptime.errors import StoreError
from steptime.fitting.fit import fit
from steptime.fitting.observation import deployment_of, key_of, observe


@pytest.fixture
def store(tmp_path):
    return a_store(tmp_path / "results")


def test_each_launch_gives_its_median_step(store):
    trial = a_trial()
    store.add_trial(trial)
    for number, seconds in enumerate((0.1, 0.2)):
        store.append(a_launch(trial, number, [seconds] * 20))
    (found,) = observe(store)
    assert found.steps_s == pytest.approx((0.1, 0.2))
    assert found.step_count == 40


def test_a_fit_to_launches_of_several_versions_says_so(store):
    trial = a_trial()
    store.add_trial(trial)
    for number, version in enumerate(("0.1.0", "0.2.0")):
        store.append(a_launch(trial, number, [0.1] * 20, steptime=version))
    (group,) = fit(store, observe(store)).groups
    assert "pooled over different versions of steptime: 0.1.0 (1 launch); 0.2.0 (1 launch)" in group.notes


def test_failed_launches_say_nothing(store):
    trial = a_trial()
    store.add_trial(trial)
    store.append(a_failure(trial))
    with pytest.raises(StoreError, match="steptime run"):
        observe(store)


def test_ablation_launches_give_phases(store):
    trial = a_trial(strategy="allreduce", workers=2)
    store.add_trial(trial)
    store.append(a_launch(trial, 0, [0.03] * 20))
    store.append(replaced(launch_of(1), trial=trial.id))
    (found,) = observe(store)
    phases = found.launch_phases[0].phases
    assert phases["forward"] == pytest.approx(0.010, rel=0.05)
    assert phases["backward"] == pytest.approx(0.020, rel=0.05)


def test_links_of_emulated_hosts_are_those_measured(store):
    cluster = cluster_for(workers=2, own_servers=0, bandwidth_bits_per_s=2e8)
    trial = a_trial(strategy="allreduce", workers=2, launcher="emulated", cluster=cluster)
    store.add_trial(trial)
    path = PathFindings(source=0, target=1, alpha_s=1e-4, bandwidth_bits_per_s=1.9e8, message_bytes=1)
    hosts = [HostFindings(name, "10.0.0.1", [], [], 2e8, None, None, 0, 0) for name in ("first", "second")]
    findings = ClusterFindings("emulated", 0.0, None, None, False, "reno", hosts, [path])
    store.append(a_launch(trial, 0, [0.1] * 20, cluster=findings.to_json()))
    (found,) = observe(store)
    assert (found.alpha_s, found.rate) == (1e-4, 1.9e8 / 8)
    assert found.deployment.emulated
    assert found.deployment.bandwidth == 2e8 / 8


@pytest.mark.parametrize("kind", ["emulated", "found"])
@pytest.mark.parametrize(("placement", "own_servers"), [("own", 1), ("colocated", 0)])
def test_messages_of_one_worker_cross_hosts_where_its_server_has_a_host_of_its_own(kind, placement, own_servers):
    cluster = cluster_for(workers=1, own_servers=own_servers, kind=kind)
    trial = a_trial(strategy="ps_sync", workers=1, servers=1, server_placement=placement, cluster=cluster)

    assert deployment_of(trial).crosses == (placement == "own")


def test_workers_of_one_machine_are_on_one_host():
    deployment = deployment_of(a_trial(strategy="allreduce", workers=4))
    assert (deployment.hosts, deployment.workers_per_host, deployment.crosses) == (1, 4, False)


def test_bucket_size_is_a_size_and_no_other_model():
    one, other = (a_trial(framework="pytorch", options={"bucket_mb": size, "compile": False}) for size in (1.0, 25.0))
    assert key_of(one) == key_of(other)
    assert deployment_of(one).bucket_mb == 1.0


def test_strategies_and_options_of_their_own_do_not_change_what_a_worker_computes():
    single, several = (
        key_of(a_trial(options={"bits": 32})),
        key_of(a_trial(strategy="allreduce", workers=2, options={"bits": 32, "shards": 1})),
    )
    assert single.computes_as(several)
    assert not single.computes_as(key_of(a_trial(options={"bits": 16})))
    assert not single.computes_as(key_of(a_trial(workload="lenet5", input_shape=(1, 28, 28))))


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"optimizer": Optimizer(name="adam")}, "optimizer=adam"),
        ({"optimizer": Optimizer(clip_norm=1.0)}, "optimizer=sgd+clip_norm"),
        ({"optimizer": Optimizer(momentum=0.0)}, "optimizer=sgd+no_momentum"),
        ({"environment_name": "nightly"}, "environment_name=nightly"),
    ],
    ids=["optimizer", "clipping", "momentum", "environment"],
)
def test_trials_that_compute_otherwise_have_a_model_of_their_own_with_its_name(changed, name):
    usual, other = key_of(a_trial()), key_of(a_trial(**changed))
    assert not usual.computes_as(other)
    assert other.name == f"{usual.framework} {usual.strategy} {name}, {usual.workload}"


def test_rates_and_amounts_of_an_optimizer_have_one_model():
    amounts = ({"learning_rate": 0.1}, {"momentum": 0.5}, {"learning_rate": 0.2, "momentum": 0.99})
    assert {key_of(a_trial(optimizer=Optimizer(**each))) for each in amounts} == {key_of(a_trial())}


def test_steps_before_the_steady_part_do_not_count(store):
    trial = a_trial()
    store.add_trial(trial)
    times = np.concatenate([np.full(20, 1.0), np.full(200, 0.1)]) * (1 + 0.001 * np.sin(np.arange(220)))
    store.append(a_launch(trial, 0, times.tolist()))
    (found,) = observe(store)
    assert found.steps_s[0] == pytest.approx(0.1, rel=0.01)


def shown(shares, steps: int = 3):
    """An ablation launch whose framework shows pieces that went after these shares of backward passes of a second."""
    launch = launch_of(1)
    marked = [[10.0 * step, 10.0 * step + 1, 10.0 * step + 2, 10.0 * step + 3] for step in range(steps)]
    transfers = [
        (f"bucket {place}", 1000 * (1 + place), 10.0 * step + 2 + share, 10.0 * step + 4)
        for step in range(steps)
        for place, share in enumerate(shares)
    ]
    clocks = [{"at_s": at_s, "offset_s": 0.0, "rtt_s": 0.0} for at_s in (0.0, 10.0 * steps)]
    workers = [
        replaced(worker, clocks=clocks, marks=["input", "forward", "backward"], marked=marked, transfers=transfers)
        for worker in launch.workers
    ]
    return replaced(launch, workers=workers)


def test_pieces_are_seen_with_their_sizes_and_when_they_went(store):
    trial = a_trial(strategy="allreduce", workers=2)
    store.add_trial(trial)
    store.append(a_launch(trial, 0, [0.03] * 20))
    store.append(replaced(shown([0.25, 0.75]), trial=trial.id))
    (found,) = observe(store)
    (one, other) = found.launch_phases[0].pieces
    assert one == pytest.approx((1000, 0.25))
    assert other == pytest.approx((2000, 0.75))


def test_steps_with_different_numbers_of_pieces_show_none(store):
    trial = a_trial(strategy="allreduce", workers=2)
    store.add_trial(trial)
    store.append(a_launch(trial, 0, [0.03] * 20))
    launch = shown([0.25, 0.75])
    odd = [replaced(worker, transfers=worker.transfers[:-1]) for worker in launch.workers]
    store.append(replaced(launch, trial=trial.id, workers=odd))
    assert observe(store)[0].launch_phases[0].pieces == ()
