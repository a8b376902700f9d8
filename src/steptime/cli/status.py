"""``steptime status``: how far a study is."""

from pathlib import Path
from typing import Annotated

import typer

from steptime.cli.section_output import FormOption, PageOption, chosen_form


def status(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A results folder.")],
    html: PageOption = None,
    form: FormOption = "text",
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects and nothing else.")] = False,
) -> None:
    """Show what a study is doing and how many launches and trainings each trial has.

    This reads the results folder only: it may be another host that runs the study, such as the node of a Slurm job.
    """
    from steptime.cli.study_status import show_status

    show_status(folder, chosen_form(form, as_json=as_json), html)
