"""Tables of forecasts of a user's own: of an attached script, and of a measured scaling curve."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.cli.columns import print_columns
from steptime.cli.streams import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steptime.predict.attached import AttachedPrediction
    from steptime.predict.attached_profile import AttachedProfile
    from steptime.scaling.forecast import Forecast

EXIT_REFUSED = 3
"""Where every configuration is refused."""
_NARROWER = 0.98
"""An empty column that is not expected to narrow an interval by as much is not asked for."""


def predict_attached_script(
    profile: "AttachedProfile",
    overrides: "Sequence[str]",
    workers: "Sequence[int]",
    shares: "Sequence[float]",
    *,
    as_json: bool,
) -> None:
    """Print what a user's own script takes on other numbers of workers."""
    from steptime.predict.attached import predict_attached, refuse_changes
    from steptime.scaling.knee import knee_line
    from steptime.scaling.predicted_knees import attached_knees

    refuse_changes(overrides)
    predictions = predict_attached(profile, workers)
    bends = attached_knees(profile, shares)
    if as_json:
        from steptime.cli.streams import print_json

        steps = [each.to_json() for each in predictions]
        knees = None if bends is None else [knee.to_json() for knee in bends]
        print_json({"predictions": steps, "knees": knees, "trainings": profile.trainings})
    else:
        _show_attached(profile, predictions, knee_line(bends or []))
    if predictions and all(each.refused for each in predictions):
        sys.exit(EXIT_REFUSED)


def _show_attached(profile: "AttachedProfile", predictions: "Sequence[AttachedPrediction]", line: str) -> None:
    from steptime.units import format_seconds

    rows = [
        [
            str(each.workers),
            format_seconds(each.step_s.value or 0.0),
            f"{format_seconds(each.step_s.low or 0.0)} to {format_seconds(each.step_s.high or 0.0)}",
            f"{100 * (each.efficiency or 0.0):.0f} %",
            format_seconds(each.exposed_s or 0.0),
            format_seconds(each.waiting_s or 0.0),
            f"{each.extrapolation:.3g}x",
        ]
        for each in predictions
        if each.step_s is not None
    ]
    if rows:
        command = " ".join([Path(profile.command[0]).name, *profile.command[1:]])[:60]
        name = f"{command}, {profile.workers} workers measured, the same batch per worker"
        print_columns(name, ["workers"], ["step", "90 %", "eff.", "exposed", "waiting", "extrap."], rows)
    say_wrapped(line)
    if profile.trainings:
        say_wrapped(f"Predicted is one of several trainings: {profile.trainings}.")
    for reason in dict.fromkeys(each.refused for each in predictions if each.refused):
        say(f"refused: {reason}")


def predict_curve(points: Path, workers: "Sequence[int]", shares: "Sequence[float]", *, as_json: bool) -> None:
    """Print the forecasts of measured scaling curves."""
    from steptime.cli.streams import warn
    from steptime.importers import read_imports
    from steptime.scaling.forecast import forecast

    [records] = read_imports([points], "curves")
    warn(records.notes)
    forecasts = forecast(records.curves, workers, shares)
    if as_json:
        from steptime.cli.streams import print_json

        print_json({"curves": [each.to_json() for each in forecasts]})
        return
    for each in forecasts:
        show_forecast(each)
    say_wrapped("Extrapolation (extrap.) is how far a worker count lies outside the measured ones, as a ratio.")


def show_forecast(found: "Forecast") -> None:
    """Print the forecast of one curve."""
    from steptime.scaling.knee import knee_line
    from steptime.units import format_seconds

    rows = [
        [
            str(point.workers),
            format_seconds(point.step_s.value),
            format_range(point.step_s.low, point.step_s.high),
            "-" if point.throughput is None else format_rate(point.throughput),
            f"{point.efficiency:.0%}",
            f"{point.extrapolation:.3g}",
        ]
        for point in found.points
    ]
    first = found.curve.fit[0].workers
    title = (
        f"{found.curve.name}: efficiency (eff.) is relative to the measured step of {first} worker{'s'[: first > 1]}"
    )
    print_columns(title, ["workers"], ["step", "90 %", "samples/s", "eff.", "extrap."], rows)
    held = [
        [
            str(point.workers),
            format_seconds(point.measured),
            format_seconds(point.predicted),
            format_range(point.low, point.high),
            f"{point.ape:.1f} %",
        ]
        for point in found.held_out
    ]
    if held:
        print_columns("Held-out rows", ["workers"], ["measured", "predicted", "90 %", "error"], held)
    say_wrapped(knee_line(found.knees))
    _say_what_narrows(found)


def _say_what_narrows(found: "Forecast") -> None:
    """Print which empty columns and which further point would narrow the interval of the farthest count."""
    if not found.points:
        return
    last = max(found.points, key=lambda point: point.workers)
    now = last.step_s.high / last.step_s.low
    asked = [each for each in found.empty_columns if each.ratio < _NARROWER * now]
    if not (asked or found.further_points or found.further_pair):
        return
    say_wrapped(
        f"The ends of the interval at {last.workers} workers lie a factor of {now:.2f} apart. What would narrow it:"
    )
    for each in asked:
        measured = f" ({each.benchmark} measures it)" if each.benchmark else ""
        say_wrapped(f"  {each.ratio:.2f} expected with the column {each.column}: {each.question}{measured}")
    for point in sorted(found.further_points, key=lambda each: each.workers):
        say_wrapped(f"  {point.ratio:.2f} expected with one more measured point, at {point.workers} workers")
    if found.further_pair is not None:
        pair = found.further_pair
        at = " and ".join(map(str, pair.workers))
        say_wrapped(f"  {pair.ratio:.2f} expected with two more measured points, at {at} workers")


def format_rate(value: float) -> str:
    """Return three digits of a number."""
    return f"{value:,.3g}" if value < 100 else f"{value:,.0f}"  # noqa: PLR2004 - three digits


def format_range(low_s: float, high_s: float) -> str:
    """Return both bounds, with the unit once where it is the same."""
    from steptime.units import format_seconds

    low, high = format_seconds(low_s), format_seconds(high_s)
    unit = high.partition(" ")[2]
    return f"{low.removesuffix(' ' + unit)} - {high}" if low.endswith(f" {unit}") else f"{low} - {high}"


def say_wrapped(text: str) -> None:
    """Print a sentence at the width of the terminal; nothing if it is empty."""
    from steptime.cli.console import PlainConsole

    if text:
        PlainConsole().print(text)
