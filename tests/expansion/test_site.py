"""Which hosts a study runs on: those it names, those of the allocation around it, or placeholders for one to come."""

import pytest

from steptime.errors import LaunchError, StudyError
from steptime.expansion.site import site_of_study
from steptime.runner.plan import plan_study
from steptime.study.study import Study

SMALLEST = {"name": "race", "workloads": "lenet5", "frameworks": "reference"}


def site(environment: dict[str, str] | None = None, **keys: object):
    return site_of_study(Study.model_validate({**SMALLEST, **keys}), environment or {})


def test_a_study_without_hosts_uses_this_host():
    assert site() is None
    assert site(launcher="mpi") is None


def test_hosts_of_the_study_are_reached_by_ssh():
    found = site(hosts=["n0", "user@n1"])
    assert (found.names, found.reach, found.source) == (["n0", "user@n1"], "ssh", "the study")


def test_hosts_are_named_on_the_command_line_as_other_lists_are():
    assert site(hosts="n0,user@n1").names == ["n0", "user@n1"]


def test_numbers_in_brackets_stand_for_hosts_in_a_study_and_in_a_list():
    assert site(hosts="n[08-10,3],head").names == ["n08", "n09", "n10", "n3", "head"]
    assert site(hosts=["r[0-1]n[0-1]", "head"]).names == ["r0n0", "r0n1", "r1n0", "r1n1", "head"]


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("PBS_NODEFILE", "b\nb\na\n"),
        ("LSB_DJOB_HOSTFILE", "b\nb\na\n"),
        ("COBALT_NODEFILE", "b\na"),
        ("OAR_NODEFILE", "b\nb\n\na\na\n"),
        ("LOADL_HOSTFILE", "b\na\n"),
        ("PE_HOSTFILE", "b 4 all.q@b UNDEFINED\na 4 all.q@a <NULL>\n"),
    ],
)
def test_hosts_in_the_file_of_a_scheduler_are_taken_once_each_in_their_order(tmp_path, variable, text):
    nodes = tmp_path / "nodes"
    nodes.write_text(text)
    found = site({variable: str(nodes)}, launcher="ssh")
    assert (found.names, found.reach, found.source) == (["b", "a"], "ssh", f"${variable}")


@pytest.mark.parametrize(
    "environment",
    [
        {"LSB_HOSTS": "b b a"},
        {"LSB_MCPU_HOSTS": "b 20 a 4"},  # alone where LSB_HOSTS would be too long
        {"LOADL_PROCESSOR_LIST": "b b a "},
    ],
)
def test_hosts_that_a_variable_lists_are_taken_once_each_in_their_order(environment):
    assert site(environment, hosts={"workers_per_host": 2}).names == ["b", "a"]


@pytest.mark.parametrize("environment", [{"FLUX_JOB_ID": "f7"}, {"FLUX_URI": "local:///tmp/flux/local-0"}])
def test_flux_is_asked_for_its_hosts_in_a_job_and_in_an_instance(tmp_path, monkeypatch, environment):
    program = tmp_path / "flux"
    program.write_text('#!/bin/sh\n[ "$*" = "hostlist --expand local" ] && echo b b a\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert site(environment, launcher="ssh").names == ["b", "a"]


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"PBS_NODEFILE": "nowhere/nodes"}, "PBS_NODEFILE cannot be read: nowhere/nodes"),
        ({"PE_HOSTFILE": "/dev/null"}, "PE_HOSTFILE cannot be read: /dev/null"),
        ({"LSB_MCPU_HOSTS": "b a 4"}, "LSB_MCPU_HOSTS is 'b a 4'"),
        ({"FLUX_JOB_ID": "f7"}, "flux hostlist --expand local"),
        ({"SLURM_JOB_ID": "7"}, "SLURM_JOB_NODELIST"),
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[0-"}, "its brackets do not match"),
        ({"PBS_NODEFILE": __file__}, "names a host that cannot be used"),
    ],
)
def test_an_allocation_whose_hosts_cannot_be_read_is_refused_by_the_name_of_its_variable(
    tmp_path, monkeypatch, environment, words
):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LaunchError) as refused:
        site(environment, launcher="ssh")
    assert words in str(refused.value)


def test_who_means_this_host_alone_learns_how_to_ask_for_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LaunchError, match="launcher=local"):
        site({"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"})
    with pytest.raises(StudyError, match="launcher=local"):
        site(launcher="ssh")


@pytest.mark.parametrize("variable", ["SLURM_JOB_NODELIST", "SLURM_NODELIST"])
@pytest.mark.parametrize("launcher", ["auto", "mpi", "slurm", "ssh"])
def test_nodes_of_slurm_are_known_where_its_programs_are_not(tmp_path, monkeypatch, variable, launcher):
    monkeypatch.setenv("PATH", str(tmp_path))
    reach = "ssh" if launcher == "ssh" else "slurm"
    found = site({"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "3", variable: "n[08-09],head"}, launcher=launcher)
    assert (found.names, found.reach, found.source) == (["n08", "n09", "head"], reach, "Slurm job 7")


def test_nodes_of_slurm_are_known_where_scontrol_lacks_its_configuration(tmp_path, monkeypatch):
    program = tmp_path / "scontrol"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert site({"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[0-1]"}, launcher="slurm").names == ["n0", "n1"]


def test_a_study_that_wants_hosts_which_nobody_names_is_refused():
    with pytest.raises(StudyError, match=r"none are named: write hosts: \[n0, n1\]"):
        site(launcher="ssh")


def test_outside_an_allocation_slurm_has_placeholders():
    found = site(launcher="slurm", slurm={"nodes": 2})
    assert (found.names, found.is_example) == (["HOST0", "HOST1"], True)


@pytest.mark.parametrize("name", ["-oProxyCommand=x", "n0;rm", "$(id)", "a b", ""])
def test_a_name_that_a_program_could_take_for_something_else_is_no_host(name):
    with pytest.raises(ValueError, match="hosts"):
        site(hosts=[name])


def test_the_commands_of_a_launch_to_come_have_placeholders(tmp_path):
    study = tmp_path / "race.yaml"
    study.write_text("workloads: lenet5\nframeworks: reference\nworkers: 2\ndevice: cpu\n")
    plan = plan_study(str(study), ["slurm.nodes=2", "launcher=slurm"], tmp_path / "results", None)
    (command,) = plan.commands(plan.expansion.trials[-1])
    assert "STEPTIME_WORKER_ADDRESSES=HOST0:15001,HOST1:" in command
    assert "srun --nodelist=HOST0,HOST1 -N 2 -n 2" in command
