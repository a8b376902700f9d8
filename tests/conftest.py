"""What all tests share: the modules that start things, and a summary of which frameworks were really trained."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from steptime.frameworks.manifest import load_manifests

# The same cases in every run, and no failure because another program keeps the machine busy.
settings.register_profile("steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")

HERE = Path(__file__).parent
# `launching` starts processes of a framework, `program` the program as a user types it, `standin` is a framework of a
# few lines that no launcher can tell from a real one.
sys.path += [str(HERE / folder) for folder in ("frameworks", "end_to_end", "worker", "launchers")]

from launching import interpreter_for  # noqa: E402 - found through the line above

DEFAULT_ROOMS = {"reference", "pytorch", "tensorflow", "mxnet", "chainer"}
"""Those whose environments `make test` makes; `make test-frameworks` makes the others too."""
ROOMS = set(load_manifests())
_TRAINING = {"contract", "frameworks", "launchers"}
"""Folders whose cases are named after rooms; elsewhere a room's name may be an example."""
ROOM = "trained room"
"""The property of a test that trains in a framework's room; its value is the room's name."""


@pytest.fixture
def trained_room(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> str:
    """The room that the test's parameter ``name`` says, counted in the summary; skips a room that is not installed."""
    name = str(request.node.callspec.params["name"])
    record_property(ROOM, name)
    interpreter_for(name)
    return name


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let two runs share the tests between them, none twice."""
    parser.addoption(
        "--rooms",
        choices=["all", "default", "further"],
        default="all",
        help="leave out what trains in rooms beyond the default ones, or all but that",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what belongs to the other run of the two that share the tests."""
    wanted = config.getoption("--rooms")
    if wanted == "all":
        return
    kept = [item for item in items if (_room(item) in {None, *DEFAULT_ROOMS}) == (wanted == "default")]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


def _room(item: pytest.Item) -> str | None:
    """The room in which a test trains: that of its case, or the one that its module is named after."""
    case = getattr(item, "callspec", None)
    named = [case.params.get(name) for name in ("name", "framework")] if case else []
    stem = item.path.stem.removeprefix("test_")
    named += sorted((room for room in ROOMS if stem == room or stem.startswith(f"{room}_")), key=len, reverse=True)
    return next((room for room in named if room in ROOMS and item.path.parent.name in _TRAINING), None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which rooms the contract suite trained in and why it left out the others: nobody shall have to guess."""
    trained, reasons = set(), {}
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            room = dict(getattr(report, "user_properties", ())).get(ROOM)
            if room is None:
                continue
            if outcome == "skipped":
                reasons.setdefault(room, report.longrepr[2].removeprefix("Skipped: "))
            else:
                trained.add(room)
    if not trained and not reasons:
        return
    rooms = trained | set(reasons)
    terminalreporter.section("frameworks")
    terminalreporter.line(
        f"contract suite trained in {len(trained)} of {len(rooms)} rooms: {', '.join(sorted(trained))}"
    )
    for room in sorted(set(reasons) - trained):
        terminalreporter.line(f"not in {room}: {reasons[room]}")
