"""``steptime doctor``: what this machine has, what is missing, and the command that mends it."""

from dataclasses import asdict
from typing import Annotated

import typer

_COLOURS = {"ok": "green", "note": "yellow", "missing": "red"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects and nothing else.")] = False,
) -> None:
    """Show what this machine has, what is missing, and the command that mends it."""
    from steptime.cli.tables import print_json
    from steptime.runner.doctor import examine

    if as_json:
        print_json([asdict(finding) for finding in examine()])
        return
    from rich.text import Text

    from steptime.cli.console import PlainConsole

    console = PlainConsole()
    for finding in examine():
        mark, name = (finding.status, _COLOURS[finding.status]), (finding.name, "bold")
        console.print(Text.assemble(mark, "\t", name, f": {finding.detail}"), soft_wrap=True)
        if finding.fix:
            for line in finding.fix.splitlines():
                console.print(f"\t  → {line}", soft_wrap=True)
