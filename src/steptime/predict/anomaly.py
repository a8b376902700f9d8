"""What was measured beside what was predicted without it: normal, suspicious or broken, and which phase is off."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from steptime.predict.profile import Expected

_WIDER = 2.576 / 1.645
"""From an interval of 90 % to one of 99 %, on the scale of logarithms."""

Verdict = Literal["normal", "suspicious", "broken"]


@dataclass(frozen=True)
class Band:
    """A measured step beside its prediction; seconds."""

    verdict: Verdict
    """``normal`` inside the interval of 90 %, ``suspicious`` inside that of 99 %, ``broken`` outside."""
    measured_s: float
    expected: Expected
    off: str | None
    """The phase that is farthest outside its own interval; None where the step is normal or no phase was measured."""

    def to_json(self) -> dict[str, Any]:
        """As it stands beside a trial in a report."""
        return {
            "verdict": self.verdict,
            "predicted_s": {"value": self.expected.value_s, "low": self.expected.low_s, "high": self.expected.high_s},
            "ratio": self.measured_s / self.expected.value_s,
            "phase": self.off,
        }


def band(
    measured_s: float,
    expected: Expected,
    measured_phases: Mapping[str, float | None],
    expected_phases: Mapping[str, Expected | None],
) -> Band:
    """Return what to think of a measured step.

    Args:
        measured_s: the step.
        expected: its prediction with an interval of 90 %, made without this step.
        measured_phases: seconds by name; None, or absent, where nothing tells.
        expected_phases: their predictions.
    """
    verdict = _verdict(measured_s, expected)
    slower = measured_s > expected.value_s
    off = None
    if verdict != "normal":
        farthest = 0.0
        for name, phase in expected_phases.items():
            seen = measured_phases.get(name)
            if seen is None or phase is None or name == "comm_hidden":
                continue
            excess = seen - phase.high_s if slower else phase.low_s - seen
            if excess > farthest:
                farthest, off = excess, name
    return Band(verdict, measured_s, expected, off)


def _verdict(measured_s: float, expected: Expected) -> Verdict:
    if expected.low_s <= measured_s <= expected.high_s:
        return "normal"
    middle = np.log(expected.value_s)
    bound = np.log(expected.high_s if measured_s > expected.value_s else expected.low_s)
    return "suspicious" if abs(np.log(measured_s) - middle) <= _WIDER * abs(bound - middle) else "broken"
