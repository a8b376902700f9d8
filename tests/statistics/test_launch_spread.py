"""Whether intervals hold the truth where the spread of launches is pooled over the trials of a study.

benchmarks/core/noise_shapes.py counts more cells with more repetitions; here each has 100 studies,
whose 600 or 1800 intervals leave a standard error of 0.5 to 1 percentage points, more where all trials drift alike.
"""

import numpy as np
import pytest
import scipy.sparse.csgraph

from steptime.statistics.drift import BlockEffects
from steptime.statistics.interval import LEVEL, half_width_between
from steptime.statistics.launch_spread import (
    TrialSpread,
    pool_spread,
    pooled_error,
    spreads_of,
)
from steptime.statistics.launch_times import reduce_times
from steptime.statistics.two_way import Layout


def half_widths(logs):
    """Return the pooled half-width of each row of ``logs``, trials x blocks."""
    share = 1.0 / logs.shape[1]
    of_blocks = dict.fromkeys(range(logs.shape[1]), share)
    return np.array([pooled_error([(each, of_blocks)], LEVEL).half_width for each in spreads_of(logs)])


def studies(trials, launches, *, factor=1.0, drift=0.0, repetitions=100):
    """Yield log medians around 0 of trials whose spreads differ by up to ``factor``, in blocks that drift."""
    rng = np.random.default_rng(3)
    for _ in range(repetitions):
        spread = factor ** rng.uniform(0.0, 1.0, (trials, 1))
        yield spread * rng.standard_normal((trials, launches)) + drift * rng.standard_normal(launches)


@pytest.mark.sampled
@pytest.mark.parametrize("factor", [1.0, 3.0], ids=["alike", "threefold"])
@pytest.mark.parametrize(("trials", "launches"), [(6, 2), (6, 3), (18, 2), (18, 3), (18, 5), (18, 10)])
def test_intervals_hold_the_truth_whether_spreads_differ_or_not(trials, launches, factor):
    covered = [np.abs(logs.mean(axis=1)) <= half_widths(logs) for logs in studies(trials, launches, factor=factor)]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.025)


@pytest.mark.sampled
@pytest.mark.parametrize("launches", [2, 3, 5])
def test_intervals_hold_the_truth_where_the_machine_drifts_between_blocks(launches):
    logs = list(studies(6, launches, drift=3.0, repetitions=200))
    covered = [np.abs(each.mean(axis=1)) <= half_widths(each) for each in logs]
    assert np.mean(covered) == pytest.approx(0.955, abs=0.035)


@pytest.mark.parametrize(("launches", "most"), [(2, 0.40), (3, 0.67)])
def test_eighteen_trials_narrow_the_intervals_of_two_and_three_launches(launches, most):
    logs = list(studies(18, launches, repetitions=30))
    alone = np.median([half_width_between(each) for each in logs])
    assert np.median([half_widths(each) for each in logs]) < most * alone


def test_a_trial_that_spreads_as_no_other_does_keeps_its_own_interval():
    logs = np.random.default_rng(0).standard_normal((18, 3)) * 0.01
    logs[0] = [0.0, 1.0, -1.0]
    others, own = half_widths(logs)[1:], half_widths(logs)[0]
    assert own > 0.8 * float(half_width_between(logs[0]))
    assert np.median(others) < 0.05


def test_one_trial_and_two_have_nothing_to_pool():
    logs = np.random.default_rng(0).standard_normal((2, 3))
    assert spreads_of(logs[:1]) == spreads_of(logs) == []


def test_a_study_without_repetition_has_nothing_to_pool():
    launches = {str(name): reduce_times([np.full(20, 0.1 + name)]) for name in range(5)}
    assert pool_spread(launches) == {}


@pytest.mark.parametrize(
    "blocks",
    [
        [(17, 11), (20, 28, 19, 5), (11, 9, 10), (21, 11, 19)],
        [(0, 1), (1, 2), (2, 3)],
        [(0, 1), (1, 2), (3, 4), (4, 5, 6)],
        [(0, 1, 2), (2, 3), (4, 5)],
    ],
    ids=["a tree", "a chain", "two chains", "one apart"],
)
def test_launches_that_their_blocks_explain_have_nothing_to_pool(blocks):
    rng = np.random.default_rng(5)
    trials = {str(row): reduce_times(np.exp(rng.normal(0, 0.01, (len(of), 1))), of) for row, of in enumerate(blocks)}
    assert pool_spread(trials) == {}


def test_a_trial_with_one_launch_is_as_unsure_as_the_others_are_of_one():
    logs = np.random.default_rng(0).standard_normal((12, 3)) * 0.01
    logs[0, 1:] = np.nan
    found = spreads_of(logs)
    alone = pooled_error([(found[0], {0: 1.0})], LEVEL).half_width
    three = pooled_error([(found[1], dict.fromkeys(range(3), 1 / 3))], LEVEL).half_width
    assert alone > 1.5 * three


def of_two_workloads(logs):
    """Return the launches of trials x blocks, and the workload of each: the first half of the trials has another."""
    trials = {str(row): reduce_times([np.exp([log]) for log in own]) for row, own in enumerate(logs)}
    return trials, {name: "long" if int(name) < len(logs) // 2 else "short" for name in trials}


def test_a_drift_of_one_workload_leaves_the_intervals_of_another_alone():
    logs = 0.01 * np.random.default_rng(0).standard_normal((8, 4))
    trials, workloads = of_two_workloads(logs)
    steady = pool_spread(trials, workloads)["0"]
    logs[4:] += [0.2, 0.1, -0.1, -0.2]
    trials, workloads = of_two_workloads(logs)
    drifting, together = pool_spread(trials, workloads)["0"], pool_spread(trials)["0"]
    of_blocks = dict.fromkeys(range(4), 0.25)
    widths = [pooled_error([(each, of_blocks)], LEVEL).half_width for each in (steady, drifting, together)]
    assert widths[1] == pytest.approx(widths[0], rel=0.01)
    assert widths[2] > 3.0 * widths[1]


@pytest.mark.sampled
@pytest.mark.parametrize("felt", [(1.0, 1.0), (0.0, 1.0)], ids=["by both", "by one"])
@pytest.mark.parametrize("launches", [2, 3, 5])
def test_intervals_of_workloads_hold_the_truth_whoever_feels_the_drift(launches, felt):
    rng = np.random.default_rng(launches)
    covered = []
    for _ in range(100):
        drift = 3.0 * np.repeat(felt, 4)[:, None] * rng.standard_normal(launches)
        trials, workloads = of_two_workloads(0.01 * (rng.standard_normal((8, launches)) + drift))
        of_blocks = dict.fromkeys(range(launches), 1.0 / launches)
        for name, spread in pool_spread(trials, workloads).items():
            centre = np.mean([each.log_mean for each in trials[name]])
            covered.append(abs(centre) <= pooled_error([(spread, of_blocks)], LEVEL).half_width)
    assert np.mean(covered) >= 0.93


@pytest.mark.parametrize("few", [1, 2])
def test_a_workload_of_fewer_than_three_trials_drifts_as_the_others(few):
    logs = 0.01 * np.random.default_rng(0).standard_normal((8, 3))
    trials, _ = of_two_workloads(logs)
    workloads = {name: "few" if int(name) < few else "many" for name in trials}
    assert pool_spread(trials, workloads) == pool_spread(trials)


def test_drifts_of_two_workloads_are_not_taken_to_cancel():
    logs = 0.01 * np.random.default_rng(0).standard_normal((8, 3)) + np.array([0.0, 0.1, -0.1])
    trials, workloads = of_two_workloads(logs)
    spreads = pool_spread(trials, workloads)
    of_blocks = dict.fromkeys(range(3), 1 / 6)
    both = [(spreads[name], of_blocks) for name in ("0", "4")]
    one = pooled_error([(spreads["0"], dict.fromkeys(range(3), 1 / 3))], LEVEL).half_width
    assert pooled_error(both, LEVEL).half_width > 0.8 * one


def test_a_drift_that_all_trials_share_cancels_in_the_ratio_of_two():
    rng = np.random.default_rng(0)
    own, drift = 0.01 * rng.standard_normal((8, 3)), np.array([0.0, 1.0, -1.0])
    spreads = spreads_of(own + drift)
    shares = [(spreads[0], dict.fromkeys(range(3), 1 / 3)), (spreads[1], dict.fromkeys(range(3), -1 / 3))]
    assert pooled_error(shares, LEVEL).half_width < 0.05


def test_a_trial_without_any_spread_of_its_own_gets_a_finite_interval():
    logs = np.random.default_rng(0).standard_normal((6, 2)) * 0.01
    logs[2] = 0.0
    assert 0.0 < half_widths(logs)[2] < 0.1


@pytest.mark.parametrize("other", range(1, 9))
@pytest.mark.parametrize("launches", range(1, 9))
def test_launches_alone_in_their_blocks_have_the_error_of_their_blocks(launches, other):
    spread = TrialSpread(0.2, 3.0, 1.0, 2.0, 1.0, BlockEffects(0.1, 3.0, drifted=True, residual_freedom=5.0))
    sides = [(1, launches), (-1, other)]
    shares = [(spread, {(sign, block): sign / count for block in range(count)}) for sign, count in sides]
    assert pooled_error(shares, LEVEL).error == pytest.approx(np.sqrt(0.1 * (1 / launches + 1 / other)))


def in_two_states(trials, launches, repetitions):
    """Yield logarithms of equal trials whose launches end in one of two states, 5 % apart."""
    rng = np.random.default_rng([trials, launches])
    for _ in range(repetitions):
        states = rng.integers(2, size=(trials, launches)) - 0.5
        yield 0.05 * states + 0.004 * rng.standard_normal((trials, launches))


@pytest.mark.sampled
@pytest.mark.parametrize(("trials", "launches"), [(4, 2), (4, 3), (8, 4)])
def test_trials_that_saw_one_of_two_states_have_intervals_that_hold_the_middle(trials, launches):
    covered = [np.abs(logs.mean(axis=1)) <= half_widths(logs) for logs in in_two_states(trials, launches, 60)]
    assert np.mean(covered) >= 0.9


def test_long_steps_do_not_take_the_spread_of_short_ones():
    rng = np.random.default_rng(0)
    short = np.arange(16) % 2 == 0
    logs = np.where(short, 0.10, 0.02)[:, None] * rng.standard_normal((16, 2)) + np.where(short, -4.6, -1.0)[:, None]
    widths = half_widths(logs)
    assert np.median(widths[~short]) < 0.5 * np.median(widths[short])


def test_spreads_of_steps_as_long_follow_no_trend():
    logs = 0.02 * np.random.default_rng(0).standard_normal((8, 3))
    moved = logs + 0.01 * np.arange(8)[:, None]
    assert half_widths(moved) == pytest.approx(half_widths(logs), rel=0.05)


@pytest.mark.parametrize("launches", [1, 30, 60, 120, 400])
def test_blocks_and_trials_that_share_launches_are_connected(launches):
    rng = np.random.default_rng(launches)
    rows, columns = rng.integers(0, 60, launches), rng.integers(0, 40, launches)
    rows, columns = (np.unique(each, return_inverse=True)[1] for each in (rows, columns))
    trials, blocks = rows.max() + 1, columns.max() + 1
    joined = scipy.sparse.coo_array((np.ones(launches), (rows, columns + trials)), (trials + blocks,) * 2)
    count, labels = scipy.sparse.csgraph.connected_components(joined, directed=False)

    layout = Layout(rows, columns, trials, blocks)

    assert layout.free_blocks(np.zeros(blocks, int)).tolist() == [blocks - count]
    assert len({*zip(layout.connected.tolist(), labels.tolist(), strict=True)}) == count


def test_a_chain_of_blocks_is_connected():
    trials = np.arange(300)
    layout = Layout(np.repeat(trials, 2), np.stack([trials, trials + 1], axis=1).ravel(), 300, 301)

    assert layout.free_blocks(np.zeros(301, int)).tolist() == [300]
