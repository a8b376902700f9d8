"""``steptime evidence``: how well measured scaling curves are predicted."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Column, Table

from steptime.cli.console import PlainConsole
from steptime.cli.streams import print_json
from steptime.units import format_error


def evidence(
    points: Annotated[Path, typer.Argument(metavar="POINTS.csv", help="Measured scaling curves, one point a row.")],
    seeds: Annotated[
        int, typer.Option(min=1, max=100, help="Draw the model's samples this many times, and print the mean scores.")
    ] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print every point and all scores as JSON.")] = False,
) -> None:
    """Predict the large worker counts of measured curves from the small ones, and score it beside null models."""
    from steptime.curves.table import read_curves
    from steptime.scaling.assessment import assess

    found = assess(read_curves(points), seeds)
    if as_json:
        print_json(found)
    else:
        _show_scores(found)


def _show_scores(found: dict[str, Any]) -> None:
    numbers = ("points", "MAPE", "median", "P90", "bias", "in 90%", "score")
    columns = [Column("of", no_wrap=True), *(Column(name, no_wrap=True, justify="right") for name in numbers)]
    table = Table(*columns, box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1))
    summary = found["summary"]
    for rows in (
        {"all": summary["all"], **summary["by_class"]},
        summary["by_source"],
        {f"null: {name}": score for name, score in found["null_models"].items()},
        {f"other: {name}": score for name, score in found["reference_models"].items()},
    ):
        for name, score in rows.items():
            if score["n"]:
                table.add_row(name, *_cells(score))
        table.add_section()
    console = PlainConsole()
    console.print("Errors in percent of measured steps, those above 300 % as factors; score: the interval score.")
    console.print(table)
    if len(each := found["seeds"]) > 1:
        mapes, covers = ([one[key] for one in each] for key in ("mape", "coverage90"))
        console.print(
            f"Scores of the model are means over {len(each)} seeds of its samples: their MAPE lies between "
            f"{min(mapes):.2f} and {max(mapes):.2f}, their share in the "
            f"intervals between {100 * min(covers):.1f} % and {100 * max(covers):.1f} %."
        )


def _cells(score: dict[str, float]) -> list[str]:
    errors = [format_error(score[key]).removesuffix(" %") for key in ("mape", "median_ape", "p90_ape", "bias")]
    return [str(score["n"]), *errors, f"{100 * score['coverage90']:.0f} %", f"{score['interval_score']:.3f}"]
