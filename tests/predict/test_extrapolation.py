import pytest

from steptime.predict.extrapolation import Extrapolation, error_growth, ratio_outside


def test_inside_what_was_measured_nothing_is_added():
    assert Extrapolation().deviation == 0.0
    assert ratio_outside(3, [2, 4]) == 1.0


@pytest.mark.parametrize(("asked", "ratio"), [(8, 2.0), (1, 2.0), (4, 1.0)])
def test_beyond_is_a_ratio_in_both_directions(asked, ratio):
    assert ratio_outside(asked, [2, 4]) == ratio


def test_each_doubling_of_workers_adds_the_same():
    assert Extrapolation(workers=8.0).deviation == pytest.approx(3 * Extrapolation(workers=2.0).deviation)


def test_the_rule_reproduces_the_residuals_that_it_was_read_off():
    """90 % quantiles of 0.073 and 0.176 within a regime, 0.191 twice one step out, at reach 2 and 4."""
    for workers, inside, out in ((2.0, 0.073, 0.191), (4.0, 0.176, 0.191)):
        assert 1.6449 * Extrapolation(workers=workers).deviation == pytest.approx(inside, rel=0.2)
        assert 1.6449 * Extrapolation(workers=workers, crosses=True).deviation == pytest.approx(out, rel=0.25)


@pytest.mark.parametrize("axis", ["workers", "batch", "bandwidth", "workload"])
def test_every_axis_widens(axis):
    assert Extrapolation(**{axis: 4.0}).deviation > 0.0
    assert Extrapolation(**{axis: 4.0}).factor == 4.0


def test_another_workload_is_the_widest_of_all():
    assert error_growth().workload > error_growth().crossing > error_growth().per_doubling
