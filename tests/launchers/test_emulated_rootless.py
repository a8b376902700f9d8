"""Emulated hosts made by a user who is not root: in a user namespace, with what is missing said."""

import json
import subprocess
import textwrap
import threading
import time
from dataclasses import fields
from pathlib import Path

import pytest
from emulating import request, two_hosts

from living_processes import living_in
from steptime.launchers.emulation.rootless import request_from_text, request_to_text

LAUNCH = """
    import json, sys
    from pathlib import Path
    from steptime.catalog.cluster import cluster_for
    from steptime.errors import LaunchError
    from steptime.launchers.table import EmulatedLauncher
    from steptime.launchers.emulation.verification import is_privileged, missing_requirement
    from steptime.launchers.request import Request

    if is_privileged() or missing_requirement():
        sys.exit("no: " + str(missing_requirement()))
    shares = {int(host): share for host, share in json.loads(sys.argv[2]).items()}
    cluster = cluster_for(workers=2, own_servers=0, bandwidth_bits_per_s=1e8, cpu_shares=shares)
    try:
        outcome = EmulatedLauncher().run(Request(Path(sys.argv[1]), Path(sys.executable), 2, cluster=cluster))
        print(json.dumps([outcome.ok, outcome.reason, outcome.cluster.to_json()]))
    except LaunchError as error:
        print(json.dumps(str(error)))
"""


def start(
    python: list[str], folder: Path, program: str, cwd: Path = Path("/"), **shares: float
) -> subprocess.Popen[str]:
    (folder / "start.py").write_text(textwrap.dedent(program))
    command = [*python, "-P", "-c", textwrap.dedent(LAUNCH), str(folder), json.dumps(shares)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd)


def answer(process: subprocess.Popen[str]):
    said, complaint = process.communicate(timeout=120)
    if complaint.startswith("no: "):
        pytest.skip(complaint)
    assert process.returncode == 0, complaint
    return json.loads(said)


NAMES = """
    import os, socket
    open("name-" + os.environ["STEPTIME_RANK"], "w").write(socket.gethostname())
"""


def test_hosts_without_root_have_names_and_links_and_say_what_is_missing(python, folder):
    ok, reason, found = answer(start(python, folder, NAMES))
    assert ok, reason
    assert [(folder / f"name-{rank}").read_text() for rank in range(2)] == ["h0", "h1"]
    assert [host["bandwidth_bits_per_s"] for host in found["hosts"]] == [1e8, 1e8]
    assert found["paths"][0]["bandwidth_bits_per_s"] <= 1.1e8
    assert found["cpu_groups"] is None


def test_a_slow_host_without_root_is_refused_with_the_reason(python, folder):
    assert "no control group" in answer(start(python, folder, "pass", **{"1": 0.5}))


def test_a_failure_is_an_outcome_all_the_same(python, folder):
    ok, reason, _ = answer(start(python, folder, "raise SystemExit(7)"))
    assert not ok
    assert "ended with exit code 7" in reason


def test_a_package_steptime_of_the_current_folder_is_never_imported(python, folder):
    current = folder / "current"
    (current / "steptime").mkdir(parents=True)
    (current / "steptime" / "__init__.py").write_text(f"open({str(folder / 'planted')!r}, 'w').close()")
    ok, reason, _ = answer(start(python, folder, "pass", cwd=current))
    assert ok, reason
    assert not (folder / "planted").exists()


def test_nothing_survives_a_runner_that_is_killed(python, folder):
    process = start(python, folder, "import time; time.sleep(600)")
    deadline = time.monotonic() + 60
    while len(living_in(folder)) < 2 and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    if process.poll() is not None:
        answer(process)
    assert len(living_in(folder)) == 2
    process.kill()
    process.communicate()
    while living_in(folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not living_in(folder)


def test_a_request_arrives_as_it_was_sent(tmp_path):
    placed = {"cores": (0, 1), "device_cores": ((0,), (1,)), "on_devices": True, "threads": 2}
    where = {"cores_per_worker": 1, "cluster": two_hosts(), "environment": tmp_path, "container": ("apptainer", "exec")}
    sent = request(tmp_path, "pass", servers=1, colocated_servers=True, scheduler=True, mpi=True, **placed, **where)
    assert {each.name for each in fields(sent) if getattr(sent, each.name) == each.default} == {"site", "isolation"}
    assert request_from_text(request_to_text(sent), threading.Event()) == sent
