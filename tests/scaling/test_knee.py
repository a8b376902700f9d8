"""The knee of planted curves, with and without a spread, and of draws of a forecast."""

import numpy as np
import pytest

from steptime.curves.curve import Point, ScalingCurve, Setup
from steptime.curves.posterior import Sampling, posterior, summarize
from steptime.curves.shape import priors_for
from steptime.results.json_form import NOT_MEASURED, Interval
from steptime.scaling.forecast import curve_knees, drawn_log_times
from steptime.scaling.knee import Knee, doublings, knee_line, knees, read_shares

COUNTS = doublings(1, 64)


def knees_of(*falls, shares=(0.8, 0.5), gain=1.5, counts=COUNTS):
    """The knees of draws whose step grows by a share of one worker's with each doubling."""
    seconds = 1.0 + np.outer(falls, np.log2(counts))
    return knees(counts, 1.0 / seconds, np.array(counts) / seconds, shares, gain)


def test_a_planted_curve_has_its_knee_where_it_falls_below_the_share():
    knee = knees_of(0.1)[0]  # 1 / (1 + 0.1 d) is 0.8 at d = 2.5
    assert knee.workers == Interval(6, 6, 6)


def test_the_interval_holds_where_draws_reach_the_share():
    knee = knees_of(*np.linspace(0.05, 0.25, 201))[0]
    assert (knee.workers.low, knee.workers.high) == (2**1.0 + 1, pytest.approx(2 ** (0.25 / 0.06), abs=2))


def test_a_share_that_no_draw_reaches_lies_beyond_the_most_workers():
    knee = knees_of(0.01)[1]
    assert (knee.workers, knee.unreached, knee.searched_to) == (NOT_MEASURED, 1.0, 64)
    assert knee.sentence == "efficiency does not fall below 50 % up to 64 workers, the most that were searched"


def test_an_interval_whose_upper_end_no_draw_reaches_is_open_there():
    knee = knees_of(0.01, 0.1, 0.1)[0]
    assert knee.workers == Interval(6, 6, None)
    assert knee.sentence == "efficiency falls below 80 % at 6 to more than 64 workers (inconclusive)"


def test_a_doubling_that_every_draw_gains_enough_by_is_counted_to_its_larger_end():
    assert knees_of(0.01)[-1].sentence == (
        "every doubling gains at least 1.5x up to 64 workers, the most that were searched"
    )


@pytest.mark.parametrize("falls", [(0.01,), (0.01, 0.01, 0.1), (0.01, 0.1, 0.1), (0.1,), (0.01, 0.06, 0.06)])
def test_a_limit_that_is_not_reached_is_never_said_to_be(falls):
    for knee in knees_of(*falls):
        reached = "falls below" in knee.sentence or "gains less" in knee.sentence
        assert reached == (knee.workers.low is not None)
        assert ("inconclusive" in knee.sentence) or not (reached and knee.workers.value is None)


def test_a_knee_whose_ends_are_one_number_names_it_once():
    knee = Knee("efficiency", 0.8, Interval(2.0, 2.0, 2.0), 64, 0.0)

    assert knee.sentence == "efficiency falls below 80 % at 2 workers"


def test_one_worker_that_waits_for_servers_is_below_its_share_from_the_first():
    knee = Knee("efficiency", 0.8, Interval(1.0, 1.0, 2.0), 64, 0.0)

    assert knee.sentence == "efficiency is below 80 % from 1 worker (1 to 2)"


def test_a_doubling_that_gains_too_little_is_named_by_the_workers_before_it():
    counts = doublings(1, 16)
    throughput = np.array([[1.0, 1.9, 3.5, 5.0, 6.0]])
    knee = knees(counts, throughput / counts, throughput)[-1]
    assert (knee.measure, knee.workers.value, knee.searched_to) == ("doubling", 4, 8)


def test_a_curve_that_begins_below_the_share_has_its_knee_at_its_fewest_workers():
    efficiency = np.array([[0.4, 0.3]])
    assert knees([8, 16], efficiency, efficiency * [8, 16])[0].workers.value == 8


def test_one_number_of_workers_has_no_knee():
    assert knees([1], np.ones((3, 1)), np.ones((3, 1))) == []
    assert knee_line([]) == ""


@pytest.mark.parametrize("text", ["", "0", "100", "80,many", "nan", "-5"])
def test_a_share_that_is_not_a_percentage_is_named(text):
    with pytest.raises(ValueError, match=r"write 80,50|is not a share; write for example 5%"):
        read_shares(text)


def test_shares_are_read_as_percentages_the_largest_first():
    assert read_shares("50, 90%") == read_shares("0.9,0.5") == [0.9, 0.5]


@pytest.fixture(scope="module")
def curve():
    setup = Setup("own", "PyTorch", "allreduce", "resnet50", "fp32", "V100", "", 64, 4, "", "", 1.25e9, 1)
    times = {1: 0.2, 2: 0.204, 4: 0.21, 8: 0.25}
    return ScalingCurve("own", setup, tuple(Point(count, None, time) for count, time in times.items()), ())


@pytest.fixture(scope="module")
def samples(curve):
    return posterior(curve, [(64, None)], priors_for("own"), Sampling(log_samples=11))


def test_draws_of_a_curve_have_the_interval_of_its_forecast(curve, samples):
    (step,) = summarize(samples)
    low, middle, high = np.quantile(np.exp(drawn_log_times(curve, samples, [16, 64])[:, 1]), (0.05, 0.5, 0.95))
    assert middle == pytest.approx(step.value, rel=0.02)
    assert np.log(high / low) == pytest.approx(np.log(step.high / step.low), rel=0.15)


def test_the_knee_of_a_curve_lies_where_its_forecast_falls_below_the_share(curve, samples):
    share = float(np.median(0.2 / np.exp(drawn_log_times(curve, samples, doublings(1))[:, 6])))
    knee = curve_knees(curve, samples, shares=[share])[0]
    assert 32 < knee.workers.value <= 64
    assert knee.workers.low <= knee.workers.value
