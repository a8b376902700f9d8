"""Whose GPUs a study on hosts counts with: those of its hosts, and never those of the machine that steptime runs on."""

from dataclasses import replace
from pathlib import Path

import pytest

from steptime.catalog.accelerators import find_accelerators
from steptime.catalog.found_site import FoundGpu, Site
from steptime.errors import StudyError
from steptime.expansion.site import machine_of_checks, site_of_study
from steptime.runner.plan import StudyPlan, plan_study
from steptime.runner.slurm_job import SlurmJob
from steptime.study.hosts import SlurmChoice
from steptime.study.study import Study

A100 = FoundGpu("NVIDIA A100-SXM4-40GB", (0, 1), "8.0", 40 * 2.0**30)
VOLTA = FoundGpu("Tesla V100-SXM2-16GB", (0, 1), "7.0", 16 * 2.0**30)
pytestmark = pytest.mark.skipif(len(find_accelerators()) > 0, reason="this machine has GPUs of its own")


def planned(folder: Path, *changes: str, device: str = "auto", workers: int = 8) -> StudyPlan:
    """Return the plan of a study of PyTorch, made on a machine without GPUs as a login node is."""
    study = folder / "race.yaml"
    study.write_text(f"workloads: lenet5\nframeworks: pytorch\nworkers: {workers}\ndevice: {device}\n")
    return plan_study(str(study), [*changes], folder / "results", None)


def devices(plan: StudyPlan) -> set[str]:
    return {trial.device for trial in plan.expansion.trials}


def found(plan: StudyPlan, *gpus: FoundGpu, driver: str = "580.65.06") -> Site:
    """Return the site of a plan as the probe would find it, with the same GPUs on every host."""
    assert plan.site is not None
    hosts = tuple(replace(host, cores=(0, 1), gpus=gpus, gpu_driver=driver) for host in plan.site.hosts)
    counted = len(gpus) if plan.site.gpus_per_host is None else plan.site.gpus_per_host
    return replace(plan.site, hosts=hosts, gpus_per_host=counted)


SLURM = ("launcher=slurm", "slurm.nodes=2", "hosts.workers_per_host=4")


@pytest.mark.parametrize("device", ["auto", "cuda"])
@pytest.mark.parametrize("change", ["hosts.gpus_per_host=4", "slurm.gpus_per_node=4", "slurm.gpus_per_node=a100:4"])
def test_a_login_node_without_gpus_plans_for_those_that_the_study_names(tmp_path, device, change):
    plan = planned(tmp_path, *SLURM, change, device=device)
    assert devices(plan) == {"cuda"}
    (sentence,) = plan.devices_in_words()
    assert sentence.startswith("GPUs: 4 on each host, as the study has it; those of this machine are not asked")


def test_cuda_is_planned_where_nobody_says_how_many_gpus_hosts_have(tmp_path):
    plan = planned(tmp_path, *SLURM, device="cuda")
    assert devices(plan) == {"cuda"}
    assert plan.devices_in_words()[0].startswith("GPUs: as many as the probe finds on each host")


def test_auto_is_cpu_until_the_probe_finds_gpus(tmp_path):
    plan = planned(tmp_path, *SLURM)
    assert devices(plan) == {"cpu"}
    assert plan.devices_in_words()[0].startswith("device auto: cpu, unless the probe finds GPUs on every host")
    assert devices(plan.on(found(plan, *[A100] * 4))) == {"cuda"}
    assert devices(plan.on(found(plan, *[A100] * 3))) == {"cpu"}


def test_more_workers_of_a_host_than_gpus_are_refused(tmp_path):
    with pytest.raises(StudyError, match="4 workers of a host need as many GPUs there; hosts have 2"):
        planned(tmp_path, *SLURM, "hosts.gpus_per_host=2", device="cuda")


def test_cuda_is_refused_where_the_probe_finds_too_few_gpus(tmp_path):
    plan = planned(tmp_path, *SLURM, device="cuda")
    with pytest.raises(StudyError, match="4 workers of a host need as many GPUs there; hosts have 0"):
        plan.on(found(plan))


def test_the_number_of_the_study_counts_before_that_of_slurm():
    keys = {"hosts": {"gpus_per_host": 2}, "slurm": {"gpus_per_node": "8"}, "launcher": "slurm"}
    study = Study.model_validate({"name": "race", "workloads": "lenet5", "frameworks": "reference", **keys})
    site = site_of_study(study, {})
    assert site is not None
    assert site.gpus_per_host == 2


@pytest.mark.parametrize(
    ("written", "count"), [("4", 4), ("a100:4", 4), ("a100:2,h100:1", 3), ("a100", None), (None, None)]
)
def test_the_number_of_gpus_is_read_from_what_slurm_takes(written, count):
    assert SlurmChoice(gpus_per_node=written).gpu_count == count


def test_the_environment_for_cuda_is_chosen_by_the_gpus_of_the_hosts(tmp_path):
    """Before the probe the newest build is assumed, which has no code for the older GPUs and needs a newer driver."""
    plan = planned(tmp_path, *SLURM, "hosts.gpus_per_host=4")
    assumed = plan.environment_spec("pytorch", "cuda", "synthetic", None).name
    on_old = plan.on(found(plan, *[VOLTA] * 4, driver="535.104.05"))
    assert (assumed, on_old.environment_spec("pytorch", "cuda", "synthetic", None).name) == (
        "pytorch-cuda",
        "pytorch-cuda12",
    )


def test_a_driver_that_no_build_runs_with_is_named_as_a_hosts(tmp_path):
    plan = planned(tmp_path, *SLURM, "hosts.gpus_per_host=4")
    with pytest.raises(StudyError, match="and a host has 390") as refused:
        planned(tmp_path, *SLURM, "hosts.gpus_per_host=4", device="cuda").on(found(plan, *[A100] * 4, driver="390.1"))
    assert "this machine" not in str(refused.value)


def script(folder: Path, *changes: str) -> list[str]:
    return SlurmJob(planned(folder, *SLURM, *changes), str(folder / "race.yaml"), changes).script.splitlines()


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (["hosts.gpus_per_host=4"], "#SBATCH --gpus-per-node=4"),
        (["slurm.gpus_per_node=a100:4"], "#SBATCH --gpus-per-node=a100:4"),
        (["hosts.gpus_per_host=4", "slurm.gpus_per_node=a100:4"], "#SBATCH --gpus-per-node=a100:4"),
    ],
)
def test_the_batch_script_asks_for_the_gpus(tmp_path, changes, line):
    assert line in script(tmp_path, *changes)


@pytest.mark.parametrize("changes", [[], ["hosts.gpus_per_host=0"]])
def test_the_batch_script_of_a_study_without_gpus_asks_for_none(tmp_path, changes):
    assert not [line for line in script(tmp_path, *changes) if line.startswith("#SBATCH") and "gpus" in line]


def test_a_check_on_hosts_is_kept_for_hosts_of_their_kinds(tmp_path):
    """The processor and the GPUs of the machine that steptime runs on computed nothing of it."""
    site = found(planned(tmp_path, *SLURM, "hosts.gpus_per_host=4"), *[A100] * 4)
    other = found(planned(tmp_path, *SLURM, "hosts.gpus_per_host=4"), *[VOLTA] * 4)
    assert machine_of_checks(site) != machine_of_checks(other)
    assert machine_of_checks(site) == machine_of_checks(replace(site, hosts=site.hosts[:1]))
