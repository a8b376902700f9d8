"""``steptime status``: how far a study is."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from steptime.measurements.index import IndexRow


def status(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A results folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects and nothing else.")] = False,
) -> None:
    """Show how many launches each trial has, also while the study runs."""
    from steptime.cli.tables import print_rows
    from steptime.measurements.store import Store

    store = Store.open(folder)
    rows = list(store.index())
    verdicts = store.get("verdicts") or {}
    shown = [
        _row(trial.id, (row for row in rows if row.trial == trial.id), verdicts.get(trial.id))
        for trial in store.trials()
    ]
    columns = {
        "trial": "trial",
        "ok": "launches ok",
        "failed": "failed",
        "steps": "steps",
        "reason": "why it stopped",
    }
    print_rows(shown, columns, as_json=as_json)


def _row(trial: str, rows: Iterable["IndexRow"], verdict: dict[str, str] | None) -> dict[str, Any]:
    launches = list(rows)
    failures = [launch.reason for launch in launches if launch.status != "ok"]
    return {
        "trial": trial,
        "ok": len(launches) - len(failures),
        "failed": len(failures),
        "steps": sum(launch.steps for launch in launches),
        "last_launch_at": max((launch.started_at for launch in launches), default=None),
        "reason": verdict["reason"] if verdict else next(iter(failures), None),
    }
