import numpy as np
import pytest

from steptime.statistics.comparison import (
    compare,
    launches_to_show,
    power_to_show,
    smallest_change,
)
from steptime.statistics.interval import step_time
from steptime.statistics.launch_spread import pool_spread
from steptime.statistics.launch_times import reduce_times

REPETITIONS = 2000
RATIO = 1.1


def launches(centres, blocks):
    """Return launches whose step times are known exactly."""
    return reduce_times([np.exp([centre]) for centre in centres], [int(block) for block in blocks])


def compared(rng, slow_blocks, fast_blocks, drift):
    """Compare two trials whose launches vary by 1 %, and in common by ``drift`` from block to block."""
    blocks = rng.normal(0.0, drift, 40)
    slow = np.log(RATIO) + blocks[slow_blocks] + rng.normal(0.0, 0.01, len(slow_blocks))
    fast = blocks[fast_blocks] + rng.normal(0.0, 0.01, len(fast_blocks))
    return compare(launches(slow, slow_blocks), launches(fast, fast_blocks))


SAME_3, SAME_10 = np.arange(3), np.arange(10)


@pytest.mark.sampled
@pytest.mark.parametrize("drift", [0.0, 0.05])
@pytest.mark.parametrize("blocks", [SAME_3, np.arange(5), SAME_10], ids=len)
def test_trials_of_the_same_blocks_cover_the_true_ratio_whatever_drifts(blocks, drift):
    """In 93.5 to 96.5 % of 2000 repetitions: three standard errors."""
    rng = np.random.default_rng(1)
    found = [compared(rng, blocks, blocks, drift) for _ in range(REPETITIONS)]
    assert np.mean([each.low <= RATIO <= each.high for each in found]) == pytest.approx(0.95, abs=0.015)


@pytest.mark.sampled
@pytest.mark.parametrize(("slow", "fast"), [(3, 3), (3, 10), (5, 5)])
def test_trials_without_a_common_block_cover_the_true_ratio(slow, fast):
    """Welch's interval is known to be a little wide with very few launches: 93.5 to 97.5 %."""
    rng = np.random.default_rng(2)
    found = [compared(rng, np.arange(slow), 20 + np.arange(fast), 0.0) for _ in range(REPETITIONS)]
    assert 0.935 <= np.mean([each.low <= RATIO <= each.high for each in found]) <= 0.975


@pytest.mark.sampled
@pytest.mark.parametrize("drift", [0.0, 0.02])
@pytest.mark.parametrize(("slow", "fast"), [(10, 3), (3, 10), (6, 4)])
def test_trials_that_share_some_blocks_cover_the_true_ratio(slow, fast, drift):
    """The approximation of Satterthwaite: 93 % at worst; 2000 repetitions tell 0.6 % apart."""
    rng = np.random.default_rng(3)
    found = [compared(rng, np.arange(slow), np.arange(fast), drift) for _ in range(REPETITIONS)]
    assert 0.92 <= np.mean([each.low <= RATIO <= each.high for each in found]) <= 0.975


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("times_longer", [3, 10, 100, 1e4, 1e6])
def test_a_launch_that_took_many_times_as_long_leaves_every_figure_finite(times_longer, pooled):
    """As one of two launches of 0.2 s on a machine that was taken away from it: t at 99 % is 64 and at 99.7 % 191."""
    slow, fast = launches(np.log([0.001, 0.001 * times_longer]), [0, 1]), launches(np.log([0.001, 0.0011]), [2, 3])
    spreads = pool_spread({"slow": slow, "fast": fast, "other": launches(np.log([0.002, 0.0021]), [0, 1])})
    found = [
        compare(slow, fast, level, (spreads["slow"], spreads["fast"]) if pooled else None, apart=apart)
        for level in (0.95, 0.99, 0.9967)
        for apart in (False, True)
    ]
    figures = [(each.low, each.high, smallest_change(each), power_to_show(each, 0.05)) for each in found]
    assert np.all(np.isfinite(figures))
    assert all(each.tied and launches_to_show(each, 0.05) != 0 for each in found)
    assert np.isfinite(step_time(slow, 0.99).half_width)


def test_equal_trials_are_tied_in_95_of_100_cases():
    rng = np.random.default_rng(4)
    tied = []
    for _ in range(REPETITIONS):
        centres = rng.normal(0.0, 0.01, (2, 5))
        tied.append(compare(launches(centres[0], range(5)), launches(centres[1], range(5))).tied)
    assert np.mean(tied) == pytest.approx(0.95, abs=0.015)


def test_drift_that_hits_both_makes_the_interval_no_wider():
    quiet, drifting = (compared(np.random.default_rng(5), SAME_10, SAME_10, drift) for drift in (0.0, 0.5))
    assert drifting.high / drifting.low < 2.0 * quiet.high / quiet.low
    assert drifting.high / drifting.low < 1.05


def test_the_ratio_is_that_of_the_two_step_times_and_its_inverse_the_other_way_round():
    rng = np.random.default_rng(6)
    slow, fast = launches(rng.normal(0.2, 0.01, 6), range(6)), launches(rng.normal(0.0, 0.01, 4), range(4))
    there, back = compare(slow, fast), compare(fast, slow)
    expected = np.mean([each.log_mean for each in slow]) - np.mean([each.log_mean for each in fast])
    assert np.log(there.ratio) == pytest.approx(expected)
    assert (there.ratio * back.ratio, there.low * back.high) == pytest.approx((1.0, 1.0))


@pytest.mark.parametrize(("blocks", "pairs"), [(range(2), 0), (range(3), 3), (range(1, 5), 4), (range(20, 26), 0)])
def test_blocks_pair_when_there_are_three_of_them(blocks, pairs):
    found = compare(launches(np.zeros(len(blocks)), blocks), launches(np.zeros(8), range(8)))
    assert found.pairs == pairs


def test_one_launch_is_taken_to_vary_as_the_other_trials_do():
    """A prediction interval, sd times the root of 1 + 1 / n."""
    rng = np.random.default_rng(7)
    covered = [compared(rng, np.arange(1), np.arange(5), 0.0) for _ in range(REPETITIONS)]
    assert np.mean([each.low <= RATIO <= each.high for each in covered]) == pytest.approx(0.95, abs=0.015)


def test_two_single_launches_compare_by_their_steps_and_say_so():
    rng = np.random.default_rng(8)
    slow, fast = (reduce_times([scale * np.exp(rng.normal(0.0, 0.02, 400))]) for scale in (1.1, 1.0))
    found = compare(slow, fast)
    assert found.low < 1.1 < found.high
    assert not found.covers_launches
    assert found.launches_to_settle() is None


def test_as_many_more_launches_as_announced_settle_the_comparison():
    rng = np.random.default_rng(9)
    reached = []
    for _ in range(200):
        centres = rng.normal(0.0, 0.03, (2, 4))
        more = compare(launches(centres[0], range(4)), launches(centres[1], range(4))).launches_to_settle(0.03)
        count = 4 + more
        again = rng.normal(0.0, 0.03, (2, count))
        found = compare(launches(again[0], range(count)), launches(again[1], range(count)))
        reached.append(np.sqrt(found.high / found.low) - 1.0)
    assert np.median(reached) == pytest.approx(0.03, rel=0.25)


def test_a_comparison_that_is_narrow_enough_needs_no_more_launches():
    found = compare(launches([0.0, 0.001, 0.0005], range(3)), launches([0.0, 0.0, 0.0005], range(3)))
    assert found.launches_to_settle(0.03) == 0


def test_launches_that_differ_by_nothing_compare_exactly():
    found = compare(launches([0.5] * 3, range(3)), launches([0.0] * 3, range(3)))
    assert (found.ratio, found.low, found.high) == pytest.approx((np.exp(0.5),) * 3)
    assert not found.tied


def test_a_trial_without_a_launch_cannot_be_compared():
    with pytest.raises(ValueError, match="at least one launch of each"):
        compare([], launches([0.0], [0]))
