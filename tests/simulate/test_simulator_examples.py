"""The examples in the docstrings of the simulator and of the step graph are true."""

import doctest
import pkgutil
from importlib import import_module

import pytest

import steptime.model
import steptime.simulate

MODULES = [
    module.name
    for package in (steptime.simulate, steptime.model)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_true(name):
    assert doctest.testmod(import_module(name)).failed == 0
