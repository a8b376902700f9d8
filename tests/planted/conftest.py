"""Plants are measured once per attempt, and claims about them hold where the machine was quiet."""

from collections.abc import Callable, Generator
from functools import cache
from pathlib import Path

import pytest

pytest.register_assert_rewrite("plants")  # a launch that failed is then named with its reason

from plants import Plant  # noqa: E402

Plants = Callable[[Path], list[Plant]]


class Measured:
    """What the plants of one attempt of a test were measured to do, and what else the machine did meanwhile."""

    def __init__(self, measurements: Callable[[Plants, int], list[Plant]], attempt: int) -> None:
        """Take plants from ``measurements``, anew in every attempt."""
        self._measurements = measurements
        self.attempt = attempt
        self.noise: set[str] = set()

    def __call__(self, plants: Plants) -> list[Plant]:
        """Measure ``plants``, or return what another test of this attempt has measured."""
        found = self._measurements(plants, self.attempt)
        self.noise |= {flag for plant in found for flag in plant.noise()}
        return found


@pytest.fixture(scope="session")
def measurements(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Plants, int], list[Plant]]:
    return cache(lambda plants, attempt: plants(tmp_path_factory.mktemp(f"{plants.__name__}-{attempt}")))


@pytest.fixture
def measured(measurements, request) -> Measured:
    return Measured(measurements, request.node.execution_count)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Skip what failed twice where others kept the machine busy: no claim is made about such a machine."""
    try:
        return (yield)
    except AssertionError:
        seen = pyfuncitem.funcargs.get("measured")
        if isinstance(seen, Measured) and seen.attempt > 1 and seen.noise:
            pytest.skip(f"the machine was busy: {'; '.join(sorted(seen.noise))}")
        raise
