"""How numbers are written."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from summaries import trial

from steptime.analysis.summary_form import Efficiency, StepTime
from steptime.document import number_format as wording
from steptime.results.json_form import IntervalOverLaunches

POSITIVE = st.floats(1e-6, 1e9)
WIDTH = st.floats(1e-6, 0.9)
ONE_NUMBER = r"[0-9]+(\.[0-9]+)?"


@given(POSITIVE, WIDTH)
def test_every_measured_number_comes_with_its_interval(value, width):
    low, high = value * (1 - width), value * (1 + width)
    shown = [
        wording.throughput(IntervalOverLaunches(value=value, low=low, high=high)),
        wording.ratio(IntervalOverLaunches(value=value, low=low, high=high)),
        wording.step_time(StepTime(mean=value, low=low, high=high)),
        wording.share(
            trial(workers=2).model_copy(
                update={"efficiency": Efficiency(value=value, low=low, high=high, baseline_workers=1)}
            )
        ),
    ]

    for each in shown:
        assert re.fullmatch(rf"{ONE_NUMBER}( ms| µs| s|x| %)? \({ONE_NUMBER} to {ONE_NUMBER}\)", each.line)


@given(POSITIVE, WIDTH)
def test_an_interval_that_is_shown_holds_its_number_and_errs_by_a_tenth_of_its_width_at_most(value, width):
    low, high = value * (1 - width), value * (1 + width)
    shown = wording.throughput(IntervalOverLaunches(value=value, low=low, high=high))
    text, lowest, highest = (float(each) for each in [shown.text, *shown.interval.split(" to ")])

    assert lowest <= text <= highest
    # Five digits are the most that is shown, however narrow the interval.
    assert lowest == pytest.approx(low, abs=0.51 * width * value, rel=1e-4)
    assert highest == pytest.approx(high, abs=0.51 * width * value, rel=1e-4)


@pytest.mark.parametrize(
    "shown",
    [
        wording.throughput(IntervalOverLaunches(None)),
        wording.ratio(IntervalOverLaunches(None)),
        wording.step_time(StepTime()),
        wording.share(trial(efficiency=None)),
    ],
    ids=["throughput", "ratio", "step time", "efficiency"],
)
def test_what_is_not_known_is_a_dash_and_never_zero(shown):
    assert shown.line == "-"


def test_a_distance_that_is_not_known_is_a_dash():
    assert wording.distance(None) == "-"


def test_a_distance_of_zero_is_zero():
    assert wording.distance(0.0) == "0"


def test_what_is_relative_to_itself_has_no_interval():
    assert wording.times(1.0, 1.0, 1.0).line == "1.00x"


def test_a_number_without_an_interval_says_so():
    assert wording.throughput(IntervalOverLaunches(value=1234.0)).line == "1234 (no interval)"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0000123, "12.3 µs (12.2 to 12.4)"),
        (0.0123, "12.3 ms (12.2 to 12.4)"),
        (0.99996, "1000 ms (990 to 1010)"),
        (1.23, "1.23 s (1.22 to 1.24)"),
        (75.2, "75.2 s (74.4 to 76.0)"),
    ],
)
def test_a_step_time_has_the_unit_that_suits_it(seconds, text):
    assert wording.step_time(StepTime(mean=seconds, low=seconds * 0.99, high=seconds * 1.01)).line == text


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (1.24, 1.20, 1.29, "1.24x (1.20 to 1.29)"),
        (1.0048, 0.9996, 1.0100, "1.005x (1.000 to 1.010)"),
        (12.345678, 12.345677, 12.345679, "12.346x (12.346 to 12.346)"),
    ],
)
def test_a_narrow_interval_gets_more_digits(value, low, high, text):
    assert wording.ratio(IntervalOverLaunches(value=value, low=low, high=high)).line == text


def test_digits_that_the_interval_does_not_know_are_rounded_away():
    assert (
        wording.throughput(IntervalOverLaunches(value=36188.4, low=35464.2, high=36912.9)).line
        == "36190 (35460 to 36910)"
    )


def test_a_baseline_is_called_so_instead_of_100_percent_of_itself():
    own = trial(workers=1).model_copy(
        update={"efficiency": Efficiency(value=1.0, low=1.0, high=1.0, baseline_workers=1)}
    )

    assert wording.share(own).line == "baseline"


def test_an_efficiency_names_its_baseline():
    assert wording.baseline(trial(efficiency=0.9)) == "vs 1 worker"


@pytest.mark.parametrize(
    ("amount", "noun", "text"),
    [(1, "worker", "1 worker"), (2, "worker", "2 workers"), (1, "launch", "1 launch"), (3, "launch", "3 launches")],
)
def test_nouns_follow_their_number(amount, noun, text):
    assert wording.count(amount, noun) == text


@pytest.mark.parametrize(
    ("low", "high", "line"),
    [
        (0.0, 1.28, "inconclusive"),
        (0.1, 11.3, "inconclusive"),
        (0.2, 1.0, "inconclusive"),
        (0.0, 0.5, "at most 50.0 %"),
        (0.5, 1.28, "80.0 % (50.0 to 128.0)"),
    ],
)
def test_a_share_that_may_be_all_is_no_bound(low, high, line):
    assert wording.percent(0.8 if high >= 1.0 else 0.2, low, high).line == line
