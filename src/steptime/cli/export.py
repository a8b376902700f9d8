"""``steptime export``: results for other programs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from steptime.cli.streams import say, warn

_TABLES: dict[str, Literal["parquet", "csv"]] = {"parquet": "parquet", "csv": "csv"}
_EXPORTS = (*_TABLES, "chrome", "talp", "otava", "mllog", "extrap")


def export(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="A results folder; of a history several.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="parquet, csv, chrome: a trace for Perfetto, talp: POP efficiencies for TALP-Pages, otava: the "
            "history of several folders for Apache Otava; mllog: trainings as MLPerf's log, extrap: step times for "
            "Extra-P.",
            autocompletion=lambda: list(_EXPORTS),
        ),
    ] = "parquet",
    trial: Annotated[str | None, typer.Option(metavar="ID", help="Only this trial; with --to chrome.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output-dir", help="Where to [default: DIR/export].")] = None,
) -> None:
    """Write tables of trials, steps and epochs for notebooks, traces for Perfetto, or what other tools read."""
    from steptime.cli.arguments import open_results
    from steptime.errors import UsageError, choices_message

    if to not in _EXPORTS:
        raise UsageError(choices_message("format", to, _EXPORTS))
    if trial is not None and to != "chrome":
        message = f"--trial {trial} needs --to chrome; {to} holds all trials of a folder"
        raise UsageError(message)
    if len(folders) > 1 and to != "otava":
        message = f"{len(folders)} results folders need --to otava; {to} is of one"
        raise UsageError(message)
    stores = [open_results(each) for each in folders]
    store, target = stores[0], output or folders[0] / "export"
    if to in _TABLES:
        from steptime.exports.export import export_tables

        paths = export_tables(store, target, _TABLES[to])
    elif to == "talp":
        from steptime.exports.foreign_formats import export_talp

        paths = export_talp(store, target / "talp")
    elif to in {"mllog", "extrap"}:
        from steptime.exports.foreign_formats import export_extrap, export_mllog

        paths = (export_mllog if to == "mllog" else export_extrap)(store, target / to)
    elif to == "otava":
        from steptime.exports.foreign_formats import export_history

        paths = export_history(stores, target)
    else:
        from steptime.report.chrome_trace import export_traces

        paths = export_traces(store, target, trial)
    say(*map(str, paths))
    for each in stores:
        warn(each.problems)
        each.require_launches()
