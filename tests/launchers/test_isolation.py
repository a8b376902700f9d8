"""The private network of a launch, with real namespaces, sockets and a second user."""

import json
import os
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from emulating import AS_SOMEBODY

from steptime.errors import LaunchError
from steptime.launchers import namespaces
from steptime.launchers.namespaces import isolation_kind, make_network
from steptime.launchers.request import LaunchOutcome, Request
from steptime.launchers.table import LocalLauncher

LISTEN = """
    import json, os, socket, time
    server = socket.create_server(("", 0))
    own = socket.gethostbyname(socket.gethostname())
    interfaces = [each[1] for each in socket.if_nameindex()]
    with open("listening.partial", "w") as file:
        json.dump([server.getsockname()[1], own, interfaces, os.readlink("/proc/self/ns/net")], file)
    os.rename("listening.partial", "listening")
    socket.create_connection((own, server.getsockname()[1]), timeout=5)
    while not os.path.exists("go-on"):
        time.sleep(0.02)
"""
TALK_TO_EACH_OTHER = """
    import os, socket, time
    host, port = os.environ["STEPTIME_WORKER_ADDRESSES"].split(",")[0].split(":")
    if os.environ["STEPTIME_RANK"] == "0":
        socket.create_server((host, int(port))).accept()
    else:
        while True:
            try:
                socket.create_connection((host, int(port)))
                break
            except ConnectionRefusedError:
                time.sleep(0.02)
"""


@pytest.fixture
def _namespaces() -> None:
    if isolation_kind() is None:
        pytest.skip("no network namespace can be made here")


def request(run_folder: Path, program: str, **fields: object) -> Request:
    (run_folder / "start.py").write_text(textwrap.dedent(program))
    settings = {"folder": run_folder, "interpreter": Path(sys.executable), "workers": 1, "time_limit_s": 30.0}
    return Request(**{**settings, **fields})


def reaches(port: int) -> bool:
    """Whether another user of this machine gets a connection to a port of this machine."""
    program = f"import socket; socket.create_connection(('127.0.0.1', {port}), timeout=5)"
    before = AS_SOMEBODY if os.geteuid() == 0 and shutil.which("setpriv") else []
    command = [*before, "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, check=False, cwd="/").returncode == 0


def others_reach(run_folder: Path, **fields: object) -> tuple[bool, LaunchOutcome]:
    """Run a worker that listens on every address; return whether another user reached its port, and the outcome."""
    with ThreadPoolExecutor(1) as pool:
        launch = pool.submit(LocalLauncher().run, request(run_folder, LISTEN, **fields))
        listening = run_folder / "listening"
        deadline = time.monotonic() + 20
        while not listening.exists() and time.monotonic() < deadline and not launch.done():
            time.sleep(0.02)
        try:
            reached = reaches(json.loads(listening.read_text())[0])
        finally:
            (run_folder / "go-on").touch()
        return reached, launch.result(30)


@pytest.mark.usefixtures("_namespaces")
def test_nobody_outside_reaches_a_port_of_a_launch(tmp_path):
    reached, outcome = others_reach(tmp_path)
    assert not reached
    assert (outcome.ok, outcome.isolation) == (True, isolation_kind())


def test_others_reach_a_launch_without_isolation_and_its_outcome_says_so(tmp_path):
    reached, outcome = others_reach(tmp_path, isolation="off")
    assert reached
    assert (outcome.ok, outcome.isolation) == (True, None)


@pytest.mark.usefixtures("_namespaces")
def test_a_launch_has_loopback_only_and_its_host_has_its_name_there(tmp_path):
    others_reach(tmp_path)
    _, own, interfaces, namespace = json.loads((tmp_path / "listening").read_text())
    assert (own, interfaces) == ("127.0.0.1", ["lo"])
    assert namespace != str(Path("/proc/self/ns/net").readlink())


@pytest.mark.usefixtures("_namespaces")
def test_the_processes_of_a_launch_reach_each_other(tmp_path):
    outcome = LocalLauncher().run(request(tmp_path, TALK_TO_EACH_OTHER, workers=2))
    assert outcome.ok, outcome.reason


@pytest.mark.usefixtures("_namespaces")
def test_nothing_holds_the_network_of_a_launch_that_has_ended(tmp_path):
    files = {path.name for path in Path("/proc/self/fd").iterdir()}
    LocalLauncher().run(request(tmp_path, "pass"))
    assert {path.name for path in Path("/proc/self/fd").iterdir()} == files


@pytest.mark.usefixtures("_namespaces")
def test_the_recorded_command_is_the_one_that_can_be_typed(tmp_path):
    assert LocalLauncher().run(request(tmp_path, "pass")).commands == [[sys.executable, "start.py", "job.json"]]


def test_a_launch_runs_where_no_network_can_be_made(tmp_path, monkeypatch):
    monkeypatch.setattr(namespaces, "isolation_kind", lambda: None)
    outcome = LocalLauncher().run(request(tmp_path, "pass"))
    assert (outcome.ok, outcome.isolation) == (True, None)


def test_a_network_that_cannot_be_made_though_it_could_before_is_an_error(tmp_path, monkeypatch):
    def refuse() -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(namespaces, "isolation_kind", lambda: namespaces.NAMESPACE)
    monkeypatch.setattr(namespaces, "make_network", refuse)
    with pytest.raises(LaunchError, match=r"no private network could be made for the launch: .*not permitted"):
        LocalLauncher().run(request(tmp_path, "pass"))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_making_a_network_leaves_this_process_where_it_is():
    before = Path("/proc/self/ns/net").readlink()
    os.close(make_network())
    assert Path("/proc/self/ns/net").readlink() == before
    assert "lo" in [name for _, name in socket.if_nameindex()]


AS_USER = """
    import json, sys
    from pathlib import Path
    from steptime.launchers.namespaces import isolation_kind
    from steptime.launchers.table import LocalLauncher
    from steptime.launchers.request import Request

    if isolation_kind() is None:
        sys.exit("no: users may make no namespaces here")
    outcome = LocalLauncher().run(Request(Path(sys.argv[1]), Path(sys.executable), 2, time_limit_s=30.0))
    print(json.dumps([outcome.ok, outcome.reason, outcome.isolation]))
"""


def test_a_user_without_root_has_private_launches_and_stays_who_they_are(python, folder):
    (folder / "start.py").write_text(textwrap.dedent(TALK_TO_EACH_OTHER) + "open('user', 'w').write(str(os.getuid()))")
    command = [*python, "-P", "-c", textwrap.dedent(AS_USER), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", timeout=60)
    if done.stderr.startswith("no: "):
        pytest.skip(done.stderr)
    assert json.loads(done.stdout) == [True, None, namespaces.USER_NAMESPACE], done.stderr
    assert (folder / "user").read_text() == str(folder.stat().st_uid)


@pytest.mark.parametrize(
    ("kind", "made"), [(namespaces.NAMESPACE, False), (namespaces.USER_NAMESPACE, True), (None, False)]
)
def test_the_device_file_of_cuda_is_made_outside_of_a_user_namespace(tmp_path, monkeypatch, kind, made):
    """A program of the driver makes it; here one that stands in for it."""
    program, file = tmp_path / "nvidia-modprobe", tmp_path / "nvidia-uvm"
    program.write_text(f'#!/bin/sh\n[ "$*" = "-u -c=0" ] && : > {file}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(namespaces, "DRIVER", tmp_path)
    monkeypatch.setattr(namespaces, "UNIFIED_MEMORY", file)

    namespaces.require_device_file(kind)

    assert file.exists() is made


def test_a_device_file_that_cannot_be_made_is_named_with_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(namespaces, "DRIVER", tmp_path)
    monkeypatch.setattr(namespaces, "UNIFIED_MEMORY", tmp_path / "nvidia-uvm")
    with pytest.raises(LaunchError, match=r"sudo nvidia-modprobe -u -c=0\), or set isolation: off"):
        namespaces.require_device_file(namespaces.USER_NAMESPACE)
