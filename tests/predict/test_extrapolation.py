import csv
from importlib.resources import files

import numpy as np
import pytest

from steptime.predict.uncertainty import Extrapolation, error_growth, ratio_outside, skewed


def test_inside_what_was_measured_nothing_is_added():
    assert Extrapolation().of_waiting == Extrapolation().of_computing == 0.0
    assert ratio_outside(3, [2, 4]) == 1.0


@pytest.mark.parametrize(("asked", "ratio"), [(8, 2.0), (1, 2.0), (4, 1.0)])
def test_beyond_is_a_ratio_in_both_directions(asked, ratio):
    assert ratio_outside(asked, [2, 4]) == ratio


def test_each_doubling_of_workers_adds_the_same_variance():
    assert Extrapolation(workers=8.0).of_waiting == pytest.approx(3**0.5 * Extrapolation(workers=2.0).of_waiting)


@pytest.mark.parametrize("axis", ["workers", "bandwidth"])
def test_more_workers_and_bandwidth_widen_messages(axis):
    found = Extrapolation(**{axis: 4.0})

    assert found.of_waiting > 0.0
    assert found.of_computing == 0.0
    assert found.factor == 4.0


@pytest.mark.parametrize("axis", ["batch", "workload", "turns"])
def test_batch_workload_and_turns_widen_computing(axis):
    found = Extrapolation(**{axis: 4.0})

    assert found.of_computing > 0.0
    assert found.of_waiting == 0.0


def test_the_first_step_from_one_host_to_several_widens_messages():
    assert Extrapolation(crosses=True).of_waiting == error_growth().crossing > 0.0


def test_messages_are_longer_than_modelled_more_than_they_are_shorter():
    assert skewed(np.array([1.0, -1.0])) == pytest.approx([1.0, -error_growth().shorter])
    assert error_growth().shorter < 1.0


def test_points_that_the_width_was_fitted_to_ship_with_their_sources():
    rows = list(csv.DictReader((files("steptime.predict") / "held_out_points.csv").read_text().splitlines()))

    assert {row["kind"] for row in rows} == {"published", "emulated"}
    assert all(row["source"] and float(row["measured_s"]) > 0.0 for row in rows)
