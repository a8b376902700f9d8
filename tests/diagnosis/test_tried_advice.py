"""Gains of tried advice, and how much wider they make the intervals of the next."""

import numpy as np
import pytest

from steptime.diagnosis.form import GAIN_LEVEL
from steptime.diagnosis.tried_advice import VerifiedAdvice, record_of, widened, widening
from steptime.results.json_form import NOT_MEASURED, Interval


def row(predicted, measured, half_width):
    low, high = predicted / np.exp(half_width), predicted * np.exp(half_width)
    bounds = {"predicted_low": low, "predicted_high": high, "rule_low": low, "rule_high": high}
    return VerifiedAdvice(
        rule="input_bound",
        framework="pytorch",
        strategy="single",
        workload="lenet5",
        workers=1,
        batch_per_worker=32,
        overrides="",
        predicted=predicted,
        **bounds,
        measured=measured,
        measured_low=measured,
        measured_high=measured,
        launches=5,
        load=0.0,
    )


def tried(count, error, seed, half_width=0.1):
    generator = np.random.default_rng(seed)
    return [row(1.5, float(1.5 * np.exp(generator.normal(0.0, error))), half_width) for _ in range(count)]


@pytest.mark.parametrize("error", [0.1, 0.3, 0.8])
def test_widened_intervals_hold_what_they_promise(error):
    rng = np.random.default_rng(7)
    inside = []
    for seed in range(200):
        gain = widened(Interval(1.5, 1.5 / np.exp(0.1), 1.5 * np.exp(0.1)), tried(39, error, seed))
        measured = 1.5 * np.exp(rng.normal(0.0, error, 50))
        inside += list((gain.low <= measured) & (measured <= gain.high))
    assert np.mean(inside) == pytest.approx(GAIN_LEVEL, abs=0.03)


def test_intervals_that_hold_more_are_not_narrowed():
    assert widening(tried(39, 0.01, 1)) == (1.0, 1.0)


def test_few_gains_widen_nothing():
    assert widening(tried(18, 0.8, 1)) == (1.0, 1.0)
    assert min(widening(tried(19, 0.8, 1))) > 1.0


def test_gains_beyond_what_was_predicted_lend_no_loss_to_the_low_end():
    rows = [row(1.2, measured, 0.05) for measured in np.linspace(1.2, 3.0, 39)]
    below, above = widening(rows)
    assert (below, above > 2.0) == (1.0, True)
    assert widened(Interval(1.15, 1.1, 1.2), rows).low == 1.1


def test_a_gain_that_is_not_known_stays_so():
    assert widened(NOT_MEASURED, tried(39, 0.8, 1)) == NOT_MEASURED


def test_a_gain_does_not_widen_its_own_interval():
    rows = [*tried(39, 0.05, 3), row(1.5, 15.0, 0.1)]
    assert record_of(rows[-1:], rows).inside == 0


def test_the_record_counts_own_and_widened_intervals():
    rows = tried(60, 0.3, 5)
    record = record_of(rows, rows)
    assert record.inside_unwidened < 0.5 * 60
    assert record.inside == pytest.approx(GAIN_LEVEL * 60, abs=2)
