"""The classic models of whole curves recover the curves that they describe."""

import numpy as np
import pytest

from steptime.curves.reference_models import REFERENCES

MEASURED = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
ASKED = np.array([64.0, 1024.0])

TRUTHS = {
    "linear": lambda p: 0.3 + 0 * p,
    "last": lambda p: 0.3 + 0 * p,
    "log2": lambda p: 0.3 + 0.02 * np.log2(p),
    "amdahl": lambda p: 0.3 * (0.98 + 0.02 * p),
    "usl": lambda p: 0.3 * (1 + 0.01 * (p - 1) + 0.001 * p * (p - 1)),
    "pmnf": lambda p: 0.3 + 0.01 * p**0.5 * np.log2(p),
    "generic": lambda p: 0.2 + 0.1 * p**0.5,
}

PRECISION = {"generic": 0.02}
"""Relative, where it is not exact: constants that are searched for and held small are not found to the last digit."""


@pytest.mark.parametrize("name", REFERENCES)
def test_a_model_continues_its_own_curve(name):
    truth = TRUTHS[name]
    assert REFERENCES[name](MEASURED, truth(MEASURED), ASKED) == pytest.approx(
        truth(ASKED), rel=PRECISION.get(name, 1e-6)
    )


@pytest.mark.parametrize("name", REFERENCES)
def test_two_points_are_enough_to_say_something(name):
    found = REFERENCES[name](MEASURED[:2], np.array([0.3, 0.31]), ASKED)
    assert np.all(np.isfinite(found))
    assert np.all(found >= 0.29)


@pytest.mark.parametrize("name", REFERENCES)
def test_a_flat_curve_stays_flat(name):
    assert REFERENCES[name](MEASURED, np.full(5, 0.3), ASKED) == pytest.approx([0.3, 0.3], rel=1e-3)
