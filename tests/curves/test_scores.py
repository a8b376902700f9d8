"""Scoring predictions, and the nulls beside them."""

import numpy as np
import pytest
from tables import curve

from steptime.curves.shape import learned_sources, priors_for
from steptime.errors import UsageError
from steptime.scaling.assessment import ScoredPoint, assess, score, score_references


def scored(measured, predicted, low=0.5, high=2.0):
    return ScoredPoint("one", "somewhere", "seen", 8, measured, predicted, low, high)


def test_errors_are_in_percent_of_what_was_measured():
    found = score([scored(1.0, 1.1), scored(1.0, 0.8)])
    assert (found.mape, found.median_ape) == pytest.approx((15.0, 15.0))
    assert found.bias == pytest.approx(-5.0)


def test_a_truth_outside_its_interval_costs_twenty_times_its_distance():
    inside = score([scored(1.0, 1.0)])
    outside = score([scored(4.0, 1.0)])
    assert inside.interval_score == pytest.approx(np.log(4))
    assert outside.interval_score == pytest.approx(np.log(4) + 20 * np.log(2))
    assert (inside.coverage90, outside.coverage90) == (1, 0)


def test_the_last_time_repeats_and_the_first_scales_perfectly(tmp_path):
    one = curve(tmp_path, {1: 0.2, 4: 0.3, 16: 0.4}, holdout={16})
    found = score_references([one])
    assert [found[name][0].predicted for name in ("linear", "last")] == pytest.approx([0.2, 0.3])


def test_each_doubling_costs_the_same_in_the_third_null(tmp_path):
    one = curve(tmp_path, {1: 0.2, 4: 0.3, 16: 0.4}, holdout={16})
    assert score_references([one])["log2"][0].predicted == pytest.approx(0.4)


def test_an_assessment_has_every_point_and_every_null(tmp_path):
    found = assess([curve(tmp_path, {1: 0.2, 2: 0.21, 4: 0.22, 8: 0.23}, holdout={4, 8})])
    assert [point["workers"] for point in found["points"]] == [4, 8]
    assert set(found["null_models"]) == {"linear", "last", "log2"}
    assert set(found["reference_models"]) == {
        "amdahl",
        "usl",
        "pmnf",
        "generic",
        "ssgd",
        "ssgd_wait_free",
        "paleo",
    }
    assert found["summary"]["by_class"]["seen"]["n"] == 2
    assert found["summary"]["by_source"]["somewhere"]["n"] == 2


def test_points_below_those_fitted_are_scored_too(tmp_path):
    """A line through 8 and 16 workers meets no time at all at one."""
    found = assess([curve(tmp_path, {1: 0.15, 8: 0.2, 16: 0.3}, holdout={1})])
    assert found["summary"]["all"]["n"] == 1
    assert all(score["n"] == 1 for score in found["null_models"].values())


def test_curves_without_a_held_out_row_are_refused_with_the_remedy(tmp_path):
    with pytest.raises(UsageError, match=r"role holdout.*steptime predict --curve"):
        assess([curve(tmp_path, {1: 0.2, 2: 0.21})])


def test_a_source_is_never_predicted_with_what_was_learned_from_it():
    assert learned_sources()
    for source in learned_sources():
        assert priors_for(source) != priors_for("a source that nobody knows")
