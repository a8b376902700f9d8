"""What travels: bytes by precision, compression and sharding, accumulation, and what does not fit."""

from dataclasses import replace

import pytest
from gpu_hosts import RESNET, a_gpu_observation, a_gpu_profile
from world import asked

from steptime.fitting.observation import Deployment
from steptime.fitting.step_model import graph_of
from steptime.model.policies import Traffic, with_traffic

SLOW = ("gpus_per_host=8", "nic_bandwidth=10Gbit/s")
WEIGHTS = 102_228_128
VOLUMES = {"allreduce": 2, "reduce_scatter": 1, "all_gather": 1, "host_reduce_scatter": 1, "host_all_gather": 1}


@pytest.fixture(scope="module")
def one_host():
    return a_gpu_profile(a_gpu_observation(8, 0.111, 0.030))


def graph(strategy="allreduce", **traffic):
    key = replace(RESNET, strategy=strategy)
    return with_traffic(graph_of(key, Deployment(16, 64, workers_per_host=8, hosts=2)), Traffic(**traffic), 16, 8)


def volume(plan) -> float:
    """Values that each worker sends per value of the network, as ZeRO's paper counts them."""
    sent = sum(VOLUMES[each.operation] * each.bytes for each in (*plan.messages, *plan.after_update))
    gathered = sum(gather.bytes * (1 + gather.again) for gather in plan.gathers)
    return (sent + gathered) / WEIGHTS


def test_data_parallelism_moves_every_value_twice():
    assert volume(graph().plan) == pytest.approx(2.0, rel=0.01)


def test_sharded_weights_move_every_value_three_times():
    assert volume(graph("fsdp").plan) == pytest.approx(3.0, rel=0.1)


@pytest.mark.parametrize(("precision", "share"), [("fp32", 1.0), ("bf16", 0.5), ("fp16", 0.5)])
def test_gradients_have_the_width_of_their_precision(precision, share):
    assert graph(gradient_precision=precision).plan.bytes == pytest.approx(share * graph().plan.bytes, rel=1e-6)


@pytest.mark.parametrize(("compression", "share"), [("fp16", 1 / 2), ("bf16", 1 / 2), ("onebit", 1 / 32)])
def test_compression_shortens_messages(compression, share):
    assert graph(compression=compression).plan.bytes == pytest.approx(share * graph().plan.bytes, rel=1e-3)


def test_the_largest_values_of_all_workers_are_gathered_with_their_places():
    plan = graph(compression="topk", kept=0.01).plan

    assert {each.operation for each in plan.messages} == {"all_gather"}
    assert plan.bytes == pytest.approx(16 * 0.01 * 2 * graph().plan.bytes, rel=1e-3)


def test_shards_within_hosts_are_gathered_there():
    plan = graph("fsdp", shard="host").plan

    assert {gather.operation for gather in plan.gathers} == {"host_all_gather"}
    assert {"host_reduce_scatter", "hosts_allreduce"} <= {each.operation for each in plan.messages}


def test_half_the_bytes_shorten_a_step_that_the_network_holds_up(one_host):
    whole, half = (asked(one_host, 32, *SLOW, f"gradient_precision={p}").step_s.value for p in ("fp32", "bf16"))

    assert half < whole


def test_shards_within_hosts_shorten_a_step_that_the_network_holds_up(one_host):
    spread, within = (asked(one_host, 32, *SLOW, "strategy=fsdp", f"shard={s}").step_s.value for s in ("all", "host"))

    assert within < spread


def test_accumulated_passes_exchange_once(one_host):
    once, four = (asked(one_host, 32, *SLOW, f"accumulation={count}") for count in (1, 4))

    exposed = [each.phases["comm_exposed"].value_s for each in (once, four)]
    # Phases are scaled to add up to the median of the step, each time by another factor.
    assert four.phases["backward"].value_s == pytest.approx(4 * once.phases["backward"].value_s, rel=0.05)
    assert exposed[1] <= exposed[0] * 1.05
    assert four.throughput.value > once.throughput.value


def test_what_does_not_fit_a_device_is_refused_with_a_batch_that_may(one_host):
    refused = asked(one_host, 8, "batch_per_worker=8192").refused

    assert "memory" in refused
    assert "batch_per_worker=" in refused


def test_a_batch_that_was_measured_fits(one_host):
    assert asked(one_host, 8).refused is None


def test_a_share_without_the_compression_that_it_is_about_is_refused(one_host):
    with pytest.raises(Exception, match="compression=topk"):
        asked(one_host, 8, "topk_share=1%")


@pytest.mark.parametrize(("compression", "share"), [("fp16", 1 / 2), ("bf16", 1 / 2), ("onebit", 1 / 32)])
def test_compression_shortens_what_a_middle_gathers_and_sends_back(compression, share):
    star = replace(RESNET, framework="reference", device="cpu")
    whole = graph_of(star, Deployment(16, 64))
    short = with_traffic(whole, Traffic(compression=compression), 16, 16).plan

    assert {each.operation for each in whole.plan.messages} == {"star"}
    assert short.bytes == pytest.approx(share * whole.plan.bytes, rel=1e-3)


def test_the_largest_values_come_to_the_middle_alone_and_go_back_from_all():
    star = replace(RESNET, framework="reference", device="cpu")
    whole = graph_of(star, Deployment(3, 64))
    kept = with_traffic(whole, Traffic(compression="topk", kept=0.01), 3, 3).plan

    assert kept.bytes == pytest.approx(0.01 * 2 * (1 + 3) / 2 * whole.plan.bytes, rel=1e-3)


@pytest.mark.parametrize(
    ("overrides", "option"), [(["shard=host"], "shard=host"), (["shard=host", "compression=fp16"], "shard=host")]
)
def test_an_option_that_a_model_ignores_is_refused(one_host, overrides, option):
    assert f"{option} changes nothing" in asked(one_host, 32, *SLOW, *overrides).refused
