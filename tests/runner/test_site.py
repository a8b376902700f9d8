"""Which hosts a study runs on: those it names, those of the allocation around it, or placeholders for one to come."""

import pytest

from steptime.errors import StudyError
from steptime.runner.plan import plan_study
from steptime.runner.site import site_of_study
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


def test_hosts_of_pbs_are_taken_once_each_in_their_order(tmp_path):
    nodes = tmp_path / "nodes"
    nodes.write_text("b\nb\na\n")
    assert site({"PBS_NODEFILE": str(nodes)}, launcher="ssh").names == ["b", "a"]


def test_hosts_of_lsf_are_taken_once_each_in_their_order():
    assert site({"LSB_HOSTS": "b b a"}, hosts={"workers_per_host": 2}).names == ["b", "a"]


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
