"""Options that need another launcher than their strategy's."""

from pathlib import Path

from steptime.catalog.manifest import Manifest


def manifest() -> Manifest:
    """Return a framework whose option ``controller`` decides who starts it."""
    controller = {
        "help": "who brings the workers together",
        "type": "str",
        "default": "gloo",
        "choices": ["gloo", "mpi"],
        "launchers": {"mpi": "mpi"},
    }
    return Manifest.model_validate(
        {
            "name": "made_up",
            "folder": Path(),
            "package": "made_up",
            "title": "Made up",
            "distribution": "made-up",
            "python": ["3.11"],
            "strategies": {"allreduce": {}},
            "options": {"controller": controller},
        }
    )


def test_a_value_that_needs_a_launcher_gets_it() -> None:
    assert manifest().launcher_for("allreduce", {"controller": "mpi"}) == "mpi"


def test_other_values_leave_the_strategys_own() -> None:
    assert manifest().launcher_for("allreduce", {"controller": "gloo"}) == "local"
