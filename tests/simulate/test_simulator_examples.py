"""The examples in the docstrings of the simulator and of the models are true."""

import doctest
import pkgutil
from importlib import import_module

import pytest

MODULES = [
    module.name
    for package in ("steptime.simulate", "steptime.model")
    for module in pkgutil.walk_packages(import_module(package).__path__, f"{package}.")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_true(name):
    assert doctest.testmod(import_module(name)).failed == 0
