"""What the launcher ``emulated`` plans and asks the kernel for; nothing here needs root."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from steptime.catalog.cluster import cluster_for
from steptime.errors import LaunchError
from steptime.launchers import table
from steptime.launchers.emulation import commands
from steptime.launchers.emulation import verification as possible
from steptime.launchers.emulation.control_groups import new_owner, owner_of
from steptime.launchers.emulation.network import shape_for
from steptime.launchers.emulation.verification import message_bytes
from steptime.launchers.request import Request
from steptime.launchers.table import EmulatedLauncher

PORTS = tuple(range(15_001, 15_010))


def request(**fields: object) -> Request:
    settings = {"folder": Path("/run/folder"), "interpreter": Path(sys.executable), "workers": 2}
    return Request(**{**settings, **fields})


def mpi_request(folder: Path, **fields: object) -> Request:
    """Return a request whose interpreter has an mpiexec of MPICH's family beside it."""
    (folder / "mpiexec").write_text("#!/bin/sh\n")
    (folder / "mpiexec").chmod(0o700)
    return request(interpreter=folder / "python", mpi=True, **fields)


def test_processes_start_in_the_order_scheduler_servers_workers():
    planned = EmulatedLauncher().plan(request(servers=1, scheduler=True), "mark", PORTS)
    assert [process.name for process in planned] == ["scheduler-0", "server-0", "worker-0", "worker-1"]


def test_a_process_is_told_the_cores_of_its_own_hosts_workers_only():
    cluster = cluster_for(workers=4, own_servers=0, workers_per_host=2)
    planned = EmulatedLauncher().plan(request(workers=4, cores=(0, 1, 2, 3), cluster=cluster), "mark", PORTS)
    assert [each.environment["STEPTIME_CPUS"] for each in planned] == ["0;1", "0;1", "2;3", "2;3"]


def test_one_mpiexec_on_the_first_host_starts_the_workers_of_all(tmp_path):
    cluster = cluster_for(workers=3, own_servers=0, workers_per_host=2)
    asked = mpi_request(tmp_path, workers=3, cores=(0, 1), cluster=cluster)
    (planned,) = EmulatedLauncher().plan(asked, "mark", PORTS)
    words = " ".join(planned.argv)
    assert "hosts.json +0 " in words
    assert "-launcher ssh -launcher-exec /run/folder/on-host.sh -iface eth0" in words
    assert "-genv UCX_TLS tcp,self" in words
    assert "-hosts h0:2,h1:1 -n 2 " in words
    assert "-env STEPTIME_CPUS 0;1" in words
    assert " : -n 1 -env STEPTIME_CPUS 0 " in words


def test_open_mpi_is_led_over_the_hosts_links_by_variables(tmp_path):
    (tmp_path / "ompi_info").touch()
    cluster = cluster_for(workers=3, own_servers=0, workers_per_host=2)
    (planned,) = EmulatedLauncher().plan(mpi_request(tmp_path, workers=3, cluster=cluster), "mark", PORTS)
    assert "-H h0:2,h1:1 -n 3 " in " ".join(planned.argv)
    assert planned.environment["OMPI_MCA_btl"] == "tcp,self"
    for name in ("OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent"):
        assert planned.environment[name] == "/run/folder/on-host.sh"


@pytest.mark.parametrize(
    ("rate", "burst"), [(5e7, 16384), (1e8, 16384), (2e8, 16384), (1e9, 256_384), (1e7, 3277), (1e6, 3200)]
)
def test_bursts_are_small_and_grow_with_links_that_a_busy_machine_serves_late(rate, burst):
    shape = shape_for(rate)
    assert shape.burst_bytes == burst
    assert 1500 <= shape.gso_max_bytes <= 65536


@pytest.mark.parametrize("rate", [1e6, 5e7, 2e8, 1e9])
def test_a_packet_is_never_larger_than_the_burst(rate):
    assert shape_for(rate).gso_max_bytes < shape_for(rate).burst_bytes


@pytest.mark.parametrize("rate", [1e6, 5e7, 2e8])
def test_the_burst_is_a_small_part_of_a_message_that_measures_the_bandwidth(rate):
    burst = shape_for(rate).burst_bytes
    assert burst <= 0.03 * message_bytes(rate, burst)


def test_an_owner_is_known_by_the_names_of_what_it_made():
    owner = new_owner()
    assert owner.lives
    assert owner_of(owner.mark) == owner_of(owner.name("h12")) == owner
    assert new_owner() != owner


@pytest.mark.parametrize(
    "name", ["steptime", "steptime-x", "steptimes-1-2-3", "h0", "other-1-2-3-h0", "steptime-1-2-3"]
)
def test_a_name_that_steptime_never_gives_has_no_owner(name):
    assert owner_of(name) is None


def test_a_process_id_that_was_given_again_is_not_the_owner():
    owner = new_owner()
    assert not replace(owner, started=owner.started - 1).lives


def test_an_owner_in_another_pid_namespace_is_not_taken_for_dead():
    owner = new_owner()
    assert replace(owner, namespace=owner.namespace + 1, started=owner.started - 1).lives


@pytest.mark.parametrize(
    ("condition", "sentence"), [("root", "needs root"), ("tools", "needs the command 'ip'.*iproute2")]
)
def test_what_is_missing_is_said_before_anything_is_made(monkeypatch, tmp_path, condition, sentence):
    if condition == "root":
        monkeypatch.setattr(possible.shutil, "which", lambda tool: f"/sbin/{tool}")
        monkeypatch.setattr(possible, "is_privileged", lambda: False)
        monkeypatch.setattr(possible, "user_namespaces_work", lambda: False)
    else:
        monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(table, "made_hosts", None)
    with pytest.raises(LaunchError, match=sentence):
        EmulatedLauncher().run(request())


@pytest.mark.parametrize(
    "name", ["it's", "two words", "$(touch planted)", '"quoted"', "a;touch planted", "line\nbreak"]
)
def test_the_start_script_takes_no_folder_name_for_a_command(tmp_path, monkeypatch, name):
    folder = tmp_path / name
    folder.mkdir()
    (tmp_path / "entry.py").write_text("import json, sys; print(json.dumps(sys.argv[1:]))")
    monkeypatch.setattr(commands, "ENTRY", str(tmp_path / "entry.py"))
    agent = folder / commands.AGENT
    agent.write_text(commands.agent_script(folder))
    agent.chmod(0o700)
    said = subprocess.run(
        [str(agent), "-x", "h1", "echo", "1"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert json.loads(said.stdout) == [str(folder / commands.PLAN), "1", "/bin/sh", "-c", "echo 1"]
    assert not (tmp_path / "planted").exists()
