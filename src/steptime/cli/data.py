"""``steptime data``: real images that need no download."""

import sys
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Make the built-in datasets from pictures that ship in Python packages.")


def _complete_dataset() -> list[str]:
    from steptime.datasets.builtins import BUILTINS

    return list(BUILTINS)


@app.command()
def make(
    names: Annotated[
        list[str],
        typer.Argument(metavar="DATASET...", help="As in steptime list datasets.", autocompletion=_complete_dataset),
    ],
) -> None:
    """Make built-in datasets in the cache; studies do this by themselves when they need one."""
    from steptime.cli.console import stderr_console
    from steptime.cli.progress import LiveObserver
    from steptime.datasets.builtins import BUILTINS
    from steptime.errors import UsageError, choices_message
    from steptime.runner.preparation import prepare_datasets

    unknown = [choices_message("dataset", name, BUILTINS) for name in names if name not in BUILTINS]
    if unknown:
        raise UsageError(unknown)
    with LiveObserver(stderr_console()) as observer:
        datasets = prepare_datasets(set(names), observer)
    for name in names:
        dataset = datasets[name]
        sys.stdout.write(f"{name}: {dataset.samples} samples, {dataset.path}\n")
