"""``steptime workloads``: begin with a module of your own."""

from pathlib import Path
from typing import Annotated

import typer

from steptime.cli.streams import say

app = typer.Typer(no_args_is_help=True, help="Begin with a module of your own.")


@app.callback()
def _group() -> None:
    """Begin with a module of your own (steptime list workloads shows those that come with steptime)."""


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Of the workload and its files: small letters, digits and '_'.")],
    folder: Annotated[Path | None, typer.Option("-o", "--output-dir", help="Folder of the files [default: .].")] = None,
) -> None:
    """Write a torch module with its batches, and a study that races it; put your own in its place."""
    from steptime.runner.framework_template import write_workload

    files = write_workload(name, folder or Path())
    say(*map(str, files))
    say("", f"next: steptime run {files[-1]}")
