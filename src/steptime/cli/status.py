"""``steptime status``: how far a study is."""

from pathlib import Path
from typing import Annotated

import typer


def status(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A results folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects and nothing else.")] = False,
) -> None:
    """Show how many launches each trial has, also while the study runs."""
    from steptime.cli.console import warn
    from steptime.cli.tables import print_rows
    from steptime.measurements.store import Store

    store = Store.open(folder)
    shown = store.status()
    apart = any(row["ablations_ok"] for row in shown) or bool(store.study_json.get("breakdown"))
    columns = {
        "trial": "trial",
        **({"tuning": "tier"} if any(row["tuning"] == "tuned" for row in shown) else {}),
        "ok": "ok",
        **({"failed": "failed"} if any(row["failed"] for row in shown) else {}),
        **({"ablations_ok": "taken apart"} if apart else {}),
        **({"ablations_failed": "failed"} if any(row["ablations_failed"] for row in shown) else {}),
        "steps": "steps",
        "reason": "why it stopped",
    }
    print_rows(shown, columns, as_json=as_json)
    warn(store.problems)
