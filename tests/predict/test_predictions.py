from dataclasses import replace

import numpy as np
import pytest
from world import KEY, World, a_deployment, a_profile, asked, observed

from steptime.fitting.profile import NetLink
from steptime.predict.predict import predict
from steptime.predict.query import read_queries


@pytest.fixture(scope="module")
def profile():
    return a_profile(observed(World(), 1))


def test_phases_sum_to_the_step(profile):
    found = asked(profile, 3, "batch_per_worker=32")
    total = sum(phase.value_s for name, phase in found.phases.items() if phase and name != "comm_hidden")
    assert total == pytest.approx(found.step_s.value, rel=0.03)


def test_the_value_lies_in_its_interval(profile):
    for workers in (1, 2, 4):
        found = asked(profile, workers)
        for one in (found.step_s, found.throughput, found.efficiency):
            assert one.low <= one.value <= one.high


def test_throughput_is_the_global_batch_over_the_step(profile):
    found = asked(profile, 3, "batch_per_worker=32")
    assert found.throughput.value == pytest.approx(96 / found.step_s.value, rel=0.01)


def test_tokens_are_samples_times_their_length_and_no_peak_is_no_mfu():
    key = replace(KEY, workload="gpt2_tiny", input_shape=(64,), classes=256)
    found = asked(a_profile(observed(World(), 1, key=key)), 2)
    assert found.work.tokens_per_s.value == pytest.approx(64 * found.throughput.value)
    assert found.work.tokens_per_s.high == pytest.approx(64 * found.throughput.high)
    assert (found.work.mfu.value, found.work.peak_source) == (None, None)


def test_one_worker_is_its_own_baseline(profile):
    assert asked(profile, 1).efficiency.value == 1.0


def test_a_slower_link_makes_a_longer_step(profile):
    rates = ("1Gbit/s", "200Mbit/s", "50Mbit/s")
    steps = [asked(profile, 3, f"interconnect.bandwidth={rate}").step_s.value for rate in rates]
    assert steps == sorted(steps)


def test_a_slow_link_makes_communication_dominant(profile):
    assert asked(profile, 3, "interconnect.bandwidth=10Mbit/s").dominant == "comm_exposed"


def test_delay_is_paid_in_every_step_of_the_ring(profile):
    near, far = (asked(profile, 3, f"interconnect.delay={delay}").step_s.value for delay in ("0ms", "20ms"))
    # 2(p-1) steps of two latencies each at least, of which two buckets may share some.
    assert far - near > 2 * 2 * 2 * 0.02 * 0.8


def test_a_strong_scaling_batch_is_shared(profile):
    found = asked(profile, 4, "global_batch=128")
    assert found.deployment.batch == 32


def test_hosts_of_their_own_do_not_share_cores(profile):
    shared, own = (asked(profile, 4, *extra).phases["forward"].value_s for extra in ((), ("cores_per_host=1",)))
    assert shared > 1.8 * own


def test_an_epoch_lasts_as_many_steps_as_it_has_samples(profile):
    found = asked(profile, 2, "batch_per_worker=32", "samples=6400")
    assert found.epoch_s.value == pytest.approx(100 * found.step_s.value, rel=0.01)


def test_several_values_give_a_prediction_each(profile):
    queries = read_queries(["interconnect.bandwidth=100Mbit/s,200Mbit/s", "bucket_mb=1,25"], profile)
    found = predict(profile, [2, 3], queries)
    assert len(found) == 8
    assert {tuple(each.query.texts.values()) for each in found} == {
        (rate, size) for rate in ("100Mbit/s", "200Mbit/s") for size in ("1", "25")
    }


def test_another_workload_reaches_far_and_has_a_wide_interval(profile):
    same, other = asked(profile, 2), asked(profile, 2, "workload=resnet50")
    assert other.extrapolation > 5
    assert np.log(other.step_s.high / other.step_s.low) > 2 * np.log(same.step_s.high / same.step_s.low)


def test_a_workload_that_was_measured_is_not_scaled():
    other = replace(KEY, workload="lenet5", input_shape=(1, 28, 28))
    both = [*observed(World(), 1), *observed(World(), 2, key=other)]
    found = asked(a_profile(both), 2, "workload=lenet5")
    assert found.extrapolation == 1.0


def test_a_profile_predicts_other_strategies_from_their_exchange(profile):
    found = asked(profile, 3, "strategy=ps_sync", "servers=1", "interconnect.bandwidth=200Mbit/s")
    assert found.refused is None
    assert found.deployment.servers == 1


def test_more_servers_shorten_a_step_that_servers_hold_up(profile):
    few, many = (
        asked(
            profile, 8, "strategy=ps_sync", f"servers={count}", "interconnect.bandwidth=200Mbit/s", "cores_per_host=1"
        )
        for count in (1, 8)
    )
    assert many.step_s.value < few.step_s.value


def test_asynchronous_workers_do_not_wait_for_each_other(profile):
    found = asked(profile, 3, "strategy=ps_async", "servers=1", "interconnect.bandwidth=10Gbit/s")
    assert found.phases["sync_wait"].value_s == 0.0


def test_the_true_step_is_predicted_well_where_it_was_measured_well():
    world = World(noise=0.01, launches=8)
    profile = a_profile(observed(world, 1))
    for workers, batch in ((2, 32), (3, 64)):
        true, _ = world.step(KEY, a_deployment(workers, batch))
        assert asked(profile, workers, f"batch_per_worker={batch}").step_s.value == pytest.approx(true, rel=0.04)


def benchmarked(beyond_s: float = 0.0, back_end: str = "made up", rate: float = World.rate):
    """Return the profile of two hosts whose benchmark took so much longer in each step than the wire does."""
    world = World(rate=rate)
    wire = 2 * world.alpha_s
    link = NetLink(
        framework=KEY.framework,
        back_end=back_end,
        operation="allreduce",
        launcher="emulated",
        workers=2,
        servers=0,
        between_hosts=True,
        nominal_rate=None,
        delay_s=0.0,
        latency_s=wire + beyond_s,
        rate=world.rate,
        alpha_s=world.alpha_s,
        worst_error=0.0,
    )
    slower = replace(world, truth={**world.truth, "latency_factor": 1.0 + beyond_s / wire})
    sizes = ((1, 16), (1, 32), (1, 64), (2, 16), (2, 32))
    return a_profile(observed(slower, 1, sizes), (link,))


def test_a_delay_adds_nothing_to_what_is_not_the_wires():
    profiles = (benchmarked(0.003), benchmarked(0.0))
    near, far = (
        [asked(one, 3, f"interconnect.delay={delay}").step_s.value for one in profiles] for delay in ("0ms", "20ms")
    )

    assert far[0] - near[0] == pytest.approx(far[1] - near[1], rel=0.05)


def test_messages_over_gloo_take_longer_where_workers_take_turns_on_a_core():
    """Four workers share two cores: each of a ring's six steps takes a millisecond; of two messages one hides."""
    gloo, other = (benchmarked(back_end=name, rate=1e9) for name in ("gloo", "made up"))

    alone = [asked(one, 4, "cores_per_host=1").step_s.value for one in (gloo, other)]
    shared = [asked(one, 4).step_s.value for one in (gloo, other)]
    assert alone[0] == alone[1]
    assert 5e-3 < shared[0] - shared[1] < 6 * 1.1e-3
