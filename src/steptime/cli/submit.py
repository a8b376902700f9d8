"""``steptime submit``: give a study to Slurm as one job."""

from pathlib import Path
from typing import Annotated

import typer


def submit(
    study: Annotated[str, typer.Argument(help="A study file, or the name of a shipped study (steptime list studies).")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY.PATH=VALUE]...", help="Changes to the study, such as slurm.nodes=4."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output-dir", help="Results folder, on a file system that all nodes share."),
    ] = None,
    setup: Annotated[
        list[str] | None, typer.Option(help="A line of shell before the run, such as 'module load cuda'; repeatable.")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="A further option of sbatch, such as --option=--qos=high; repeatable.")
    ] = None,
    requeue: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="How often the job is queued again when it runs out of time, at most."),
    ] = 10,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the script and the commands of a launch; submit nothing.")
    ] = False,
) -> None:
    """Write the batch script of a study, show it, and submit it to Slurm: one job, in which all launches take turns."""
    from steptime.cli.console import PlainConsole, stderr_console
    from steptime.runner.plan import plan_study
    from steptime.runner.slurm_job import SlurmJob

    changes = list(overrides or [])
    plan = plan_study(study, [*changes, "launcher=slurm"], output, None)
    job = SlurmJob(plan, study, changes, setup or [], option or [], requeue)
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
