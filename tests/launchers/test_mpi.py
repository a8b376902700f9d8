"""The MPI launcher with a real mpiexec: that of Chainer's environment, or else the system's."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from system_packages import missing

from living_processes import all_have_left, living_in
from steptime.errors import LaunchError
from steptime.execution.run_folder import make_run_folder
from steptime.launchers.request import LaunchOutcome, Request
from steptime.launchers.table import MpiLauncher
from steptime.runner.preparation import ready_interpreter

WRITE_PLACE = """
    import json, os, sys, time
    sys.path.insert(0, os.getcwd())
    from steptime.worker.process_context import ProcessContext
    place = ProcessContext(os.environ, os.getcwd())
    with open("place-%d.json" % place.rank, "w") as file:
        json.dump({"pid": os.getpid(), "local_rank": place.local_rank, "workers": place.workers, "cpus": place.cpus,
                   "role": place.role, "root": place.root_address, "path": os.environ.get("PYTHONPATH")}, file)
"""


@pytest.fixture(scope="module")
def interpreter() -> Path:
    """A Python whose launches find an mpiexec."""
    own = ready_interpreter("chainer")
    if own is not None:
        return own
    if reason := missing("mpi"):
        pytest.skip(f"no environment of chainer, which brings an mpiexec; {reason}")
    return Path(sys.executable)


def launch(folder: Path, interpreter: Path, program: str, **fields: object) -> LaunchOutcome:
    """Run two workers whose ``start.py`` is ``program``, beside the worker half."""
    make_run_folder(folder, folder / "no-framework", {})
    (folder / "start.py").write_text(textwrap.dedent(program))
    settings = {"folder": folder, "interpreter": interpreter, "workers": 2, "time_limit_s": 30.0}
    return MpiLauncher().run(Request(**{**settings, **fields}))


def places(folder: Path) -> dict[int, dict]:
    return {int(path.stem.split("-")[1]): json.loads(path.read_text()) for path in folder.glob("place-*.json")}


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A run folder that is about to be filled; filling it needs a framework's folder, which is empty."""
    (tmp_path / "no-framework").mkdir()
    return tmp_path


def test_an_allocation_around_the_launch_does_not_send_its_workers_to_other_hosts(run_folder, interpreter, monkeypatch):
    job = {"JOB_ID": "7", "JOBID": "7", "JOB_NODELIST": "far[0-1]", "NODELIST": "far[0-1]", "NNODES": "2"}
    for name, value in {**job, "JOB_NUM_NODES": "2", "TASKS_PER_NODE": "1(x2)", "STEP_ID": "0"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    outcome = launch(run_folder, interpreter, WRITE_PLACE)
    assert outcome.ok, outcome
    assert sorted(places(run_folder)) == [0, 1]


def test_every_worker_learns_its_rank_from_mpi(run_folder, interpreter):
    assert launch(run_folder, interpreter, WRITE_PLACE, workers=3).ok
    found = places(run_folder)
    assert sorted(found) == [0, 1, 2]
    assert {rank: place["local_rank"] for rank, place in found.items()} == {0: 0, 1: 1, 2: 2}
    assert {(place["workers"], place["role"]) for place in found.values()} == {(3, "worker")}


def test_all_workers_are_told_the_same_meeting_point(run_folder, interpreter):
    launch(run_folder, interpreter, WRITE_PLACE)
    assert len({place["root"] for place in places(run_folder).values()}) == 1


def test_every_worker_has_cores_of_its_own(run_folder, interpreter):
    launch(run_folder, interpreter, WRITE_PLACE, cores=(0, 1))
    assert {rank: place["cpus"] for rank, place in places(run_folder).items()} == {0: [0], 1: [1]}


def test_an_mpi_around_steptime_does_not_reach_its_workers(run_folder, interpreter, monkeypatch):
    for name, value in {"PMI_RANK": "9", "PMI_SIZE": "10", "OMPI_COMM_WORLD_RANK": "9", "PYTHONPATH": "/else"}.items():
        monkeypatch.setenv(name, value)
    assert launch(run_folder, interpreter, WRITE_PLACE).ok
    assert sorted(places(run_folder)) == [0, 1]
    assert {place["path"] for place in places(run_folder).values()} == {None}


def test_the_command_is_the_one_that_can_be_typed(run_folder, interpreter):
    (command,) = launch(run_folder, interpreter, "pass").commands
    assert command[:2] == [str(interpreter), "steptime/worker/tether.py"]
    assert Path(command[2]).name == "mpiexec"
    assert command[-5:] == ["-n", "2", str(interpreter), "start.py", "job.json"]
    by_hand = subprocess.run(
        command, cwd=run_folder, env={"PATH": os.defpath}, check=False, capture_output=True, text=True
    )
    assert by_hand.returncode == 0, by_hand.stderr


@pytest.mark.sampled
@pytest.mark.parametrize("failing", [0, 1])
def test_a_worker_that_is_killed_ends_all_others(run_folder, interpreter, failing):
    program = f"{WRITE_PLACE}    os.kill(os.getpid(), 9) if place.rank == {failing} else time.sleep(600)"
    outcome = launch(run_folder, interpreter, program, workers=3, time_limit_s=60.0)
    assert not outcome.ok
    assert outcome.wall_s < 30
    assert not living_in(run_folder)


def test_a_hung_launch_is_ended_at_its_time_limit(run_folder, interpreter):
    outcome = launch(run_folder, interpreter, WRITE_PLACE + "    time.sleep(600)", time_limit_s=3.0)
    assert outcome.reason == "not finished after the time limit of 3 s: mpiexec still running"
    assert len(places(run_folder)) == 2
    assert not living_in(run_folder)


def test_workers_that_ignore_every_request_to_end_do_not_survive(run_folder, interpreter):
    program = f"{WRITE_PLACE}    import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    launch(run_folder, interpreter, program, time_limit_s=3.0)
    assert len(places(run_folder)) == 2
    assert not living_in(run_folder)


def test_what_is_said_before_a_worker_has_files_of_its_own_is_kept(run_folder, interpreter):
    launch(run_folder, interpreter, "import sys; sys.exit('no such thing')")
    assert "no such thing" in (run_folder / "mpiexec.launch").read_text()


def test_workers_die_with_a_runner_that_is_killed(run_folder, interpreter):
    make_run_folder(run_folder, run_folder / "no-framework", {})
    (run_folder / "start.py").write_text(textwrap.dedent(WRITE_PLACE + "    time.sleep(600)"))
    runner = f"""
        from pathlib import Path
        from steptime.launchers.table import MpiLauncher
        from steptime.launchers.request import Request
        MpiLauncher().run(Request(Path({str(run_folder)!r}), Path({str(interpreter)!r}), 2, time_limit_s=60.0))
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(runner)])
    deadline = time.monotonic() + 30
    while len(places_written(run_folder)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(places_written(run_folder)) == 2
    assert all_have_left(run_folder)


def places_written(folder: Path) -> list[Path]:
    return [path for path in folder.glob("place-*.json") if path.stat().st_size]


def test_a_machine_without_mpiexec_is_told_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    python = tmp_path / "environment" / "python"
    with pytest.raises(LaunchError, match=r"no mpiexec beside .*environment/python.*install .*mpich"):
        MpiLauncher().plan(Request(tmp_path, python, 2), "mark", (15_001, 15_002, 15_003))


def test_the_mpiexec_of_the_environment_is_preferred_to_the_systems(tmp_path, monkeypatch):
    for folder in ("system", "environment"):
        (tmp_path / folder).mkdir()
        program = tmp_path / folder / "mpiexec"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path / "system"))
    request = Request(tmp_path, tmp_path / "environment" / "python", 2)
    (planned,) = MpiLauncher().plan(request, "mark", (15_001, 15_002, 15_003))
    assert str(tmp_path / "environment" / "mpiexec") in planned.argv


def test_open_mpi_is_told_that_workers_may_share_cores(tmp_path, monkeypatch):
    (tmp_path / "orterun").write_text("#!/bin/sh\n")
    (tmp_path / "orterun").chmod(0o700)
    (tmp_path / "mpiexec").symlink_to("orterun")
    monkeypatch.setenv("PATH", str(tmp_path))
    (planned,) = MpiLauncher().plan(
        Request(tmp_path, tmp_path / "none" / "python", 2), "mark", (15_001, 15_002, 15_003)
    )
    assert "--oversubscribe" in planned.argv
