"""Measured steps beside what a profile predicts of them without having seen them."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steptime.cli.fit import profile_beside

if TYPE_CHECKING:
    from steptime.predict.anomaly import Band


def bands_of(folder: Path, steps_s: Mapping[str, float]) -> "dict[str, Band]":
    """Return a band for each trial that the profile beside ``folder`` held out; none where there is no profile.

    Args:
        folder: of results.
        steps_s: what is measured by now, by trial.
    """
    path = profile_beside(folder)
    if not path.is_file():
        return {}
    from steptime.errors import StoreError
    from steptime.predict.anomaly import band
    from steptime.predict.profile_file import read_profile

    try:
        profile = read_profile(path)
    except StoreError as error:
        sys.stderr.write(f"no predictions beside the measured steps: {error}\n")
        return {}
    phases = {each.trial: each.phases for group in profile.groups for each in group.measured}
    return {
        each.trial: band(steps_s[each.trial], each.predicted, phases.get(each.trial, {}), each.phases)
        for group in profile.groups
        for each in group.held
        if each.trial in steps_s
    }


def with_bands(report: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a report's JSON with ``band`` in each trial, null where nothing was predicted of it."""
    bands = bands_of(folder, _steps(report))
    trials = [
        {**trial, "band": bands[trial["id"]].to_json() if trial["id"] in bands else None} for trial in report["trials"]
    ]
    return {**report, "trials": trials}


def tell_bands(report: Mapping[str, Any], folder: Path) -> None:
    """Print a line for each step that is not what was predicted of it, and one for the others together."""
    from steptime.units import format_seconds

    bands = bands_of(folder, _steps(report))
    if not bands:
        return
    normal = sum(each.verdict == "normal" for each in bands.values())
    sys.stdout.write(f"Beside predictions made without them, {normal} of {len(bands)} steps are normal.\n")
    for name, each in bands.items():
        if each.verdict != "normal":
            phase = f"; look at {each.off}" if each.off else ""
            low, high = format_seconds(each.expected.low_s), format_seconds(each.expected.high_s)
            sys.stdout.write(
                f"  {name}: {each.verdict}, {format_seconds(each.measured_s)} beside {low} to {high}{phase}\n"
            )


def _steps(report: Mapping[str, Any]) -> dict[str, float]:
    found = {trial["id"]: (trial.get("step_time_s") or {}).get("median") for trial in report["trials"]}
    return {name: seconds for name, seconds in found.items() if seconds}
