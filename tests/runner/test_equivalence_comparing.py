"""How the gate holds numbers against each other."""

import math

import numpy as np
import pytest

from steptime.runner.equivalence.tolerances import relative_error, update_error, weight_error

EXPECTED = {"a.weight": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), "a.bias": np.zeros(3, np.float32)}


def changed(name: str, by: float) -> dict[str, np.ndarray]:
    weights = {key: value.copy() for key, value in EXPECTED.items()}
    weights[name].flat[1] += by
    return weights


def test_equal_weights_have_no_error():
    assert weight_error(EXPECTED, EXPECTED) == (0.0, "")


def test_one_changed_weight_is_found_and_named():
    error, where = weight_error(changed("a.weight", 0.25), EXPECTED)
    assert (round(error, 6), where) == (0.25, "a.weight")


def test_an_array_that_starts_at_zero_is_compared_too():
    error, where = weight_error(changed("a.bias", 1e-3), EXPECTED)
    assert error == pytest.approx(0.1)
    assert where == "a.bias"


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_weight_that_is_no_number_is_infinitely_far(value):
    assert weight_error(changed("a.weight", value), EXPECTED)[0] == math.inf


def test_missing_weights_are_named():
    with pytest.raises(ValueError, match=r"missing: \['a.bias'\]"):
        weight_error({"a.weight": EXPECTED["a.weight"]}, EXPECTED)


def test_a_wrong_shape_is_named():
    with pytest.raises(ValueError, match=r"a.bias has the shape \(1, 3\)"):
        weight_error({**EXPECTED, "a.bias": np.zeros((1, 3), np.float32)}, EXPECTED)


def test_a_loss_that_is_no_number_is_infinitely_far():
    assert relative_error(math.nan, 1.0) == math.inf


INITIAL = {name: array - 0.5 for name, array in EXPECTED.items()}


def test_an_update_that_was_half_made_is_half_its_length_away():
    halfway = {name: (array + INITIAL[name]) / 2 for name, array in EXPECTED.items()}
    assert update_error(halfway, EXPECTED, INITIAL)[0] == pytest.approx(0.5)


def test_an_update_that_was_not_made_in_one_small_array_is_found():
    error, where = update_error({**EXPECTED, "a.bias": INITIAL["a.bias"]}, EXPECTED, INITIAL)
    assert (error, where) == (pytest.approx(1.0), "a.bias")
