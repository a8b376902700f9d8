"""``steptime submit``: measure what a study asks for as one job of Slurm, or of Kubernetes by a manifest."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from steptime.errors import UsageError, choices_message

SLURM, KUBERNETES = "slurm", "kubernetes"
_REQUEUES = 10


def submit(
    study: Annotated[str, typer.Argument(help="A study file, or the name of a shipped study (steptime list studies).")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY.PATH=VALUE]...", help="Changes to the study, such as slurm.nodes=4."),
    ] = None,
    to: Annotated[
        str,
        typer.Option(
            help="slurm, or kubernetes: print a manifest of Kubeflow for slurm.nodes pods, and submit nothing.",
            autocompletion=lambda: (SLURM, KUBERNETES),
        ),
    ] = SLURM,
    image: Annotated[
        str | None,
        typer.Option(help="With --to kubernetes: the image, which has steptime, Python 3.11, ssh and sshd."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output-dir",
            help="Results folder, on a file system that all nodes share; in pods /steptime/STUDY by default, where the "
            "folder above it is the volume claim.",
        ),
    ] = None,
    setup: Annotated[
        list[str] | None, typer.Option(help="A line of shell before the run, such as 'module load cuda'; repeatable.")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="A further option of sbatch, such as --option=--qos=high; repeatable.")
    ] = None,
    requeue: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help=f"How often Slurm queues the job again when it runs out of time, at most (default: {_REQUEUES}).",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the script and the commands of a launch; submit nothing.")
    ] = False,
) -> None:
    """Write the batch script of a study, show it, and submit it to Slurm: one job, in which all launches take turns."""
    from steptime.cli.batch_job import print_manifest, submit_to_slurm
    from steptime.runner.plan import plan_study

    _refuse_options(to, {"--option": option, "--requeue": requeue, "--image": image})
    changes = list(overrides or [])
    plan = plan_study(study, [*changes, "launcher=slurm"], output, None)
    if to == KUBERNETES:
        print_manifest(plan, study, changes, output, setup or [], image, commands=dry_run)
        return
    submit_to_slurm(
        plan, study, changes, setup or [], option or [], _REQUEUES if requeue is None else requeue, dry_run=dry_run
    )


def _refuse_options(to: str, given: Mapping[str, object]) -> None:
    """Raise UsageError for a scheduler that is not known, and for options of the other one."""
    if to not in (SLURM, KUBERNETES):
        raise UsageError(choices_message("scheduler", to, (SLURM, KUBERNETES)))
    unusable = [name for name in ("--option", "--requeue") if given[name]]
    if to == KUBERNETES and unusable:
        message = f"{' and '.join(unusable)}: of Slurm alone; edit the manifest, which is printed and not submitted"
        raise UsageError(message)
    if to == SLURM and given["--image"] is not None:
        message = (
            f"--image {given['--image']}: of --to kubernetes; in Slurm, a study names containers under environments"
        )
        raise UsageError(message)
