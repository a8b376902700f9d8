"""``steptime frameworks``: adding one of your own."""

from pathlib import Path
from typing import Annotated

import typer

from steptime.cli.streams import say

app = typer.Typer(no_args_is_help=True, help="Begin a framework of your own.")


@app.callback()
def _group() -> None:
    """Begin a framework of your own (steptime list frameworks shows those that are there)."""


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Of the framework: small letters, digits and '_'.")],
    folder: Annotated[
        Path | None, typer.Option("-o", "--output-dir", help="Folder of the package [default: NAME].")
    ] = None,
) -> None:
    """Write a package with a small framework that runs: install it, check it, then put your own in its place."""
    from steptime.runner.framework_template import write_framework

    target = folder or Path(name)
    say(*map(str, write_framework(name, target)))
    say("", f"next: pip install -e {target} (beside steptime), then: steptime check {name}")
