"""Which hosts a study runs on: those it names, those of the allocation around it, or placeholders for one to come."""

from dataclasses import replace
from pathlib import Path

import pytest

from steptime.errors import StudyError
from steptime.runner.plan import plan_study
from steptime.runner.site import site_of_study
from steptime.runner.slurm_job import SlurmJob
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


def test_hosts_of_pbs_are_taken_once_each_in_their_order(tmp_path):
    nodes = tmp_path / "nodes"
    nodes.write_text("b\nb\na\n")
    assert site({"PBS_NODEFILE": str(nodes)}, launcher="ssh").names == ["b", "a"]


def test_hosts_of_lsf_are_taken_once_each_in_their_order():
    assert site({"LSB_HOSTS": "b b a"}, hosts={"workers_per_host": 2}).names == ["b", "a"]


def test_a_study_that_wants_hosts_which_nobody_names_is_refused():
    with pytest.raises(StudyError, match=r"nobody names any: write hosts: \[n0, n1\]"):
        site(launcher="ssh")


def test_outside_an_allocation_slurm_has_placeholders():
    found = site(launcher="slurm", slurm={"nodes": 2})
    assert (found.names, found.is_example) == (["HOST0", "HOST1"], True)


@pytest.mark.parametrize("name", ["-oProxyCommand=x", "n0;rm", "$(id)", "a b", ""])
def test_a_name_that_a_program_could_take_for_something_else_is_no_host(name):
    with pytest.raises(ValueError, match="hosts"):
        site(hosts=[name])


@pytest.fixture
def job(tmp_path: Path) -> SlurmJob:
    """The job of a study for two nodes."""
    study = tmp_path / "race.yaml"
    study.write_text("workloads: lenet5\nframeworks: reference\nworkers: 2\ndevice: cpu\n")
    changes = ["slurm.nodes=2", "slurm.time=90m"]
    plan = plan_study(str(study), [*changes, "launcher=slurm"], tmp_path / "results", None)
    return SlurmJob(plan, str(study), changes, ["module load cuda"], ["--qos=high"])


def test_the_batch_script_asks_for_the_nodes_and_becomes_the_run(job):
    lines = job.script.splitlines()
    assert {"#SBATCH --nodes=2", "#SBATCH --time=1:30:00", "#SBATCH --qos=high", "module load cuda"} <= set(lines)
    assert lines[-1].startswith("exec ")
    assert "launcher=slurm" in lines[-1]


def test_the_batch_script_asks_for_all_memory_of_its_nodes(job):
    assert "#SBATCH --mem=0" in job.script.splitlines()


@pytest.mark.parametrize("option", ["--mem=4G", "--mem 4G", "--mem-per-cpu=1G", "--mem-per-gpu=9G"])
def test_memory_that_the_user_asks_for_is_left_as_it_is(job, option):
    lines = replace(job, options=[option]).script.splitlines()
    assert [line for line in lines if line.startswith("#SBATCH --mem")] == [f"#SBATCH {option}"]


def test_binding_to_memory_says_nothing_of_how_much(job):
    assert "#SBATCH --mem=0" in replace(job, options=["--mem-bind=local"]).script.splitlines()


def test_the_commands_of_a_launch_to_come_have_placeholders(job):
    (command,) = job.plan.commands(job.plan.expansion.trials[-1])
    assert "STEPTIME_WORKER_ADDRESSES=HOST0:15001,HOST1:" in command
    assert "srun --nodelist=HOST0,HOST1 -N 2 -n 2" in command
