"""``steptime export``: results for other programs."""

from pathlib import Path
from typing import Annotated

import typer

from steptime.cli.arguments import open_results
from steptime.cli.streams import say, warn
from steptime.errors import UsageError, choices_message
from steptime.report.export_formats import FileFormat, format_help, formats_of


def export(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="A results folder, or several of machines or a history.")
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help=format_help(FileFormat),
            autocompletion=lambda: list(formats_of(FileFormat)),
        ),
    ] = "parquet",
    trial: Annotated[str | None, typer.Option(metavar="ID", help="Only this trial; with --to chrome.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output-dir", help="Folder to write to (default: DIR/export).")
    ] = None,
) -> None:
    """Write tables of trials, steps and epochs for notebooks, traces for Perfetto, or what other tools read."""
    formats = formats_of(FileFormat)
    if to not in formats:
        raise UsageError(choices_message("format", to, formats))
    if trial is not None and not formats[to].of_trial:
        able = " or ".join(f"--to {name}" for name, each in formats.items() if each.of_trial)
        message = f"--trial {trial} needs {able}; {to} holds all trials of a folder"
        raise UsageError(message)
    if len(folders) > 1 and not formats[to].several:
        able = " or ".join(f"--to {name}" for name, each in formats.items() if each.several)
        message = f"{len(folders)} results folders need {able}; {to} is of one"
        raise UsageError(message)
    stores = [open_results(each) for each in folders]
    target = output or folders[0] / "export"
    paths = formats[to].write(stores, target / formats[to].below, trial)
    say(*map(str, paths))
    for each in stores:
        warn(each.problems)
        each.require_launches()
