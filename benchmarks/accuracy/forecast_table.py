"""Forecasts as people and programs read them: a page of Markdown, CSV, and the numbers of the headline."""

import csv
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from forecast_cells import ForecastCell
from replay import ReplayedStep
from scipy.stats import binomtest


@dataclass(frozen=True)
class Score:
    """Absolute errors in percent, over some cells."""

    cells: int
    median: float
    tenth: float
    """The 90th percentile."""
    worst: float
    bias: float
    """Median of the signed errors; above zero where forecasts are too long."""
    inside: float
    """Share of the cells inside their interval of 90 %."""
    inside_low: float
    """Wilson's interval of 95 % of that share."""
    inside_high: float
    repeated: float
    """Median error of the model that repeats the step of two hosts."""


def score(cells: Sequence[ForecastCell]) -> Score | None:
    """Return the score over the cells that were not refused; None without any."""
    known = [cell for cell in cells if cell.error is not None]
    if not known:
        return None
    errors = 100 * np.array([cell.error for cell in known], float)
    inside = sum(bool(cell.inside) for cell in known)
    bounds = binomtest(inside, len(known)).proportion_ci(0.95, method="wilson")
    repeated = [100 * abs(cell.repeated_s / cell.measured_s - 1.0) for cell in known]
    return Score(
        cells=len(known),
        median=float(np.median(np.abs(errors))),
        tenth=float(np.quantile(np.abs(errors), 0.9)),
        worst=float(np.abs(errors).max()),
        bias=float(np.median(errors)),
        inside=inside / len(known),
        inside_low=float(bounds.low),
        inside_high=float(bounds.high),
        repeated=float(np.median(repeated)),
    )


_CELL_HEAD = (
    "| framework | strategy | workload | Mbit/s | share | hosts | measured, ms | forecast, ms | error | inside | link "
    "| other programs, cores | stolen |"
)
_HEAD = "| | cells | median | 90th percentile | worst | signed median | inside | two hosts repeated: median |"


def page(cells: Sequence[ForecastCell], replays: Sequence[ReplayedStep] = ()) -> str:
    """Return the tables: scores of forecasts first, then every cell, then replays."""
    lines = [_HEAD, "|" + "---|" * 8, _row("**all**", cells)]
    groups: list[Callable[[ForecastCell], str]] = [
        lambda cell: f"{cell.framework} {cell.strategy}",
        lambda cell: f"{cell.hosts} hosts",
        lambda cell: "quiet" if cell.quiet else "not quiet",
        lambda cell: "hosts take turns on cores" if cell.share == 1.0 else "hosts with a share of a core each",
    ]
    for group in groups:
        names = list(dict.fromkeys(map(group, cells)))
        lines += [_row(name, [cell for cell in cells if group(cell) == name]) for name in names]
    lines += ["", _CELL_HEAD, "|" + "---|" * 13, *map(_line, cells)]
    return "\n".join([*lines, *_replays(replays)]) + "\n"


def _replays(replays: Sequence[ReplayedStep]) -> list[str]:
    if not replays:
        return []
    errors = 100 * np.abs([each.error for each in replays])
    middle, tenth, worst = np.median(errors), np.quantile(errors, 0.9), errors.max()
    summary = (
        f"Replays, computing and step in turns: {len(replays)}, median {middle:.1f}, 90th percentile {tenth:.1f}, "
        f"worst {worst:.1f}."
    )
    return [
        "",
        summary,
        "",
        "| framework | strategy | workload | Mbit/s | share | hosts | measured, ms | replayed, ms | error | quiet |",
        "|" + "---|" * 10,
        *(
            f"| {each.framework} | {each.strategy} | {each.load} | {each.megabits:g} | {each.share:.0%} | {each.hosts} "
            f"| {1e3 * each.measured_s:.0f} | {1e3 * each.replayed_s:.0f} | {100 * each.error:+.1f} % | "
            f"{'yes' if each.quiet else 'no'} |"
            for each in replays
        ),
    ]


def _row(name: str, cells: Sequence[ForecastCell]) -> str:
    found = score(cells)
    if found is None:
        return f"| {name} | 0 | | | | | | |"
    return (
        f"| {name} | {found.cells} | {found.median:.1f} | {found.tenth:.1f} | {found.worst:.1f} | {found.bias:+.1f} | "
        f"{found.inside:.0%} ({found.inside_low:.0%} to {found.inside_high:.0%}) | {found.repeated:.1f} |"
    )


def _line(cell: ForecastCell) -> str:
    if cell.predicted_s is None or cell.predicted_low_s is None or cell.predicted_high_s is None or cell.error is None:
        forecast, error, inside = "refused", "", ""
    else:
        forecast = (
            f"{1e3 * cell.predicted_s:.0f} ({1e3 * cell.predicted_low_s:.0f} to {1e3 * cell.predicted_high_s:.0f})"
        )
        error, inside = f"{100 * cell.error:+.1f} %", "yes" if cell.inside else "no"
    return (
        f"| {cell.framework} | {cell.strategy} | {cell.load} | {cell.megabits:g} | {cell.share:.0%} | {cell.hosts} | "
        f"{1e3 * cell.measured_s:.0f} ({1e3 * cell.low_s:.0f} to {1e3 * cell.high_s:.0f}) | {forecast} | {error} | "
        f"{inside} | {cell.link} | {cell.foreign_cores:.2f} | {cell.steal_share:.0%} |"
    )


def write(folder: Path, cells: Sequence[ForecastCell], replays: Sequence[ReplayedStep]) -> None:
    """Write the page and the cells as CSV into a folder."""
    (folder / "forecast.md").write_text(page(cells, replays))
    if cells:
        with (folder / "forecast.csv").open("w", newline="") as file:
            rows = [asdict(cell) for cell in cells]
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
