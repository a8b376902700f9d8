"""How workers under an MPI launcher end, with the MPI of Chainer's environment."""

from pathlib import Path

import pytest
from launching import interpreter_for

from steptime.execution.run_folder import make_run_folder
from steptime.launchers.request import LaunchOutcome, Request
from steptime.launchers.table import MpiLauncher

pytestmark = pytest.mark.framework("chainer")

# Worker 0 takes its time to end after MPI is finalised, worker 1 does not; one of them may fail then.
ADAPTER = """
import time

from steptime.worker.framework import Framework
from steptime.worker.session import Session


class Ending(Session):
    def __init__(self, place, failing):
        from mpi4py import MPI

        self._mpi = MPI
        self._place = place
        self._failing = failing

    def facts(self):
        return {"framework_version": "1"}

    def step(self):
        self._mpi.COMM_WORLD.Barrier()

    def wait(self):
        pass

    def loss(self):
        return 1.0

    def get_weights(self):
        return None

    def parameter_count(self):
        return 0

    def output_shape(self):
        return []

    def close(self):
        self._mpi.Finalize()
        if self._place.rank == 0:
            time.sleep(0.5)
        if self._place.rank == self._failing:
            raise RuntimeError("too late")

    def abort(self):
        pass


def open_session(job, place):
    return Ending(place, job["failing"])


FRAMEWORK = Framework(open_session)
"""


def run(folder: Path, failing: int | None) -> LaunchOutcome:
    """Run two workers of the adapter above."""
    source = folder / "ending"
    source.mkdir()
    (source / "adapter.py").write_text(ADAPTER)
    job = {"framework": "ending", "mode": "check", "schedule": {"rounds": [1]}, "failing": failing}
    job |= {"device": "cpu", "precision": "fp32"}
    make_run_folder(folder / "run", source, job)
    return MpiLauncher().run(Request(folder / "run", interpreter_for("chainer"), workers=2, time_limit_s=60))


def test_a_worker_that_ends_early_leaves_the_other_alone(tmp_path: Path) -> None:
    """The late one still reaches its end."""
    assert run(tmp_path, failing=None).ok
    assert '"done"' in (tmp_path / "run" / "worker-0.jsonl").read_text()


def test_a_failure_after_the_other_has_ended_well_is_a_failure(tmp_path: Path) -> None:
    """Although MPI was finalised on both."""
    assert not run(tmp_path, failing=0).ok
