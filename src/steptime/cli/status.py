"""``steptime status``: how far a study is."""

from pathlib import Path
from typing import Annotated

import typer


def status(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A results folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects and nothing else.")] = False,
) -> None:
    """Show how many launches and trainings each trial has, also while the study runs."""
    from steptime.cli.console import warn
    from steptime.cli.tables import print_rows
    from steptime.measurements.store import Store

    store = Store.open(folder)
    shown = store.status()
    trials = store.trials()
    trained = any(trial.training for trial in trials)
    timed = not trained or any(not trial.training for trial in trials)
    apart = any(row["ablations_ok"] for row in shown) or bool(store.study_json.get("breakdown"))
    columns = {
        "trial": "trial",
        **({"tuning": "tier"} if any(row["tuning"] == "tuned" for row in shown) else {}),
        **({"ok": "ok"} if timed else {}),
        **({"failed": "failed"} if any(row["failed"] for row in shown) else {}),
        **({"ablations_ok": "taken apart"} if apart else {}),
        **({"ablations_failed": "failed"} if any(row["ablations_failed"] for row in shown) else {}),
        **({"trainings_ok": "trainings"} if trained else {}),
        **({"trainings_failed": "failed"} if any(row["trainings_failed"] for row in shown) else {}),
        **({"epochs": "epochs"} if trained else {}),
        **({"steps": "steps"} if timed else {}),
        "reason": "why it stopped",
    }
    print_rows(shown, columns, as_json=as_json)
    warn(store.problems)
