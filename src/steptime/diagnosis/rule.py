"""The form of a rule: one number that is large where something is wrong, and a claim about it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from steptime.diagnosis.diagnosed_trial import DiagnosedTrial
from steptime.diagnosis.form import EvidenceNumber, Unit
from steptime.measurements.json_form import NOT_MEASURED, Interval


@dataclass(frozen=True)
class Claim:
    """A diagnosis before the table adds the rule's name, its record and what would disprove it."""

    claim: str
    change: str
    overrides: Sequence[str] = ()
    gain: Interval[float | None] = NOT_MEASURED
    evidence: Sequence[EvidenceNumber] = field(default_factory=list)
    """Beside the rule's own number."""


@dataclass(frozen=True)
class DiagnosisRule:
    """One way in which a step is slower than it need be."""

    name: str
    title: str
    """What its number is, as a report shows it."""
    number: Callable[[DiagnosedTrial], Interval | None]
    """Of a trial, at the level of all intervals; None if the rule does not apply, or nothing was measured."""
    least: float
    """Above which the whole interval of the number must be."""
    claim: Callable[[DiagnosedTrial, Interval], Claim | None]
    """None if the number has another cause, or the change is on already."""
    disproof: str
    unit: Unit = "share"
    alone: bool = False
    """Whether the machine must be the trial's own: of cores that others use, nothing follows from a count."""
