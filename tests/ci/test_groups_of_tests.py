"""Which tests run in one process when several run side by side."""

from pathlib import Path
from types import SimpleNamespace

import pytest

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("test", "group"),
    [
        ("tests/contract/test_timed_workers.py::test_x[jax-allreduce]", "tests/contract[jax]"),
        ("tests/contract/test_breakdown.py::test_y[jax-single-lenet5]", "tests/contract[jax]"),
        ("tests/contract/test_timed_workers.py::test_x[horovod_pytorch-allreduce]", "tests/contract[horovod_pytorch]"),
        ("tests/contract/test_timed_workers.py::test_x[pytorch-allreduce]", "tests/contract/test_timed_workers.py"),
        ("tests/contract/test_timed_workers.py::test_x[reference-allreduce]", "tests/contract/test_timed_workers.py"),
        ("tests/contract/test_ratchet.py::test_z", "tests/contract/test_ratchet.py"),
        ("tests/frameworks/test_products.py::test_x[jax-single]", "tests/frameworks/test_products.py"),
        ("tests/end_to_end/test_race.py::test_x", "tests/end_to_end"),
    ],
)
def test_tests_that_share_an_import_or_a_launch_are_one_group(
    test: str, group: str, request: pytest.FixtureRequest
) -> None:
    plugin = request.config.pluginmanager.get_plugin(str(TESTS / "conftest.py"))
    scheduler = object.__new__(plugin._OneProcessPerGroup)
    scheduler.config = SimpleNamespace(getoption=lambda _name: None)

    assert scheduler._split_scope(test) == group
