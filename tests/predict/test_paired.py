"""One prediction over another: what both share cancels, what they do not share stays."""

import numpy as np
import pytest
from gpu_hosts import a_gpu_observation, a_gpu_profile
from test_recovery import predictions_of_world, world_of
from world import KEY, a_deployment, a_profile, observed

from steptime.fitting.step_model import phases_of, step_of
from steptime.predict.paired import paired_ratios
from steptime.predict.predict import predict
from steptime.predict.query import read_queries

BATCH = 32


def ratios(profile, workers, *overrides):
    """Return the pairs of the only model of several workers."""
    return pairs(predict(profile, workers, read_queries(overrides, profile)))


def pairs(predictions):
    (key,) = {each.key for each in predictions if each.key.strategy == "allreduce"}
    return paired_ratios([each for each in predictions if each.key == key])


@pytest.fixture(scope="module")
def worlds():
    """For each made-up world, the time of 4 workers over that of 2 as it is true, and as it is predicted."""
    rows = []
    for seed in range(40):
        world = world_of(seed)
        (pair,) = pairs(predictions_of_world(seed))
        (two, _), (four, _) = (world.step(KEY, a_deployment(count, BATCH)) for count in (2, 4))
        rows.append((four / two * 2 / 4, pair))
    return rows


def test_the_true_ratio_lies_in_its_interval_most_of_the_time(worlds):
    assert sum(pair.time.low <= true <= pair.time.high for true, pair in worlds) >= 34


def test_a_ratio_is_narrower_than_the_intervals_of_its_ends_suggest(worlds):
    for _, pair in worlds:
        ends = [each.step_s.high / each.step_s.low for each in (pair.baseline, pair.other)]
        assert pair.time.high / pair.time.low < ends[0] * ends[1]


def test_no_ratio_is_narrower_than_the_launches_of_both_make_it(worlds):
    for _, pair in worlds:
        spread = np.log(pair.time.high / pair.time.low) / (2 * 1.645)
        assert spread > 0.01


@pytest.fixture(scope="module")
def gpu_host():
    return a_gpu_profile(a_gpu_observation(8, 0.111, 0.030))


def test_worker_hours_are_the_time_by_the_workers(gpu_host):
    (pair,) = ratios(gpu_host, [16, 64], "workers_per_host=8", "interconnect.bandwidth=25Gbit/s")
    assert pair.worker_time.high == pytest.approx(4 * pair.time.high)


def test_twice_the_workers_with_half_the_batch_each_take_the_time_of_a_step(gpu_host):
    link = ["workers_per_host=8", "interconnect.bandwidth=25Gbit/s"]
    (pair,) = ratios(gpu_host, [16, 32], "global_batch=1024", *link)
    assert pair.time.value == pytest.approx(pair.other.step_s.value / pair.baseline.step_s.value, rel=0.02)


def test_a_quicker_link_takes_less_time_with_the_most_workers_that_both_have(gpu_host):
    pairs = ratios(gpu_host, [16, 64], "workers_per_host=8", "interconnect.bandwidth=10Gbit/s,100Gbit/s")
    (across,) = [pair for pair in pairs if pair.baseline.query.texts != pair.other.query.texts]
    assert (across.baseline.workers, across.other.workers) == (64, 64)
    assert across.time.high < 1.0


def test_what_is_not_known_of_one_link_is_shared_and_that_of_two_is_not(gpu_host):
    pairs = ratios(gpu_host, [32, 64], "workers_per_host=8", "interconnect.bandwidth=1Gbit/s,1.01Gbit/s")
    same, _, other = pairs
    assert other.time.high / other.time.low > 1.2 * same.time.high / same.time.low


@pytest.mark.parametrize("workers", [4, 8, 16])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_quicker_assumed_link_never_takes_longer_and_has_the_same_latency(device, workers, gpu_host):
    profile = gpu_host if device == "cuda" else a_profile(observed(world_of(0), 0))
    rates = "1Gbit/s,10Gbit/s,25Gbit/s,400Gbit/s"
    changes = ["workers_per_host=2", f"interconnect.bandwidth={rates}"]
    changes += ["cores_per_host=2"] if device == "cpu" else []
    found = predict(profile, [workers], read_queries(changes, profile))
    several = [each for each in found if each.key.strategy == "allreduce"]
    assert len(several) == len(rates.split(","))
    steps = [each.step_s.value for each in several]
    assert steps == sorted(steps, reverse=True)
    assert len({each.link.latency_s for each in several}) == 1


def test_a_refused_number_of_workers_is_in_no_pair(gpu_host):
    assert [pair.other.workers for pair in ratios(gpu_host, [2, 8, 64])] == [8]


def test_pairs_and_sensitivities_are_of_the_draws_that_the_prediction_is_of(gpu_host):
    overrides = read_queries(["workers_per_host=8", "interconnect.bandwidth=25Gbit/s"], gpu_host)
    for each in predict(gpu_host, [8, 16, 64], overrides):
        drawn = step_of(phases_of(each.inputs.parameters, each.inputs.model))
        assert float(np.median(drawn)) == each.step_s.value
