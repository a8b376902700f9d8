"""Alpha, latencies per step and bandwidth from launches whose truth is known."""

import json

import numpy as np
import pytest
from messages import SIZES, launch, setting

from steptime.analysis.message_times import least_squares, message_times, run_times, through_ends
from steptime.model.collectives import ring
from steptime.model.measured_links import link_of, net_summary
from steptime.results.net_records import read_net

ALPHA, RATE, PER_STEP = 1e-3, 12.5e6, 2.0


def gloo_like(workers: int):
    """4(p-1) alpha + 2(p-1)/p n/B."""
    return lambda size: 2 * (workers - 1) * PER_STEP * ALPHA + 2 * (workers - 1) / workers * size / RATE


def row_of(workers: int = 2, launches: int = 4, **fields):
    wanted = setting(workers)
    (row,) = net_summary([launch(wanted, k, gloo_like(workers), **fields) for k in range(launches)]).rows
    return row


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_planted_latencies_and_bandwidth_are_within_their_intervals(workers):
    row = row_of(workers)
    for found, truth in (
        (row.alpha_s, ALPHA),
        (row.fit.latencies_per_step, PER_STEP),
        (row.fit.bandwidth_bytes_per_s, RATE),
    ):
        assert found.low <= truth <= found.high
        assert found.value == pytest.approx(truth, rel=0.1)


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    held = []
    for series in range(60):
        wanted = setting(2, threads=series + 1)
        truth = gloo_like(2)
        launches = [launch(wanted, k + 100 * series, truth, noise=0.1) for k in range(3)]
        (row,) = net_summary(launches).rows
        held.append(row.fit.bandwidth_bytes_per_s.low <= RATE <= row.fit.bandwidth_bytes_per_s.high)
    assert np.mean(held) >= 0.85


def test_without_noise_the_line_is_exact():
    row = row_of(noise=1e-9)
    assert row.fit.latencies_per_step.value == pytest.approx(PER_STEP, rel=1e-3)
    assert all(abs(size.error) < 1e-3 for size in row.sizes)


def test_the_link_gives_the_ring_model_the_measured_times():
    row = row_of(3, noise=1e-9)
    link = link_of(row)
    for size in row.sizes:
        assert ring(size.bytes, 3, link) == pytest.approx(size.time_s.value, rel=1e-3)


def test_more_workers_are_held_against_what_the_fewest_predict():
    launches = [launch(setting(p), k, gloo_like(p), noise=0.01) for p in (2, 4) for k in range(3)]
    two, four = net_summary(launches).rows
    assert (two.workers, four.workers) == (2, 4)
    assert all(size.predicted_error is None for size in two.sizes)
    assert all(abs(size.predicted_error) < 0.05 for size in four.sizes)


def test_a_back_end_that_takes_longer_with_more_workers_shows_it():
    launches = [launch(setting(2), k, gloo_like(2), noise=0.01) for k in range(3)]
    launches += [launch(setting(4), k, lambda size: 2 * gloo_like(4)(size), noise=0.01) for k in range(3)]
    _, four = net_summary(launches).rows
    assert all(size.predicted_error == pytest.approx(-0.5, abs=0.05) for size in four.sizes)


def test_a_bend_in_the_middle_shows_as_the_error_of_its_size():
    def bent(size):
        return gloo_like(2)(size) * (1.5 if size == SIZES[1] else 1.0)

    (row,) = net_summary([launch(setting(2), k, bent, noise=0.01) for k in range(3)]).rows
    assert row.fit.worst_bytes == SIZES[1]
    assert row.fit.worst_error == pytest.approx(1 / 1.5 - 1, abs=0.03)
    # The line through the ends does not bend with it; that through all does, and misses the smallest size.
    assert row.sizes[0].error == pytest.approx(0, abs=1e-9)


def test_one_launch_has_an_interval_over_its_rounds_and_says_so():
    row = row_of(launches=1)
    assert row.interval_over == "rounds"
    assert row.fit.bandwidth_bytes_per_s.low < row.fit.bandwidth_bytes_per_s.high
    assert row_of(launches=2).interval_over == "launches"


def test_a_launch_with_a_wrong_value_leaves_no_numbers_and_says_how_often():
    good = [launch(setting(2), k, gloo_like(2)) for k in range(2)]
    bad = launch(setting(2), 2, gloo_like(2), status="wrong", wrong=3)
    (row,) = net_summary([*good, bad]).rows
    assert (row.status, row.fit, row.sizes) == ("wrong", None, [])
    assert (row.launches, row.wrong_launches) == (2, 1)
    assert row.wrong == 6  # three visits, on each of two workers


def test_a_back_end_that_failed_is_a_row_with_its_reason():
    (row,) = net_summary([launch(setting(2), 0, gloo_like(2), status="failed")]).rows
    assert (row.status, row.reason, row.fit, row.alpha_s.value) == ("failed", "because", None, None)


def test_clocks_of_hosts_do_not_matter():
    wanted = setting(3)
    apart = launch(wanted, 0, gloo_like(3), noise=0.01)
    together = launch(wanted, 0, gloo_like(3), noise=0.01, hosts=False)
    assert run_times(apart, 0) == pytest.approx(run_times(together, 0), abs=3e-6)


def test_the_units_of_several_launches_are_the_launches():
    times, units = message_times([launch(setting(2), k, gloo_like(2)) for k in range(3)], "allreduce")
    assert units == "launches"
    assert {size: len(each) for size, each in times.items()} == dict.fromkeys(SIZES, 3)
    assert all(len(runs) == 50 for runs in times[SIZES[0]])


def test_a_record_survives_its_file():
    wanted = setting(2, options={"bucket_mb": 25.0})
    before = launch(wanted, 0, gloo_like(2))
    after = read_net(json.dumps(before.to_json()).encode())
    assert after == before
    assert after.setting.id == wanted.id


def test_both_lines_find_a_line():
    sizes = np.array(SIZES, dtype=float)
    for method in (through_ends, least_squares):
        line = method(sizes, 3e-3 + sizes / 5e6)
        assert (line.start_s, line.per_byte_s) == (pytest.approx(3e-3), pytest.approx(2e-7))


def test_least_squares_weighs_errors_by_their_share_and_not_by_their_seconds():
    sizes = np.array(SIZES, dtype=float)
    seconds = 1e-3 + sizes / 1e6
    seconds[-1] *= 1.2  # 0.84 s, beside which the smallest sizes are nothing
    line = least_squares(sizes, seconds)
    assert line.start_s == pytest.approx(1e-3, rel=0.2)


def test_a_bandwidth_that_no_size_shows_is_unknown_and_not_infinite():
    (row,) = net_summary([launch(setting(2), k, lambda size: 1e-3 - 1e-11 * size, noise=1e-9) for k in range(3)]).rows
    assert row.fit.bandwidth_bytes_per_s.value is None
    assert link_of(row) is None
