"""The examples in the docstrings of the simulator and of the step graph are true."""

import doctest
import pkgutil
from importlib import import_module

import pytest

import steptime.model
import steptime.simulate

MODULES = [
    module.name
    for room in (steptime.simulate, steptime.model)
    for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}.")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_true(name):
    assert doctest.testmod(import_module(name)).failed == 0
