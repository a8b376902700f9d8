"""Anomalies in a report: measured steps against the predictions that a profile made without them."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steptime.cli.streams import say, warn

if TYPE_CHECKING:
    from steptime.predict.anomaly import Anomaly


def with_anomalies(report: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a report's JSON with ``anomaly`` in each trial, null where nothing was predicted for the trial."""
    anomalies = _anomalies(report, folder)
    trials = [
        {**trial, "anomaly": anomalies[trial["id"]].to_json() if trial["id"] in anomalies else None}
        for trial in report["trials"]
    ]
    return {**report, "trials": trials}


def print_anomalies(report: Mapping[str, Any], folder: Path) -> None:
    """Print a line for each step that its prediction does not explain, and one line for all other steps."""
    from steptime.units import format_seconds

    anomalies = _anomalies(report, folder)
    if not anomalies:
        return
    normal = sum(each.verdict == "normal" for each in anomalies.values())
    say(f"Against predictions made without them, {normal} of {len(anomalies)} steps are normal.")
    for name, each in anomalies.items():
        if each.verdict != "normal":
            phase = f"; look at {each.phase}" if each.phase else ""
            low, high = format_seconds(each.expected.low_s), format_seconds(each.expected.high_s)
            say(f"  {name}: {each.verdict}, {format_seconds(each.measured_s)} against {low} to {high}{phase}")


def _anomalies(report: Mapping[str, Any], folder: Path) -> "dict[str, Anomaly]":
    from steptime.errors import StoreError
    from steptime.predict.anomaly import anomalies_of

    steps = {trial["id"]: (trial.get("step_time_s") or {}).get("mean") for trial in report["trials"]}
    try:
        return anomalies_of(folder, {name: seconds for name, seconds in steps.items() if seconds})
    except StoreError as error:
        warn([f"no predictions for the measured steps: {error}"])
        return {}
