"""``steptime peak``: what this machine's devices multiply at most, which is what MFU is relative to."""

from pathlib import Path
from typing import Annotated

import typer

EXIT_FAILED = 3


def peak(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="[DIR]", help="A results folder: measure what its trials use, and keep it there."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects and nothing else.")] = False,
) -> None:
    """Measure how quickly devices multiply matrices, while nothing else runs; reports then have MFU."""
    import sys

    from steptime.cli.arguments import open_results
    from steptime.cli.console import stderr_console
    from steptime.cli.progress import LiveObserver
    from steptime.cli.tables import print_rows
    from steptime.report.work import flop_rate
    from steptime.runner.peaks import measure_for, measure_peaks, settings_of_machine

    with LiveObserver(stderr_console()) as observer:
        if folder is None:
            found = measure_peaks(settings_of_machine(), observer)
        else:
            found = measure_for(open_results(folder), observer)
    rows = [
        {
            **each.model_dump(mode="json"),
            "threads": each.threads or None,
            **({} if as_json else {"flop_per_s": flop_rate(each.interval).line, "library": each.by}),
        }
        for each in found
    ]
    titles = {"device": "device", "precision": "precision", "threads": "threads", "flop_per_s": "products"}
    print_rows(rows, {**titles, "library": "by"}, as_json=as_json)
    if not found:
        sys.exit(EXIT_FAILED)
