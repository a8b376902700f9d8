"""Anomalies: measured steps that their predictions, made without them, do not explain, and the phase that is off."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from steptime.phases import HIDDEN
from steptime.predict.profile import PredictedSeconds, default_profile_path, read_profile

_TO_99 = 2.576 / 1.645
"""From an interval of 90 % to one of 99 %, on the scale of logarithms."""

Verdict = Literal["normal", "suspicious", "broken"]


@dataclass(frozen=True)
class Anomaly:
    """A measured step beside its prediction; seconds."""

    verdict: Verdict
    """``normal`` inside the interval of 90 %, ``suspicious`` inside that of 99 %, ``broken`` outside."""
    measured_s: float
    expected: PredictedSeconds
    phase: str | None
    """The phase that is farthest outside its own interval; None if the step is normal or no phase was measured."""

    def to_json(self) -> dict[str, Any]:
        """Return the object that a report has for a trial."""
        return {
            "verdict": self.verdict,
            "predicted_s": {"value": self.expected.value_s, "low": self.expected.low_s, "high": self.expected.high_s},
            "ratio": self.measured_s / self.expected.value_s,
            "phase": self.phase,
        }


def anomaly_of(
    measured_s: float,
    expected: PredictedSeconds,
    measured_phases: Mapping[str, float | None],
    expected_phases: Mapping[str, PredictedSeconds | None],
) -> Anomaly:
    """Return the verdict on a measured step.

    Args:
        measured_s: the step.
        expected: its prediction with an interval of 90 %, made without this step.
        measured_phases: seconds by name; None, or absent, where a phase was not measured.
        expected_phases: predictions of the phases.
    """
    verdict = _verdict(measured_s, expected)
    slower = measured_s > expected.value_s
    farthest_phase = None
    if verdict != "normal":
        farthest = 0.0
        for name, phase in expected_phases.items():
            seen = measured_phases.get(name)
            if seen is None or phase is None or name == HIDDEN.name:
                continue
            excess = seen - phase.high_s if slower else phase.low_s - seen
            if excess > farthest:
                farthest, farthest_phase = excess, name
    return Anomaly(verdict, measured_s, expected, farthest_phase)


def anomalies_of(folder: Path, steps_s: Mapping[str, float]) -> dict[str, Anomaly]:
    """Return the verdict on each trial that the profile beside ``folder`` held out; none where there is no profile.

    Args:
        folder: of results.
        steps_s: measured steps by trial, which may be newer than the profile.

    Raises StoreError when the profile cannot be read.
    """
    path = default_profile_path(folder)
    if not path.is_file():
        return {}
    profile = read_profile(path)
    phases = {each.trial: each.phases for group in profile.groups for each in group.measured}
    return {
        each.trial: anomaly_of(steps_s[each.trial], each.predicted, phases.get(each.trial, {}), each.phases)
        for group in profile.groups
        for each in group.held_out
        if each.trial in steps_s
    }


def _verdict(measured_s: float, expected: PredictedSeconds) -> Verdict:
    if expected.low_s <= measured_s <= expected.high_s:
        return "normal"
    middle = np.log(expected.value_s)
    bound = np.log(expected.high_s if measured_s > expected.value_s else expected.low_s)
    return "suspicious" if abs(np.log(measured_s) - middle) <= _TO_99 * abs(bound - middle) else "broken"
