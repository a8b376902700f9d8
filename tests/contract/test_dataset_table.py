"""What holds for every built-in dataset as it stands in the table; tests/datasets looks at what is made."""

import ast

import pytest
from packaging.requirements import Requirement

from steptime.datasets.builtins import BUILTINS, REQUIREMENTS, Builtin
from steptime.environments.locks import requirement_lines


@pytest.fixture(params=sorted(BUILTINS))
def builtin(request: pytest.FixtureRequest) -> Builtin:
    """Each entry."""
    return BUILTINS[request.param]


def test_a_dataset_says_where_its_pictures_come_from_and_under_which_licence(builtin):
    assert BUILTINS[builtin.name] is builtin
    assert str(builtin.samples) in builtin.title
    assert len(builtin.source) > 20
    assert len(builtin.licence) > 2


def test_every_class_is_named_once_and_has_samples(builtin):
    assert 1 < len(set(builtin.classes)) == len(builtin.classes) <= builtin.samples


def test_arrays_have_a_shape_and_folders_of_images_are_cut_to_any(builtin):
    assert (builtin.input_shape is not None) == (builtin.form == "arrays")


def test_its_maker_is_a_program_that_knows_nothing_of_steptime_and_fetches_nothing(builtin):
    imported = set()
    for node in ast.walk(ast.parse(builtin.maker.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported.add(node.module.split(".")[0])
    assert imported
    assert not imported & {"steptime", "urllib", "requests", "http", "socket", "pooch"}


def test_what_makers_need_is_pinned_or_ranged():
    assert [line for line in requirement_lines(REQUIREMENTS) if not Requirement(line).specifier] == []
