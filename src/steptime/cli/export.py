"""``steptime export``: results for other programs."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

_FORMATS: dict[str, Literal["parquet", "csv"]] = {"parquet": "parquet", "csv": "csv"}


def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A results folder.")],
    to: Annotated[str, typer.Option("--to", help="parquet or csv.", autocompletion=lambda: list(_FORMATS))] = "parquet",
    output: Annotated[Path | None, typer.Option("-o", "--output-dir", help="Where to [default: DIR/export].")] = None,
) -> None:
    """Write one table of trials and one of steps, for spreadsheets and notebooks."""
    from steptime.errors import UsageError, choices_message
    from steptime.measurements.export import export_tables
    from steptime.measurements.store import Store

    if to not in _FORMATS:
        raise UsageError(choices_message("format", to, _FORMATS))
    for path in export_tables(Store.open(folder), output or folder / "export", _FORMATS[to]):
        sys.stdout.write(f"{path}\n")
