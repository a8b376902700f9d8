"""``steptime export``: results for other programs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from steptime.cli.streams import say, warn

_TABLES: dict[str, Literal["parquet", "csv"]] = {"parquet": "parquet", "csv": "csv"}
_FORMATS = (*_TABLES, "chrome")


def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A results folder.")],
    to: Annotated[
        str,
        typer.Option(
            "--to", help="parquet, csv, or chrome: a trace for Perfetto.", autocompletion=lambda: list(_FORMATS)
        ),
    ] = "parquet",
    trial: Annotated[str | None, typer.Option(metavar="ID", help="Only this trial; with --to chrome.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output-dir", help="Where to [default: DIR/export].")] = None,
) -> None:
    """Write tables of trials, steps and epochs for notebooks, or traces of steps that Perfetto opens."""
    from steptime.cli.arguments import open_results
    from steptime.errors import UsageError, choices_message

    if to not in _FORMATS:
        raise UsageError(choices_message("format", to, _FORMATS))
    if trial is not None and to in _TABLES:
        message = f"--trial {trial} needs --to chrome; tables hold all trials of a folder"
        raise UsageError(message)
    store, target = open_results(folder), output or folder / "export"
    if to in _TABLES:
        from steptime.measurements.export import export_tables

        paths = export_tables(store, target, _TABLES[to])
    else:
        from steptime.measurements.chrome_trace import export_traces

        paths = export_traces(store, target, trial)
    say(*map(str, paths))
    warn(store.problems)
    store.require_launches()
