"""Hosts and slots that schedulers leave to a job, as their manuals describe them."""

import pytest

from steptime.cli.app import run_program
from steptime.errors import LaunchError
from steptime.expansion.site import site_of_study
from steptime.launchers.hosts.allocation import LOOKED_FOR, find_allocation
from steptime.study.study import Study

FILES = {
    # PBS Professional, qsub(1B), and Torque: a line for each slot ("mpiprocs", "ppn").
    "PBS_NODEFILE": "b\nb\na\na\n",
    # IBM Spectrum LSF, environment variables: LSB_DJOB_HOSTFILE has a line for each slot.
    "LSB_DJOB_HOSTFILE": "b\nb\na\na\n",
    "COBALT_NODEFILE": "b\na\n",  # named so by sites' guides; no manual was found
    # OAR, documentation of oarsub: "a file which lists all reserved nodes", a line for each resource.
    "OAR_NODEFILE": "b\nb\n\na\na\n",
    "LOADL_HOSTFILE": "b\na\n",
    # Grid Engine, sge_pe(5): host, slots, queue, processors; a host comes once for each of its queues.
    "PE_HOSTFILE": "b 2 all.q@b UNDEFINED\na 1 all.q@a <NULL>\na 1 more.q@a <NULL>\n",
    # Kubeflow's mpi-operator sets these to /etc/mpi/hostfile, by the MPI that a job names.
    "OMPI_MCA_orte_default_hostfile": "b slots=2\na slots=2\n",
    "PRTE_MCA_prte_default_hostfile": "b slots=2\na slots=2\n",
    "I_MPI_HYDRA_HOST_FILE": "b:2\na:2\n",
    "HYDRA_HOST_FILE": "b:2\na:2\n",
}
WITHOUT_SLOTS = ("COBALT_NODEFILE", "LOADL_HOSTFILE")


def allocated(environment: dict[str, str], launcher: str = "allocation", **keys: object):
    study = {"name": "race", "workloads": "lenet5", "frameworks": "reference", "launcher": launcher, **keys}
    return site_of_study(Study.model_validate(study), environment)


@pytest.mark.parametrize("variable", FILES)
def test_hosts_and_slots_of_a_scheduler_s_file(tmp_path, variable):
    (tmp_path / "nodes").write_text(FILES[variable])
    site = allocated({variable: str(tmp_path / "nodes")})
    slots = 1 if variable in WITHOUT_SLOTS else 2
    assert (site.names, site.workers_per_host) == (["b", "a"], slots)
    assert (site.reach, site.source) == ("ssh", f"${variable}")


@pytest.mark.parametrize(
    ("environment", "slots"),
    [
        # LSF, "How LSF runs parallel jobs": hosts, and for large jobs "host_nameA num_processors1 …".
        ({"LSB_HOSTS": "b b a a"}, 2),
        ({"LSB_MCPU_HOSTS": "b 20 a 20"}, 20),
        ({"LOADL_PROCESSOR_LIST": "b b a a "}, 2),
        # sbatch(1): SLURM_TASKS_PER_NODE, as 2(x2); a number that the user did not ask for is one of cores.
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "b,a", "SLURM_TASKS_PER_NODE": "64(x2)"}, 1),
        (
            {
                "SLURM_JOB_ID": "7",
                "SLURM_JOB_NODELIST": "b,a",
                "SLURM_TASKS_PER_NODE": "4(x2)",
                "SLURM_NTASKS": "8",
            },
            4,
        ),
    ],
)
def test_hosts_and_slots_of_a_scheduler_s_variables(monkeypatch, tmp_path, environment, slots):
    monkeypatch.setenv("PATH", str(tmp_path))
    site = allocated(environment)
    assert (site.names, site.workers_per_host) == (["b", "a"], slots)
    assert site.reach == ("slurm" if "SLURM_JOB_ID" in environment else "ssh")


HETEROGENEOUS = {  # Slurm, "Heterogeneous Job Support": variables of a component end in its number
    "SLURM_JOB_ID": "7",
    "SLURM_HET_SIZE": "2",
    "SLURM_JOB_NUM_NODES": "1",
    "SLURM_JOB_NODELIST": "n0",
    "SLURM_JOB_NODELIST_HET_GROUP_0": "n0",
    "SLURM_JOB_NODELIST_HET_GROUP_1": "g[1-2]",
}


@pytest.mark.parametrize("launcher", ["allocation", "auto", "mpi", "ssh"])
def test_all_groups_of_a_heterogeneous_job_of_slurm_are_hosts_by_ssh(tmp_path, monkeypatch, launcher):
    monkeypatch.setenv("PATH", str(tmp_path))
    site = allocated(HETEROGENEOUS, launcher)
    assert (site.names, site.reach) == (["n0", "g1", "g2"], "ssh")
    assert site.source == "the 2 groups of Slurm job 7"


def test_steps_of_slurm_which_reach_one_group_are_refused_in_a_heterogeneous_job(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LaunchError, match=r"reaches one group of a heterogeneous job.*n0, g1, g2.*launcher=allocation"):
        allocated(HETEROGENEOUS, "slurm")


def test_tasks_of_a_flux_job_are_its_slots(tmp_path, monkeypatch):
    # flux-environment(7): FLUX_JOB_SIZE is the number of tasks of the job.
    program = tmp_path / "flux"
    program.write_text('#!/bin/sh\n[ "$*" = "hostlist --expand local" ] && echo b a\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    site = allocated({"FLUX_JOB_ID": "f7", "FLUX_JOB_SIZE": "8"})
    assert (site.names, site.workers_per_host, site.source) == (["b", "a"], 4, "Flux job f7")


def test_the_hostfile_of_an_mpijob_is_read_where_no_variable_names_it(tmp_path):
    (tmp_path / "hostfile").write_text("b slots=2\n")
    found = find_allocation({}, tmp_path / "hostfile")
    assert (found.slots, found.source) == ({"b": 2}, str(tmp_path / "hostfile"))


UNEQUAL = {
    "LSB_MCPU_HOSTS": "b 20 a 4",
    "LSB_HOSTS": "a b " + "b " * 5,
    "LOADL_PROCESSOR_LIST": "b b b a a ",
}


@pytest.mark.parametrize("variable", UNEQUAL)
def test_hosts_of_different_slots_take_the_fewest_each_and_all_are_named(variable):
    site = allocated({variable: UNEQUAL[variable]})
    slots = {"LSB_MCPU_HOSTS": (20, 4), "LSB_HOSTS": (6, 1), "LOADL_PROCESSOR_LIST": (3, 2)}[variable]
    assert site.workers_per_host == min(slots)
    assert f"(a: {slots[1]}; b: {slots[0]})" in site.unused_slots
    assert f"each takes {slots[1]} of the {sum(slots)}; hosts.workers_per_host sets another number" in site.unused_slots


@pytest.mark.parametrize("variable", ["PE_HOSTFILE", "HYDRA_HOST_FILE"])
def test_files_that_name_hosts_of_different_slots_are_taken_too(tmp_path, variable):
    text = {"PE_HOSTFILE": "b 3 all.q@b UNDEFINED\na 1 all.q@a <NULL>\n", "HYDRA_HOST_FILE": "b:3\na:1\n"}[variable]
    (tmp_path / "hosts").write_text(text)
    site = allocated({variable: str(tmp_path / "hosts")})
    assert (site.workers_per_host, f"${variable} gives hosts different slots (a: 1; b: 3)" in site.unused_slots) == (
        1,
        True,
    )


def test_tasks_of_slurm_may_differ_by_node(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    nodes = {
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "n[0-7]",
        "SLURM_NTASKS": "23",
        "SLURM_TASKS_PER_NODE": "3(x7),2",
    }
    site = allocated(nodes)
    assert (site.workers_per_host, site.reach) == (2, "slurm")
    assert "(n7: 2; n0, n1, n2, n3, n4 and 2 more: 3)" in site.unused_slots


def test_the_study_s_number_of_workers_takes_precedence_over_slots():
    site = allocated({"LSB_MCPU_HOSTS": "b 20 a 4"}, hosts={"workers_per_host": 3})
    assert (site.workers_per_host, site.unused_slots) == (3, "")


def test_a_dry_run_names_the_slots_that_no_worker_has(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LSB_MCPU_HOSTS", "b 20 a 4")
    (tmp_path / "race.yaml").write_text("workloads: lenet5\nframeworks: reference\nworkers: 8\nlauncher: allocation\n")
    assert run_program(["run", str(tmp_path / "race.yaml"), "--dry-run", "-o", str(tmp_path / "results")]) == 0
    assert "LSB_MCPU_HOSTS gives hosts different slots" in capsys.readouterr().out


def test_outside_of_a_job_the_variables_that_were_looked_for_are_named():
    with pytest.raises(LaunchError) as refused:
        allocated({})
    assert all(name in str(refused.value) for name in LOOKED_FOR)


def test_hosts_that_are_named_contradict_those_of_the_job():
    with pytest.raises(LaunchError, match="uses the hosts of its job, and n0, n1 are named"):
        allocated({"LSB_HOSTS": "b"}, hosts=["n0", "n1"])


@pytest.mark.parametrize(
    ("variable", "text", "words"),
    [
        ("PE_HOSTFILE", "b many all.q@b <NULL>\n", "line 1: 'many' is not a number of slots"),
        ("PBS_NODEFILE", "\n", "names a file without hosts"),
        ("HYDRA_HOST_FILE", "b:2\na ?\n", "hostfile:2: '?' is not understood"),
        ("PBS_NODEFILE", "-oProxyCommand=x\n", "names a host that cannot be used"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_by_the_name_of_its_variable(tmp_path, variable, text, words):
    (tmp_path / "hostfile").write_text(text)
    with pytest.raises(LaunchError) as refused:
        allocated({variable: str(tmp_path / "hostfile")})
    assert f"${variable} " in str(refused.value)
    assert words in str(refused.value)


@pytest.mark.parametrize("tasks", ["2(x3)", "2,x", "0(x2)"])
def test_tasks_of_slurm_that_fit_no_node_list_are_refused(tmp_path, monkeypatch, tasks):
    monkeypatch.setenv("PATH", str(tmp_path))
    environment = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "b,a", "SLURM_NTASKS": "4"}
    with pytest.raises(LaunchError, match="SLURM_TASKS_PER_NODE is"):
        allocated({**environment, "SLURM_TASKS_PER_NODE": tasks})
