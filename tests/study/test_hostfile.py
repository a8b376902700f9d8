"""Hostfiles, in the forms that MPIs, DeepSpeed and Kubeflow document, and studies whose hosts are one."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from steptime.errors import FileError, StudyError
from steptime.study.hostfile import read_hostfile
from steptime.study.study_file import read_study

STUDY = "workloads: lenet5\nframeworks: reference\nworkers: 2\nlauncher: ssh\n"
HOST_LINES = {
    # Open MPI, mpirun(1), "Specifying Host Nodes": slots and max_slots (or max-slots), spaces around "=", comments.
    "# nodes\naa slots=2\nbb slots=2 max_slots=8 # the second\n\n": {"aa": 2, "bb": 2},
    "aa slots = 4\nbb max-slots=3 slots=4\n": {"aa": 4, "bb": 3},
    "aa cpu=4\nbb count=4\n": {"aa": 4, "bb": 4},
    "aa user=me slots=2\nyou@bb\n": {"me@aa": 2, "you@bb": 1},
    # The same page: a host that is named n times without slots has n of them.
    "aa\naa\nbb\n": {"aa": 2, "bb": 1},
    "aa slots=2\nbb\naa slots=3": {"aa": 5, "bb": 1},
    # MPICH, "Using the Hydra Process Manager": host:processes, and Intel MPI's machine file.
    "aa:4\nbb:2\n": {"aa": 4, "bb": 2},
    "aa\r\nbb:3\r\n": {"aa": 1, "bb": 3},
    # Kubeflow's mpi-operator, newConfigMap of mpi_job_controller.go: for Open MPI, then for Intel MPI and MPICH.
    "pi-worker-0.pi.default.svc slots=1\npi-worker-1.pi.default.svc slots=1\n": {
        "pi-worker-0.pi.default.svc": 1,
        "pi-worker-1.pi.default.svc": 1,
    },
    "pi-worker-0.pi.default.svc:8\n": {"pi-worker-0.pi.default.svc": 8},
    "n[08-10] slots=4\n": {"n08": 4, "n09": 4, "n10": 4},
}


@pytest.mark.parametrize("text", HOST_LINES)
def test_hosts_and_slots_of_documented_forms_are_read(tmp_path, text):
    (tmp_path / "hostfile").write_text(text)
    found = read_hostfile(tmp_path / "hostfile")
    assert (found, list(found)) == (HOST_LINES[text], list(HOST_LINES[text]))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it names no hosts"),
        ("# aa\n", "it names no hosts"),
        ("aa\nbb slots=x", ":2: 'x' is not a number of slots"),
        ("aa:\n", ":1: '' is not a number of slots"),
        ("aa slots=0", "'0' is not a number of slots, which is 1 to"),
        ("aa ifname=ib0", "'ifname=ib0' is not understood after a host; HOST, HOST slots=4"),
        ("aa 4", "'4' is not understood after a host"),
        ("^aa", "'^aa' is not a name"),  # Open MPI excludes hosts so
        ("-oProxyCommand=x", "is not a host"),
        ("-x slots=2", "'-x' is not a name"),
        ("n[0-", "its brackets do not match"),
        ("fe80::1 slots=2", "':1' is not a number of slots"),
        ("n[0-1023]\nm", "more than the 1024 hosts"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_line(tmp_path, text, reason):
    (tmp_path / "hostfile").write_text(text)
    with pytest.raises(FileError) as refused:
        read_hostfile(tmp_path / "hostfile")
    assert str(refused.value).startswith(f"{tmp_path}/hostfile:")
    assert reason in str(refused.value)


def study_with(folder: Path, hosts: str, hostfile: str, overrides: Sequence[str] = ()):
    (folder / "nodes").write_text(hostfile)
    (folder / "race.yaml").write_text(f"{STUDY}hosts: {hosts}\n")
    return read_study(folder / "race.yaml", overrides).hosts


@pytest.mark.parametrize("hosts", ["./nodes", "[./nodes]", "{names: ./nodes}", "{names: [./nodes], interface: ib0}"])
def test_the_hosts_of_a_study_are_those_of_a_hostfile_beside_it_with_its_slots(tmp_path, hosts):
    found = study_with(tmp_path, hosts, "aa slots=4\nbb:4\n")
    assert (found.names, found.workers_per_host) == (["aa", "bb"], 4)


def test_a_hostfile_of_the_command_line_lies_in_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "mine").write_text("cc\n")
    monkeypatch.chdir(tmp_path / "here")
    assert study_with(tmp_path, "./nodes", "aa\n", ["hosts=./mine"]).names == ["cc"]


def test_workers_of_a_host_that_the_study_states_take_precedence(tmp_path):
    assert study_with(tmp_path, "{names: ./nodes, workers_per_host: 2}", "aa:4\nbb:3\n").workers_per_host == 2


@pytest.mark.parametrize(
    ("hostfile", "reason"),
    [("aa:4\nbb:3\n", "gives aa 4 slots and bb 3, and workers fill hosts evenly"), ("aa !", "nodes:1: '!' is not")],
)
def test_a_hostfile_that_cannot_be_used_is_a_mistake_of_the_study(tmp_path, hostfile, reason):
    with pytest.raises(StudyError) as refused:
        study_with(tmp_path, "./nodes", hostfile)
    assert "race.yaml:5: hosts: " in str(refused.value)
    assert reason in str(refused.value)


def test_a_hostfile_that_is_absent_is_named_with_its_whole_path(tmp_path):
    with pytest.raises(StudyError, match=f"hosts: {tmp_path}/none"):
        study_with(tmp_path, "./none", "aa\n")
