"""A study as one job: of Slurm, which is submitted, or of Kubernetes, whose manifest is printed."""

from dataclasses import replace
from pathlib import Path

from steptime.catalog.found_site import FoundHost
from steptime.cli.console import PlainConsole, stderr_console
from steptime.cli.kubernetes import (
    IMAGE,
    NEVER_RUN,
    Mount,
    PodJob,
    host_names,
    manifest_text,
    mpijob,
    name_of_job,
    trainjob,
)
from steptime.cli.streams import say, warn
from steptime.errors import UsageError
from steptime.runner.plan import StudyPlan
from steptime.runner.slurm_job import STUDY_HERE, SlurmJob, lines_with_study
from steptime.study.hosts import HostsChoice, SlurmChoice
from steptime.study.study_file import folder_of_paths
from steptime.units import parse_duration

_CLAIM_PATH = Path("/steptime")
"""Where pods mount the volume claim by default."""
_CHANGES_OF_ONE_POD = ("hosts=null", "launcher=local")
_LEAST_PARTS = 3
"""Of a results folder below a folder that is not the root: ``/``, ``steptime``, ``race``."""


def submit_to_slurm(
    plan: StudyPlan,
    study: str,
    changes: list[str],
    setup: list[str],
    option: list[str],
    requeue: int,
    *,
    dry_run: bool,
) -> None:
    """Show the batch script and submit it; on a dry run, show the commands of a launch instead."""
    job = SlurmJob(plan, study, changes, setup, option, requeue)
    console = PlainConsole()
    console.print(job.script, soft_wrap=True, end="")
    for sentence in plan.devices_in_words():
        console.print(sentence, soft_wrap=True)
    for sentence in job.warnings:
        stderr_console().print(sentence, soft_wrap=True)
    if dry_run:
        trial = plan.expansion.trials[-1]
        console.print(f"\nCommands of {trial.id} within the job:")
        for command in plan.commands(trial):
            console.print(f"  {command}", soft_wrap=True)
        return
    number = job.submit()
    console.print(f"\nsubmitted as job {number}; written to {job.script_path}", soft_wrap=True)
    console.print("the job has the study as it is now; after a change, submit it again", soft_wrap=True)
    console.print(f"output: {job.log(number)}", soft_wrap=True)
    console.print(f"progress: steptime status {plan.folder}", soft_wrap=True)


def print_manifest(
    plan: StudyPlan,
    study: str,
    changes: list[str],
    output: Path | None,
    setup: list[str],
    image: str | None,
    *,
    commands: bool,
) -> None:
    """Print a manifest, with the commands of a launch as comments if they are asked for; it stays YAML."""
    folder = _folder_in_pods(output or _CLAIM_PATH / plan.folder.name)
    job = _pod_job(plan, changes, folder, setup, image)
    several = job.hosts > 1
    kind = f"{job.hosts} hosts of Kubeflow's MPI operator" if several else "one pod of Kubeflow Trainer 2.3"
    needs = "steptime, Python 3.11, and the sshd of mpioperator/base" if several else "steptime and Python 3.11"
    comments = [
        f"A study on {kind}. {NEVER_RUN}",
        f"Set the image, which has {needs}, and a claim that all pods may write to.",
        "Give pods the processors and memory that the study is to measure; then: kubectl apply -f FILE",
    ]
    say(manifest_text(comments, mpijob(job) if several else trainjob(job)))
    if commands:
        trial = plan.expansion.trials[-1]
        lines = _in_pods(plan, job).commands(
            trial.model_copy(update={"launcher": "ssh"} if several else {"launcher": "local", "cluster": None})
        )
        say(f"# Commands of {trial.id} within the job:", *(f"#   {line}" for line in lines))
    warn([*plan.devices_in_words(), *_copies_in_words(plan, study, folder.parent)])
    warn([f"results: {folder}, on the volume claim; there: steptime report {folder}"])


def _folder_in_pods(folder: Path) -> Path:
    if not folder.is_absolute() or len(folder.parts) < _LEAST_PARTS or ".." in folder.parts:
        message = (
            f"-o {folder}: pods mount the volume claim where the folder above the results is; give a whole path, as "
            f"{_CLAIM_PATH / folder.name}"
        )
        raise UsageError(message)
    return folder


def _pod_job(plan: StudyPlan, changes: list[str], folder: Path, setup: list[str], image: str | None) -> PodJob:
    """Return what pods run: the study as it is now, on all hosts of an MPIJob or in one pod."""
    hosts, asked = plan.study.hosts or HostsChoice(), plan.study.slurm or SlurmChoice()
    if hosts.names:
        message = (
            f"{plan.study.name}: on Kubernetes the hosts of a launch are its pods, and {', '.join(hosts.names)} are "
            "named; leave them out of hosts, and set slurm.nodes"
        )
        raise UsageError(message)
    gpus = (plan.site.gpus_per_host if plan.site else None) or 0
    in_pods = ["slurm=null", *_CHANGES_OF_ONE_POD]
    if asked.nodes > 1:
        in_pods = ["slurm=null", "launcher=allocation", *([f"hosts.gpus_per_host={gpus}"] if gpus else [])]
    words = ["steptime", "run", STUDY_HERE, *changes, *in_pods, f"name={plan.study.name}"]
    words += ["--paths-from", str(folder.parent), "-o", str(folder)]
    script = "\n".join([*setup, *lines_with_study(words, plan.study_text), ""])
    return PodJob(
        name=name_of_job(f"steptime-{plan.study.name}"),
        command=["bash", "-c", script],
        variables={"STEPTIME_CACHE": str(folder.parent / "cache")},
        mounts=[Mount(str(folder.parent))],
        image=IMAGE if image is None else image,
        hosts=asked.nodes,
        workers_per_host=hosts.workers_per_host,
        gpus_per_host=gpus,
        limit_s=None if asked.time is None else round(parse_duration(asked.time)),
        large_shared_memory=True,
    )


def _in_pods(plan: StudyPlan, job: PodJob) -> StudyPlan:
    """Return a plan whose hosts are the pods, to show its commands."""
    if job.hosts == 1 or plan.site is None:
        return replace(plan, site=None)
    hosts = tuple(FoundHost(name, name, "INTERFACE") for name in host_names(job))
    return replace(plan, site=replace(plan.site, hosts=hosts, reach="ssh"))


def _copies_in_words(plan: StudyPlan, study: str, claim: Path) -> list[str]:
    """Return what must be copied into the claim or the image, a sentence each."""
    needed, around = plan.needed_paths(), folder_of_paths(study).absolute()
    inside = {
        path: claim / Path(path).relative_to(around) if Path(path).is_relative_to(around) else Path(path)
        for path in needed.datasets
    }
    copies = [f"the study reads {path}: copy it to {there} in the pods" for path, there in inside.items()]
    return copies + [f"the study starts {path}: the image needs it there" for path in needed.interpreters]
