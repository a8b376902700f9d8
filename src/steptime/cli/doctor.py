"""``steptime doctor``: what this machine has, what is missing, and the command that mends it."""

from dataclasses import asdict
from typing import Annotated

import typer

_MARKS = {"ok": "[green]ok[/]", "note": "[yellow]note[/]", "missing": "[red]missing[/]"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects and nothing else.")] = False,
) -> None:
    """Show what this machine has, what is missing, and the command that mends it."""
    from steptime.cli.tables import print_json
    from steptime.runner.doctor import examine

    if as_json:
        print_json([asdict(finding) for finding in examine()])
        return
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    for finding in examine():
        console.print(f"{_MARKS[finding.status]}\t[bold]{finding.name}[/]: {escape(finding.detail)}", soft_wrap=True)
        if finding.fix:
            for line in finding.fix.splitlines():
                console.print(f"\t  → {escape(line)}", soft_wrap=True)
