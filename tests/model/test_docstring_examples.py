"""The examples in the docstrings of the models are true."""

import doctest
import pkgutil
from importlib import import_module

import pytest
import steptime.model

MODULES = [module.name for module in pkgutil.walk_packages(steptime.predict.model.__path__, "steptime.predict.model.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_true(name):
    assert doctest.testmod(import_module(name)).failed == 0
