from dataclasses import replace

import pytest
from world import KEY, World, a_deployment, a_profile, asked, observed

from steptime.catalog.choices import STRATEGIES
from steptime.catalog.manifest import load_manifests
from steptime.fitting.profile import Machine
from steptime.model.policies import strategy_mistake


def on_one_host(seed: int = 1, cores: int = 8, sizes=((1, 32), (2, 32)), *, known: bool = True):
    """Observations without hosts, and without anything known of what joins workers."""
    world = World(machine=Machine(cpu=None, cores=cores, gpus=0))
    found = []
    for each in observed(world, seed, sizes):
        deployment = replace(each.deployment, hosts=1, workers_per_host=each.deployment.workers, emulated=False)
        found.append(replace(each, deployment=deployment, alpha_s=None, rate=None))
    return a_profile(found, machine=world.machine if known else Machine(cpu=None, cores=None, gpus=0))


def test_far_more_workers_than_measured_need_the_network_benchmark():
    found = asked(on_one_host(cores=64), 16)
    assert found.step_s is None
    assert "steptime net" in found.refused


def test_twice_the_workers_measured_do_not():
    assert asked(on_one_host(), 4).refused is None


def test_cores_that_are_not_known_are_shared_by_no_workers_which_is_named():
    unknown = on_one_host(known=False)
    assert asked(unknown, 4).step_s == asked(on_one_host(cores=8), 4).step_s
    assert any("how many cores the machine has is not known" in note for note in unknown.groups[0].notes)


def test_more_workers_than_the_machine_holds_need_to_be_told_where_they_are():
    refused = asked(on_one_host(cores=2), 64).refused
    assert "workers_per_host" in refused
    assert "interconnect.bandwidth" in refused


def test_workers_that_are_spread_over_hosts_are_predicted():
    found = asked(on_one_host(cores=2), 64, "workers_per_host=2", "interconnect.bandwidth=10Gbit/s")
    assert found.refused is None
    assert found.deployment.hosts == 32


@pytest.mark.parametrize(("workers", "hosts"), [(8, "1 host"), (64, "8 hosts"), (1024, "128 hosts")])
def test_more_workers_than_a_stated_host_holds_are_refused_by_what_was_stated(workers, hosts):
    refused = asked(on_one_host(cores=2), workers, "workers_per_host=8", "interconnect.bandwidth=10Gbit/s").refused
    assert f"{workers} workers on {hosts} would be 8 on 2 processors" in refused
    assert "workers_per_host=2" in refused
    assert "cores_per_host=N" in refused


def test_hosts_without_a_link_need_one():
    assert "interconnect.bandwidth" in asked(on_one_host(), 4, "workers_per_host=2").refused


def test_delay_alone_describes_no_link():
    assert "interconnect.bandwidth" in asked(on_one_host(), 4, "workers_per_host=2", "interconnect.delay=1ms").refused


def test_emulated_hosts_do_not_stand_for_a_thousand_real_ones():
    profile = a_profile(observed(World(), 1))
    assert "cores_per_host" in asked(profile, 1024).refused
    assert asked(profile, 1024, "cores_per_host=1").refused is None


@pytest.mark.parametrize(
    ("override", "remedy"),
    [
        ("device=cuda", "device: cuda"),
        ("precision=bf16", "precision: bf16"),
        ("loader=native", "loaders: native"),
    ],
)
def test_what_nobody_measured_is_refused_with_the_measurement_that_is_missing(override, remedy):
    assert remedy in asked(a_profile(observed(World(), 1)), 2, override).refused


def test_without_one_worker_and_without_breakdown_nothing_is_predicted():
    profile = a_profile(observed(World(breakdown=False), 1, [(2, 32), (3, 32)]))
    assert "workers: [1" in asked(profile, 2).refused


def test_a_single_worker_says_nothing_of_several():
    profile = a_profile(observed(World(), 1, [(1, 32)], replace(KEY, strategy="single")))
    assert asked(profile, 1).refused is None
    assert "strategy=allreduce" in asked(profile, 2).refused


def test_a_refusal_has_no_numbers():
    found = asked(on_one_host(), 4, "workers_per_host=2")
    assert [found.step_s, found.throughput, found.efficiency, found.epoch_s, found.dominant, found.extrapolation] == [
        None
    ] * 6
    assert found.phases == {}


def test_the_setting_of_emulated_hosts_is_kept():
    assert asked(a_profile(observed(World(), 1)), 3).deployment == replace(a_deployment(3, 64), batch=64)


def test_buckets_of_a_framework_without_them_are_refused():
    found = observed(World(), 1)
    profile = a_profile([replace(each, key=replace(each.key, framework="mxnet", strategy="ps_sync")) for each in found])
    assert asked(profile, 2, "bucket_mb=5").refused == (
        "mxnet ps_sync has no option bucket_mb, which paddle allreduce and pytorch allreduce have; leave it out"
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_a_strategy_that_a_framework_does_not_have_is_refused_with_those_that_it_has(workers):
    profile = a_profile([replace(each, key=replace(each.key, framework="chainer")) for each in observed(World(), 1)])
    assert asked(profile, workers).refused is None
    assert asked(profile, workers, "strategy=zero3").refused == (
        "chainer has no strategy zero3, but allreduce, single; zero3 is of deepspeed"
    )


def test_a_strategy_of_a_framework_that_is_not_installed_is_not_known_to_be_missing():
    profile = a_profile([replace(each, key=replace(each.key, framework="another")) for each in observed(World(), 1)])
    apart = ("workers_per_host=1", "interconnect.bandwidth=10Gbit/s")
    assert asked(profile, 2, "strategy=zero3", *apart).refused is None


def test_each_framework_has_the_strategies_of_its_manifest_and_no_other():
    for name, manifest in load_manifests().items():
        can = {strategy for strategy in STRATEGIES if strategy_mistake(name, strategy) is None}
        assert can == set(manifest.strategies)
