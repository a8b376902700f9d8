"""Hosts of a Ray cluster. Ray is a stand-in here, its nodes addresses of this machine; all else is real."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from launching import timing_job

from steptime.catalog.found_site import FoundHost, Site
from steptime.catalog.manifest import load_manifests
from steptime.errors import LaunchError
from steptime.execution.run_folder import make_run_folder
from steptime.expansion.site import site_of_study
from steptime.launchers.hosts.commands import RAY_LINE, reach_commands, single_command
from steptime.launchers.hosts.connections import Lines
from steptime.launchers.hosts.probe import answering
from steptime.launchers.request import Request
from steptime.launchers.table import RayLauncher
from steptime.study.study import Study

HOSTS = [FoundHost(f"127.0.0.{index}", f"127.0.0.{index}", "lo", (0,), ray_address="auto") for index in (2, 10)]
MISMATCH = (
    "Version mismatch: The cluster was started with:\n    Ray: 2.44.1\n    Python: 3.10.16\n"
    "This process on node 10.0.0.1 was started with:\n    Ray: 2.60.0\n    Python: 3.11.7\n"
)


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, object]]]:
    """Two nodes with raylets that listen, in another order than that of their addresses."""
    standin = str(Path(__file__).with_name("standin_ray"))
    monkeypatch.syspath_prepend(standin)
    monkeypatch.setenv("PYTHONPATH", standin)
    raylets = [socket.create_server((host.name, 0)) for host in HOSTS]
    found: list[dict[str, object]] = [
        {"address": host.name, "name": f"n{index}", "port": raylet.getsockname()[1], "processors": 2, "alive": True}
        for index, (host, raylet) in enumerate(zip(HOSTS, raylets, strict=True))
    ][::-1]
    cluster(monkeypatch, found)
    yield found
    for raylet in raylets:
        raylet.close()


def cluster(monkeypatch: pytest.MonkeyPatch, nodes: list[dict[str, object]], **settings: object) -> None:
    monkeypatch.setenv("STANDIN_RAY", json.dumps({"nodes": nodes, **settings}))


def site_of(**keys: object) -> Site:
    study = {"name": "race", "workloads": "lenet5", "frameworks": "reference", "launcher": "ray", **keys}
    found = site_of_study(Study.model_validate(study), {})
    assert found is not None
    return found


def test_the_nodes_of_a_cluster_are_hosts_by_their_addresses_in_order(nodes):
    found = site_of()
    assert (found.names, found.reach) == (["127.0.0.2", "127.0.0.10"], "ray")
    assert found.source == "the Ray cluster at 127.0.0.1:6379"


@pytest.mark.parametrize("name", ["n1", "127.0.0.10"])
def test_a_study_names_nodes_by_their_host_names_or_addresses(nodes, name):
    assert site_of(hosts=name).names == ["127.0.0.10"]


def test_a_host_that_the_cluster_lacks_is_named_with_those_it_has(nodes):
    with pytest.raises(LaunchError, match=r"n7: not in the Ray cluster at 127.0.0.1:6379, which has n0 \(127.0.0.2\)"):
        site_of(hosts=["n0", "n7"])


@pytest.mark.parametrize("change", [{"alive": False}, {"processors": 0}, {"port": 1}], ids=str)
def test_nodes_that_are_dead_or_have_no_processor_are_no_hosts(nodes, monkeypatch, change):
    cluster(monkeypatch, [{**nodes[0], **change}, nodes[1]])
    assert site_of().names == ["127.0.0.2"]


def test_of_hosts_those_answer_whose_raylets_do(nodes, monkeypatch):
    site = replace(site_of(), hosts=tuple(HOSTS))
    cluster(monkeypatch, [{**nodes[0], "port": 1}, nodes[1]])
    assert answering(site) == ["127.0.0.2"]


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (MISMATCH, r"Ray 2.44.1 with Python 3.10.16, and steptime .* Ray 2.60.0 and Python 3.11.7.*'ray==2.44.1'"),
        ("Could not find any running Ray instance.\nSee", r"no Ray cluster .*any running Ray instance. See.*ray start"),
    ],
)
def test_a_cluster_that_refuses_the_driver_is_refused_with_the_next_step(nodes, monkeypatch, refusal, words):
    cluster(monkeypatch, nodes, refusal=refusal)
    with pytest.raises(LaunchError, match=words):
        site_of()


def test_an_address_without_a_cluster_is_named_with_the_next_step(nodes):
    with pytest.raises(
        LaunchError, match=r"no Ray cluster is reached at 127.0.0.1:1 \(Connection refused\).*ray start"
    ):
        site_of(hosts={"ray_address": "127.0.0.1:1"})


def test_the_address_of_a_cluster_belongs_to_its_launcher(nodes):
    with pytest.raises(LaunchError, match="launcher 'ssh'; write launcher: ray"):
        site_of(launcher="ssh", hosts={"names": ["n0"], "ray_address": "10.0.0.1:6379"})


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr("steptime.extras.find_spec", lambda _: None)
    with pytest.raises(LaunchError, match=r"pip install 'steptime\[ray\]'"):
        site_of()


def test_one_driver_of_ray_reaches_all_hosts():
    (command,) = reach_commands(HOSTS, "ray").values()
    assert command[: len(RAY_LINE) + 3] == [*RAY_LINE, "each", "auto", "127.0.0.2,127.0.0.10"]


def test_programs_on_all_hosts_get_the_input_and_their_index_and_print_whole_lines(nodes):
    command = [*RAY_LINE, "each", "auto", "127.0.0.2,127.0.0.10", "/bin/sh", "-c", 'sed "s/^/$0 /"; exit "$0"']
    done = subprocess.run(command, input="a\nb\n", capture_output=True, text=True, check=False)
    assert sorted(done.stdout.splitlines()) == ["0 a", "0 b", "1 a", "1 b"]
    assert done.returncode == 1


def test_a_program_on_one_host_keeps_its_streams_and_exit_code(nodes):
    command = single_command(HOSTS[0], "ray", ["/bin/sh", "-c", "cat; echo wrong >&2; exit 7"])
    done = subprocess.run(command, input="a", capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("a", "wrong\n", 7)


def test_a_program_that_a_host_lacks_is_named_with_the_host(nodes):
    command = single_command(HOSTS[0], "ray", ["/no/program"])
    done = subprocess.run(command, input="", capture_output=True, text=True, check=False)
    assert done.stderr.startswith("127.0.0.2: Ray could not start /no/program there: ")
    assert done.returncode == 3


def test_a_host_whose_raylet_dies_is_lost_with_that_reason(nodes, monkeypatch, tmp_path):
    cluster(monkeypatch, [nodes[1], {**nodes[0], "port": 1}], dies=str(tmp_path / "dead"))
    names = [host.name for host in HOSTS]
    agents = {"ray": [*RAY_LINE, "each", "auto", "127.0.0.2,127.0.0.2", "sleep", "30"]}
    with Lines(agents, names, tmp_path) as lines:
        (tmp_path / "dead").touch()
        deadline = time.monotonic() + 30.0
        while not lines.lost() and time.monotonic() < deadline:
            lines.receive()
        assert lines.lost() == ["127.0.0.10"]
        assert "on 127.0.0.2 has died (its node has died)" in (lines.failure() or "")


def test_programs_run_at_niceness_0_where_that_is_allowed_and_else_say_theirs():
    start = "from steptime.launchers.hosts.ray_line import FarProgram; print(FarProgram().start(['true']))"
    lower = "import os; os.setpriority(os.PRIO_PROCESS, 0, 0)"  # not for root either, in some containers
    own = min(19, os.getpriority(os.PRIO_PROCESS, 0) + 5)
    niced = ["nice", "-n", "5", sys.executable, "-c"]
    may_lower = subprocess.run([*niced, lower], capture_output=True, check=False).returncode == 0
    done = subprocess.run([*niced, start], capture_output=True, text=True, check=True)
    assert int(done.stdout) == (0 if may_lower else own)


def test_a_launch_on_a_node_of_the_cluster_has_its_records(nodes, tmp_path):
    job = timing_job("reference", "single", "lenet5", steps=3, workers=1, batch=2)
    make_run_folder(tmp_path / "run", load_manifests()["reference"].folder, job, ["pillow"])
    site = Site(tuple(HOSTS), "ray", "a cluster")
    request = Request(tmp_path / "run", Path(sys.executable), 1, time_limit_s=60.0, site=site)
    outcome = RayLauncher().run(request)
    assert outcome.ok, outcome.reason
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "run" / "worker-0.jsonl").read_text().splitlines()]
    assert kinds[-1] == "done"
