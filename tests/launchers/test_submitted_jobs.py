"""Studies that ``steptime submit`` gives to a real Slurm on a bed of nodes; every test needs root."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_bed import ClusterBed, running_bed
from launching import interpreter_for

from steptime.results.progress import run_progress
from steptime.results.store import Store

STUDY = "workloads: lenet5\nframeworks: reference\nworkers: 2\ndevice: cpu\n"
SHORT = """
loaders: synthetic
launches: {min: 1, max: 1}
seconds_per_launch: 0.1
steps: {warmup: 3, min: 5, max: 10}
equivalence: {enabled: false}
"""
TRAINING = """
import os, torch, torch.distributed as dist

torch.set_num_threads(1)
rank, world = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
dist.init_process_group("gloo", init_method="file://" + os.path.abspath("store"), rank=rank, world_size=world)
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
for x in torch.utils.data.DataLoader(torch.randn(100, 16), batch_size=4):
    optimizer.zero_grad()
    net(x).square().mean().backward()
    optimizer.step()
dist.barrier()
dist.destroy_process_group()  # gloo may abort at exit where the other rank has already ended
"""
pytestmark = pytest.mark.needs("hosts", "root")


@pytest.fixture(scope="module")
def bed() -> Iterator[ClusterBed]:
    """Two nodes."""
    with running_bed(2) as made:
        yield made


@pytest.mark.needs("mpi")
def test_a_study_by_mpi_uses_the_nodes_of_the_allocation_that_it_runs_in(bed, tmp_path):
    (tmp_path / "race.yaml").write_text(f"{STUDY}{SHORT}")
    run = [sys.executable, "-P", "-m", "steptime", "run", str(tmp_path / "race.yaml"), "launcher=mpi"]
    done = bed.run("salloc", "-Q", "-N2", "--exclusive", *run, "-o", str(tmp_path / "results"), limit_s=300)
    store = Store.open(tmp_path / "results")
    launches = [launch for trial in store.trials() for launch in store.launches(trial.id)]
    assert [launch.status for launch in launches] == ["ok"], (done.stderr, launches)
    assert [worker.host for worker in launches[0].workers] == ["n0", "n1"]


@pytest.mark.framework("pytorch")
def test_a_sweep_in_an_allocation_records_the_ranks_of_all_its_nodes(bed, tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text(TRAINING)
    monkeypatch.chdir(tmp_path)
    sweep = [sys.executable, "-P", "-m", "steptime", "sweep", "--counts", "2", "--repeats", "1", "-o", "swept", "--"]
    step = ["srun", "-N", "{workers}", "-n", "{workers}", str(interpreter_for("pytorch")), "train.py"]
    done = bed.run("salloc", "-Q", "-N2", "--exclusive", *sweep, *step, limit_s=300)
    assert done.returncode == 0, done.stderr
    [run] = (tmp_path / "swept").glob("runs/*/1")
    _, files = Store.open(run).attached()
    ranks = {process.place.rank: (process.process.host, len(process.steps)) for process in files.processes}
    assert ranks == {0: ("n0", 25), 1: ("n1", 25)}


@pytest.mark.framework("pytorch")
def test_a_sweep_of_a_job_for_each_count_records_every_rank(bed, tmp_path, monkeypatch):
    """``srun`` outside of an allocation waits for one of its own."""
    (tmp_path / "train.py").write_text(TRAINING.replace('"store"', '"store-" + os.environ["SLURM_JOB_ID"]'))
    monkeypatch.chdir(tmp_path)
    sweep = [sys.executable, "-P", "-m", "steptime", "sweep", "--counts", "1,2", "--repeats", "1", "-o", "swept", "--"]
    step = ["srun", "-N", "{workers}", "-n", "{workers}", str(interpreter_for("pytorch")), "train.py"]
    done = bed.run(*sweep, *step, limit_s=300)
    assert done.returncode == 0, done.stderr
    hosts = {}
    for run in (tmp_path / "swept").glob("runs/*/1"):
        _, files = Store.open(run).attached()
        hosts[run.parent.name] = sorted(process.process.host for process in files.processes)
    assert hosts == {"workers-1": ["n0"], "workers-2": ["n0", "n1"]}


def await_jobs(bed: ClusterBed, limit_s: float = 300.0) -> None:
    deadline = time.monotonic() + limit_s
    while bed.run("squeue", "-h").stdout and time.monotonic() < deadline:
        time.sleep(0.5)


def test_a_script_that_is_submitted_again_from_elsewhere_goes_on_with_the_study_that_it_holds(
    bed, tmp_path, monkeypatch
):
    (tmp_path / "race.yaml").write_text(f"{STUDY}{SHORT}")
    monkeypatch.chdir(tmp_path)
    done = bed.run(
        sys.executable, "-P", "-m", "steptime", "submit", "race.yaml", "slurm.nodes=2", "-o", "results", limit_s=300
    )
    assert done.returncode == 0, done.stderr
    await_jobs(bed)
    (tmp_path / "race.yaml").write_text("nothing: of this\n")
    monkeypatch.chdir("/")
    again = bed.run("sbatch", "--parsable", str(tmp_path / "results.job.sh"))
    await_jobs(bed)
    log = (tmp_path / f"results.job-{again.stdout.strip()}.log").read_text()
    store = Store.open(tmp_path / "results")
    launches = [launch.status for trial in store.trials() for launch in store.launches(trial.id)]
    assert (launches, run_progress(store.path).ended) == (["ok"], "done"), log
    assert run_progress(store.path).job == again.stdout.strip()
    assert not list(store.path.glob("study-*.json"))


def submitted(bed: ClusterBed, study: Path, *options: str) -> str:
    """Submit a study to start never; return the number of its job."""
    (study / "race.yaml").write_text(STUDY)
    later = ["--option=--hold", *(f"--option={option}" for option in options)]
    command = ["submit", str(study / "race.yaml"), "slurm.nodes=2", "-o", str(study / "results"), *later]
    done = bed.run(sys.executable, "-P", "-m", "steptime", *command)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("submitted as job ")]
    return line.split()[3].rstrip(";")


def test_slurm_has_the_script_that_the_user_has_and_follows_no_link_in_its_place(bed, tmp_path):
    victim, script = tmp_path / "victim", tmp_path / "results.job.sh"
    victim.write_text("#!/bin/sh\nmine\n")
    script.symlink_to(victim)
    job = submitted(bed, tmp_path)
    has = bed.run("scontrol", "write", "batch_script", job, "-").stdout
    bed.run("scancel", job)
    assert has.rstrip() == script.read_text().rstrip()
    assert (victim.read_text(), script.is_symlink()) == ("#!/bin/sh\nmine\n", False)


@pytest.mark.parametrize("comment", ["two words", 'it\'s $(id) # "all"'])
def test_slurm_takes_an_option_with_spaces_as_it_was_typed(bed, tmp_path, comment):
    job = submitted(bed, tmp_path, f"--comment={comment}")
    shown = bed.run("squeue", "-h", "-j", job, "-O", "Comment:200").stdout.strip()
    bed.run("scancel", job)
    assert shown == comment
