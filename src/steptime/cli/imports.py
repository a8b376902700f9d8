"""``steptime import``: a results folder from files of other programs."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from steptime.cli.console import print_rows, report_console, stderr_console
from steptime.cli.streams import print_json, say, warn
from steptime.errors import UsageError

if TYPE_CHECKING:
    from steptime.results.attached_files import AttachedHeader


def import_files(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Logs and traces of trainings, also .gz; their form is recognised."),
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output-dir", help="Results folder to make; needed without --dry-run.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what the files are, and write nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was read as JSON and nothing else.")] = False,
) -> None:
    """Make a results folder of what other programs logged or traced, which report, compare and export read."""
    from steptime.attached.summary import attached_run
    from steptime.imported.imported_run import write_imported
    from steptime.importers import curve_points, read_run, recognised_runs
    from steptime.report.attached_answer import AttachedAnswer

    if output is None and not dry_run:
        message = "name the results folder: steptime import FILE -o DIR; or --dry-run"
        raise UsageError(message)
    rows = recognised_runs(files)
    if output is None or dry_run:
        shown = [{"file": str(path), "importer": row.name, "about": row.about} for path, row in rows]
        print_rows(shown, {"file": "file", "importer": "form", "about": "what it is"}, as_json=as_json)
        return
    with _progress([path for path, _ in rows]):
        imported = read_run(rows)
    curve = write_imported(output, imported, curve_points(imported))
    run = attached_run(*imported)
    if as_json:
        read = list(_files(imported.header))
        where = {"folder": str(output), "curve": str(curve) if curve else None}
        print_json({**where, "files": read, "attached": run.to_json()})
        return

    report_console().print(AttachedAnswer(run))
    if curve is not None:
        say(f"Next: {shlex.join(['steptime', 'predict', '--curve', str(curve), '--workers', '256'])}")
    warn([f"results: {output}"])


def _files(header: "AttachedHeader") -> list[dict[str, Any]]:
    return [each.model_dump(mode="json") for each in header.imported]


@contextmanager
def _progress(paths: Sequence[Path]) -> Iterator[None]:
    """Show on a terminal how much of the files is read within the block, in bytes as they lie on the disk."""
    from steptime.imported.source import watched

    console = stderr_console()
    sizes = {path: path.stat().st_size for path in paths}
    read = dict.fromkeys(paths, 0)
    columns = (TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task("", total=sum(sizes.values()))

        def watch(path: Path, count: int) -> None:
            if path in read:
                read[path] = max(read[path], min(count, sizes[path]))
                shown.update(task, completed=sum(read.values()))

        with watched(watch):
            yield
