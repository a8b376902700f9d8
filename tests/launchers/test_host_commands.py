"""The commands of a launch on hosts, as a plan shows them; nothing is started."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steptime.catalog.cluster import cluster_for
from steptime.catalog.found_site import FoundGpu, FoundHost, Site
from steptime.errors import LaunchError
from steptime.launchers.hosts.commands import reach_commands, starts, with_transports
from steptime.launchers.hosts.host_facts import rdma_devices, system_mpiexec
from steptime.launchers.request import Request
from steptime.launchers.table import SlurmLauncher

HOSTS = tuple(FoundHost(f"n{index}", f"10.0.0.{index}", "ib0", cores=(0, 1, 2, 3)) for index in range(2))
PORTS = [[15_000, 15_001, 15_002], [15_000, 15_001]]


def two_of_two(interpreter: str = "/opt/python") -> Request:
    """Return a launch of four workers on two hosts."""
    cluster = cluster_for(workers=4, own_servers=0, workers_per_host=2, kind="found")
    site = Site(HOSTS, "slurm", "Slurm job 7", workers_per_host=2)
    return Request(Path("/run"), Path(interpreter), 4, cores=(0, 1), cluster=cluster, site=site)


def test_workers_index_the_devices_of_their_own_host():
    planned = starts(two_of_two(), HOSTS, "MARK", PORTS)
    found = [[(each["name"], each["environment"]["STEPTIME_LOCAL_RANK"]) for each in of_host] for of_host in planned]
    assert found == [[("worker-0", "0"), ("worker-1", "1")], [("worker-2", "0"), ("worker-3", "1")]]


def test_neither_slurm_nor_steptime_hides_devices_from_a_worker():
    (command,) = reach_commands(HOSTS, "slurm").values()
    assert not [option for option in command if "gpu" in option or "gres" in option]
    for of_host in starts(two_of_two(), HOSTS, "MARK", PORTS):
        for process in of_host:
            assert "CUDA_VISIBLE_DEVICES" not in process["environment"]
            assert process["environment"]["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


@pytest.mark.parametrize(("on_devices", "expected"), [(True, "2,3;0,1"), (False, "0;1")])
def test_workers_have_the_cores_next_to_their_own_gpu_where_they_compute_on_one(on_devices, expected):
    hosts = [replace(host, gpus=(FoundGpu(cores=(2, 3)), FoundGpu(cores=(0, 1)))) for host in HOSTS]
    planned = starts(replace(two_of_two(), on_devices=on_devices), hosts, "MARK", PORTS)
    assert {each["environment"]["STEPTIME_CPUS"] for of_host in planned for each in of_host} == {expected}


def test_a_script_that_enters_a_container_is_started_on_every_host():
    planned = starts(two_of_two("/shared/in-container"), HOSTS, "MARK", PORTS)
    started = [process["argv"] for of_host in planned for process in of_host]
    assert started == [["/shared/in-container", "start.py", "job.json"]] * 4


def test_a_dry_run_prints_one_srun_for_all_hosts():
    (process,) = SlurmLauncher().plan(two_of_two(), "RUN", range(15_000, 15_010))
    assert process.argv[:6] == ("srun", "--nodelist=n0,n1", "-N", "2", "-n", "2")


def mpiexec_of(first: FoundHost, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the command of an mpiexec on ``first``, started by a host that has none."""
    monkeypatch.setenv("PATH", "/nowhere")
    (process,) = starts(replace(two_of_two(), mpi=True), (first, HOSTS[1]), "MARK", PORTS)[0]
    return process["argv"]


def test_the_mpiexec_on_path_is_that_of_the_first_host(monkeypatch):
    assert mpiexec_of(replace(HOSTS[0], boot="a", mpiexec="/opt/there/mpiexec"), monkeypatch)[:2] == [
        "/opt/there/mpiexec",
        "-launcher",
    ]


def test_the_first_host_says_of_which_family_its_mpiexec_is(monkeypatch):
    argv = mpiexec_of(replace(HOSTS[0], boot="a", mpiexec="/opt/there/mpiexec", is_open_mpi=True), monkeypatch)
    assert {"--oversubscribe", "-H"} <= set(argv)


def test_a_first_host_without_mpiexec_is_named(monkeypatch):
    with pytest.raises(LaunchError, match="no mpiexec beside /opt/python or on PATH of n0"):
        mpiexec_of(replace(HOSTS[0], boot="a"), monkeypatch)


def test_a_host_says_which_mpiexec_it_has_and_of_which_family(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert system_mpiexec() == {"path": None, "is_open_mpi": False}
    (tmp_path / "orterun").write_text("#!/bin/sh\n")
    (tmp_path / "orterun").chmod(0o700)
    (tmp_path / "mpiexec").symlink_to("orterun")
    assert system_mpiexec() == {"path": str(tmp_path / "mpiexec"), "is_open_mpi": True}


def with_mpiexec(folder: Path, name: str, **given: object) -> dict[str, Any]:
    """Return the start of an mpiexec of a family, known by its name, for four workers on two hosts."""
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o700)
    if name != "mpiexec":
        (folder / "mpiexec").symlink_to(name)
    request = two_of_two(str(folder / "python"))
    site = replace(request.site, interface=given.pop("interface", None))
    boots = given.pop("boots", ["one", "another"])
    hosts = [replace(host, boot=boot) for host, boot in zip(HOSTS, boots, strict=True)]
    ((start,), _) = starts(replace(request, mpi=True, site=site, **given), hosts, "MARK", PORTS)
    return start


def test_mpich_uses_the_interface_and_the_rdma_devices_of_the_host_and_shares_memory(tmp_path):
    words = " ".join(with_mpiexec(tmp_path, "mpiexec")["argv"])
    assert "-genv UCX_NET_DEVICES ib0{rdma} " in words
    assert "UCX_TLS" not in words


def test_hosts_of_one_kernel_which_ucx_would_take_for_one_use_sockets(tmp_path):
    assert "-genv UCX_TLS tcp,self " in " ".join(with_mpiexec(tmp_path, "mpiexec", boots=["same"] * 2)["argv"])
    variables = {"UCX_TLS": "tcp,sm"}
    start = with_mpiexec(tmp_path, "mpiexec", boots=["same"] * 2, environment_variables=variables)
    assert "UCX_TLS" not in start["argv"]
    assert start["environment"]["UCX_TLS"] == "tcp,sm"


def test_open_mpi_chooses_its_transports_itself(tmp_path):
    environment = with_mpiexec(tmp_path, "orterun")["environment"]
    assert environment["OMPI_MCA_btl_tcp_if_include"] == "ib0"
    assert not {"OMPI_MCA_btl", "OMPI_MCA_pml"} & set(environment)


def test_a_study_that_names_the_interface_keeps_mpi_from_other_networks(tmp_path):
    (tmp_path / "open").mkdir()
    environment = with_mpiexec(tmp_path / "open", "orterun", interface="ib0")["environment"]
    assert (environment["OMPI_MCA_pml"], environment["OMPI_MCA_btl"]) == ("ob1", "^openib,uct,ofi,usnic")
    assert "-genv UCX_NET_DEVICES ib0 " in " ".join(with_mpiexec(tmp_path, "mpiexec", interface="ib0")["argv"])


def test_the_transports_of_a_study_win_over_those_of_the_launcher(tmp_path):
    variables = {"OMPI_MCA_btl": "tcp,self", "OMPI_MCA_pml": "ucx"}
    start = with_mpiexec(tmp_path, "orterun", interface="ib0", environment_variables=variables)
    assert {name: start["environment"][name] for name in variables} == variables


def test_the_record_of_a_launch_has_the_transports_of_its_mpiexec(tmp_path):
    recorded = with_transports(with_mpiexec(tmp_path, "orterun"))
    assert recorded[:3] == ["env", "OMPI_MCA_btl_tcp_if_include=ib0", str(tmp_path / "mpiexec")]


def test_a_host_names_the_ports_of_its_rdma_devices_that_are_up(tmp_path):
    """As the kernel lists them."""
    for device, port, state in [
        ("mlx5_0", "1", "4: ACTIVE\n"),
        ("mlx5_1", "1", "1: DOWN\n"),
        ("hfi1_0", "2", "4: ACTIVE\n"),
    ]:
        (tmp_path / device / "ports" / port).mkdir(parents=True)
        (tmp_path / device / "ports" / port / "state").write_text(state)
    assert rdma_devices(str(tmp_path)) == ["hfi1_0:2", "mlx5_0:1"]
