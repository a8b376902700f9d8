"""``steptime evidence``: how well the models predict measured scaling curves."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer


def evidence(
    points: Annotated[Path, typer.Argument(metavar="POINTS.csv", help="Measured scaling curves, one point a row.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print every point and all scores as JSON.")] = False,
) -> None:
    """Predict the large worker counts of measured curves from the small ones, and score it beside null models."""
    import json

    from steptime.evidence.assessment import assess
    from steptime.evidence.reading import read_curves

    found = assess(read_curves(points))
    if as_json:
        sys.stdout.write(json.dumps(found, indent=1, allow_nan=False) + "\n")
    else:
        _show(found)


def _show(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    table = Table(Column("of", no_wrap=True), "points", "MAPE", "median", "P90", "bias", "in 90%", "score")
    summary = found["summary"]
    rows = [("all", summary["all"]), *summary["by_class"].items(), *summary["by_source"].items()]
    nulls = [(f"null: {name}", score) for name, score in found["null_models"].items()]
    references = [(f"reference: {name}", score) for name, score in found["reference_models"].items()]
    for name, score in (*rows, *nulls, *references):
        if score["n"]:
            errors = [f"{score[key]:.1f}" for key in ("mape", "median_ape", "p90_ape", "bias")]
            table.add_row(
                name, str(score["n"]), *errors, f"{score['coverage90']:.0%}", f"{score['interval_score']:.3f}"
            )
    Console().print(table)
