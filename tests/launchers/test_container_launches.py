"""Launches whose interpreter runs in a container, by every launcher that starts processes on this machine."""

import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from containers import CONTAINER, TIED, WHOLE, missing_bubblewrap
from emulating import skip_where_impossible
from system_packages import missing

from living_processes import wait_until
from steptime.catalog.found_site import FoundHost, Site
from steptime.errors import LaunchError
from steptime.execution.run_folder import make_run_folder
from steptime.launchers.emulation.rootless import request_from_text, request_to_text
from steptime.launchers.request import LaunchOutcome, Request
from steptime.launchers.table import LocalLauncher, launcher_named

APPTAINER = ("apptainer", "exec", "--nv", "--bind", "/shared data", "/shared/image.sif")
BWRAP = pytest.mark.skipif(missing_bubblewrap() is not None, reason=str(missing_bubblewrap()))
WRITE_PLACE = """
    import json, os, sys, time
    rank = os.environ.get("STEPTIME_RANK") or os.environ.get("PMI_RANK") or os.environ["OMPI_COMM_WORLD_RANK"]
    folder = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(folder, "place-%s" % rank), "w") as file:
        json.dump({"mounts": os.stat("/proc/self/ns/mnt").st_ino, "network": os.stat("/proc/self/ns/net").st_ino,
                   "job": sys.argv[1], "cwd": os.getcwd(), "role": os.environ["STEPTIME_ROLE"]}, file)
    # All stay until all are there: the number of a namespace that is gone is given to the next one.
    places = ["place-%d" % rank for rank in range(int(os.environ["STEPTIME_WORKERS"]))]
    while not all(os.path.exists(os.path.join(folder, place)) for place in places):
        time.sleep(0.01)
"""
WRITE_MARK_AND_SLEEP = """
    import os, sys, time
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, folder)
    from steptime.worker.tether import die_with_parent
    die_with_parent()
    rank = os.environ.get("STEPTIME_RANK") or os.environ.get("PMI_RANK") or os.environ["OMPI_COMM_WORLD_RANK"]
    open(os.path.join(folder, "started-" + rank), "w").close()
    time.sleep(600)
"""


def request(folder: Path, program: str = "pass", **fields: object) -> Request:
    """Return a launch of two workers in a container, whose ``start.py`` is ``program``, beside the worker half."""
    (folder / "no-framework").mkdir()
    make_run_folder(folder, folder / "no-framework", {})
    (folder / "start.py").write_text(textwrap.dedent(program))
    settings = {
        "folder": folder,
        "interpreter": Path(sys.executable),
        "container": CONTAINER,
        "workers": 2,
        "time_limit_s": 60.0,
    }
    return Request(**{**settings, **fields})


def launch(folder: Path, program: str, launcher: str = "local", **fields: object) -> LaunchOutcome:
    return launcher_named(launcher).run(request(folder, program, **fields))


def places(folder: Path) -> list[dict[str, object]]:
    return [eval(path.read_text()) for path in sorted(folder.glob("place-*"))]  # noqa: S307 - numbers and plain text


def of_launch(folder: Path) -> list[psutil.Process]:
    """Return the living processes whose arguments name the run folder, whatever started them."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(folder / "start.py") in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def all_started(folder: Path) -> bool:
    return wait_until(lambda: len(list(folder.glob("started-*"))) == 2, 60.0)


def own_mounts() -> int:
    return Path("/proc/self/ns/mnt").stat().st_ino


@pytest.mark.sampled
@BWRAP
@pytest.mark.parametrize("container", [CONTAINER, TIED, (*WHOLE, "--chdir", "/", "--")])
def test_workers_run_in_containers_of_their_own_within_the_launchs_network(tmp_path, container):
    outcome = launch(tmp_path, WRITE_PLACE, container=container)
    assert outcome.ok, outcome.reason
    found = places(tmp_path)
    assert [place["role"] for place in found] == ["worker", "worker"]
    assert len({own_mounts(), *(place["mounts"] for place in found)}) == 3
    networks = {place["network"] for place in found}
    assert len(networks) == 1
    assert (Path("/proc/self/ns/net").stat().st_ino in networks) is (outcome.isolation is None)


@BWRAP
def test_the_files_of_a_launch_are_named_by_whole_paths_since_a_container_may_change_the_folder(tmp_path):
    container = (*WHOLE, "--chdir", "/", "--")
    outcome = launch(tmp_path, WRITE_PLACE, workers=1, container=container)
    assert outcome.commands == [[*container, sys.executable, str(tmp_path / "start.py"), str(tmp_path / "job.json")]]
    (place,) = places(tmp_path)
    assert (place["cwd"], place["job"]) == ("/", str(tmp_path / "job.json"))


@BWRAP
@pytest.mark.needs("mpi")
def test_an_mpiexec_of_the_system_starts_each_worker_in_a_container_of_its_own(tmp_path):
    outcome = launch(tmp_path, WRITE_PLACE, "mpi")
    assert outcome.ok, outcome.reason
    assert len({own_mounts(), *(place["mounts"] for place in places(tmp_path))}) == 3


@pytest.mark.costly
@BWRAP
def test_workers_on_emulated_hosts_run_in_containers_within_the_hosts_networks(tmp_path):
    skip_where_impossible()
    outcome = launch(tmp_path, WRITE_PLACE, "emulated")
    assert outcome.ok, outcome.reason
    found = places(tmp_path)
    assert len({own_mounts(), *(place["mounts"] for place in found)}) == 3
    assert len({place["network"] for place in found}) == 2


def skip_where_it_cannot_run(launcher: str) -> None:
    if launcher == "emulated":
        skip_where_impossible()
    if launcher == "mpi" and (reason := missing("mpi")):
        pytest.skip(reason)


@pytest.mark.sampled
@BWRAP
@pytest.mark.parametrize("launcher", ["local", "mpi", "emulated"])
@pytest.mark.parametrize("container", [CONTAINER, TIED])
def test_no_process_of_a_container_outlives_a_launch_that_is_ended(tmp_path, container, launcher):
    skip_where_it_cannot_run(launcher)
    asked = request(tmp_path, WRITE_MARK_AND_SLEEP, container=container)
    threading.Thread(target=lambda: all_started(tmp_path) and asked.cancelled.set()).start()
    assert launcher_named(launcher).run(asked).reason == "cancelled"
    assert not of_launch(tmp_path)


RUNNER = """
import sys
from pathlib import Path
from steptime.launchers.request import Request
from steptime.launchers.table import launcher_named
launcher, folder, *container = sys.argv[1:]
request = Request(Path(folder), Path(sys.executable), workers=2, time_limit_s=60.0, container=tuple(container))
launcher_named(launcher).run(request)
"""


@pytest.mark.sampled
@BWRAP
@pytest.mark.parametrize("launcher", ["local", "mpi", "emulated"])
@pytest.mark.parametrize("container", [CONTAINER, TIED])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_process_of_a_container_outlives_its_runner(tmp_path, container, number, launcher):
    skip_where_it_cannot_run(launcher)
    request(tmp_path, WRITE_MARK_AND_SLEEP)
    command = [sys.executable, "-c", RUNNER, launcher, str(tmp_path), *container]
    runner = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    assert all_started(tmp_path)
    runner.send_signal(number)
    runner.wait()
    assert wait_until(lambda: not of_launch(tmp_path))


@BWRAP
def test_a_program_that_a_container_lacks_fails_the_launch_with_what_the_container_said(tmp_path):
    outcome = launch(tmp_path, "pass", workers=1, interpreter=Path("no-such-python"))
    assert outcome.reason == "worker-0 ended with exit code 1"
    assert "no-such-python" in (tmp_path / "worker-0.launch").read_text()


@pytest.mark.parametrize("launcher", ["local", "emulated"])
def test_a_container_program_that_is_not_there_is_an_error_that_names_it(tmp_path, launcher):
    if launcher == "emulated":
        skip_where_impossible()
    with pytest.raises(LaunchError, match="could not start no-such-apptainer: it is not a program"):
        launch(tmp_path, "pass", launcher, container=("no-such-apptainer", "exec", "image.sif"))


COMMAND = [*APPTAINER, "python3"]


@pytest.mark.parametrize("launcher", ["local", "emulated"])
def test_a_plan_starts_the_words_of_the_container_before_the_interpreter(tmp_path, launcher):
    asked = request(tmp_path, container=APPTAINER, interpreter=Path("python3"))
    for process in launcher_named(launcher).plan(asked, "RUN", range(15_000, 15_005)):
        files = [str(tmp_path / "start.py"), str(tmp_path / "job.json")]
        assert list(process.argv)[-len(COMMAND) - 2 :] == [*COMMAND, *files]


def test_a_plan_by_mpi_takes_the_systems_mpiexec_and_steptimes_own_tether(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    (tmp_path / "mpiexec").touch()
    asked = request(tmp_path, container=APPTAINER, interpreter=tmp_path / "python3")
    (process,) = launcher_named("mpi").plan(asked, "RUN", range(15_000, 15_005))
    assert process.argv[:3] == (sys.executable, "steptime/worker/tether.py", "/usr/bin/mpiexec")
    assert process.argv[-len(COMMAND) - 2 :][: len(APPTAINER)] == APPTAINER


def test_a_machine_without_mpiexec_says_that_the_containers_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(LaunchError, match="no mpiexec on PATH, by which each worker is started in apptainer exec"):
        launcher_named("mpi").plan(request(tmp_path, container=APPTAINER), "RUN", range(15_000, 15_005))


def test_the_launcher_in_this_process_refuses_a_container(tmp_path):
    with pytest.raises(LaunchError, match=r"not in apptainer exec .*; use the launcher 'local'"):
        launcher_named("inline").plan(request(tmp_path, container=APPTAINER, workers=1), "RUN", ())


@pytest.mark.parametrize("mpi", [False, True])
@pytest.mark.parametrize("reach", ["ssh", "slurm"])
def test_every_host_is_told_the_whole_command(tmp_path, reach, mpi, monkeypatch):
    from steptime.launchers.hosts.commands import starts  # noqa: PLC0415 - as the launch does

    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    hosts = (FoundHost("n0", "10.0.0.1", "eth0", (0,)), FoundHost("n1", "10.0.0.2", "eth0", (0,)))
    asked = request(tmp_path, container=APPTAINER, interpreter=Path("python3"), mpi=mpi)
    asked = replace(asked, site=Site(hosts, reach, "the study"))
    told = [start for each in starts(asked, hosts, "RUN", [[1, 2, 3], [4, 5, 6]]) for start in each]
    assert len(told) == (1 if mpi else 2)
    for start in told:
        assert start["argv"][-len(COMMAND) - 2 :][:-2] == COMMAND


def test_a_request_keeps_its_container_on_the_way_to_hosts_without_root(tmp_path):
    asked = request(tmp_path, container=APPTAINER)
    assert request_from_text(request_to_text(asked), asked.cancelled).container == APPTAINER


def test_a_launcher_without_containers_starts_what_it_always_did(tmp_path):
    asked = request(tmp_path, container=())
    assert {process.argv for process in LocalLauncher().plan(asked, "RUN", range(15_000, 15_005))} == {
        (sys.executable, "start.py", "job.json")
    }


def test_a_shell_never_reads_the_words_of_a_container(tmp_path):
    proof = tmp_path / "proof"
    words = ("env", "--", f"X=$(touch {proof})", f"Y=;touch {proof}")
    outcome = launch(tmp_path, "pass", container=words)
    assert outcome.ok, outcome.reason
    assert not proof.exists()
