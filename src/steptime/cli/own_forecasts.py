"""Forecasts of a user's own: of an attached script, and of a measured scaling curve."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.cli.section_output import show_sections

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steptime.predict.attached_profile import AttachedProfile

EXIT_REFUSED = 3
"""Where every configuration is refused."""


def predict_attached_script(
    profile: "AttachedProfile",
    overrides: "Sequence[str]",
    workers: "Sequence[int]",
    shares: "Sequence[float]",
    *,
    form: str,
    html: Path | None,
) -> None:
    """Print what a user's own script takes on other numbers of workers."""
    from steptime.predict.attached import predict_attached, refuse_changes
    from steptime.report.predictions import script_section
    from steptime.scaling.knee import knee_line
    from steptime.scaling.predicted_knees import attached_knees

    refuse_changes(overrides)
    predictions = predict_attached(profile, workers)
    bends = attached_knees(profile, shares)
    if form == "json":
        from steptime.cli.streams import print_json

        steps = [each.to_json() for each in predictions]
        knees = None if bends is None else [knee.to_json() for knee in bends]
        print_json({"predictions": steps, "knees": knees, "trainings": profile.trainings})
    section = script_section(profile, predictions, knee_line(bends or []))
    show_sections([section], form, html, "Predictions of your own script")
    if predictions and all(each.refused for each in predictions):
        sys.exit(EXIT_REFUSED)


def predict_curve(
    points: Path, workers: "Sequence[int]", shares: "Sequence[float]", *, form: str, html: Path | None
) -> None:
    """Print the forecasts of measured scaling curves."""
    from steptime.cli.streams import warn
    from steptime.importers import read_imports
    from steptime.report.predictions import curve_sections
    from steptime.scaling.forecast import forecast

    [records] = read_imports([points], "curves")
    warn(records.notes)
    forecasts = forecast(records.curves, workers, shares)
    if form == "json":
        from steptime.cli.streams import print_json

        print_json({"curves": [each.to_json() for each in forecasts]})
    show_sections(curve_sections(forecasts), form, html, "Forecasts of measured scaling curves")
