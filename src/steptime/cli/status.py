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
    apart = any(row["ablations_ok"] for row in shown) or bool(store.study_json.get("breakdown"))
    columns = {
        "trial": "trial",
        "ok": "ok",
        **({"failed": "failed"} if any(row["failed"] for row in shown) else {}),
        **({"ablations_ok": "taken apart"} if apart else {}),
        **({"ablations_failed": "failed"} if any(row["ablations_failed"] for row in shown) else {}),
        "steps": "steps",
        "reason": "why it stopped",
    }
    print_rows(shown, columns, as_json=as_json)


def _row(trial: str, rows: Iterable["IndexRow"], verdict: dict[str, str] | None) -> dict[str, Any]:
    known = list(rows)
    launches = [row for row in known if row.kind == "timing"]
    apart = [row for row in known if row.kind == "ablation"]
    failures = [row.reason for row in (*launches, *apart) if row.status != "ok"]
    return {
        "trial": trial,
        "ok": sum(launch.status == "ok" for launch in launches),
        "failed": sum(launch.status != "ok" for launch in launches),
        "ablations_ok": sum(launch.status == "ok" for launch in apart),
        "ablations_failed": sum(launch.status != "ok" for launch in apart),
        "steps": sum(launch.steps for launch in launches),
        "last_launch_at": max((row.started_at for row in known), default=None),
        "reason": verdict["reason"] if verdict else next(iter(failures), None),
    }
