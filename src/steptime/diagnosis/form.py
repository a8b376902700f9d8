"""The form of a diagnosis: the key ``diagnosis`` of ``steptime report --json`` and ``steptime advise --json``."""

from typing import Any, Literal

from pydantic import Field

from steptime.measurements.json_form import Interval, JsonForm

Unit = Literal["share", "seconds", "count", "bytes", "ratio"]
GAIN_LEVEL = 0.9
"""Confidence of predicted gains, as of all predictions."""


class EvidenceNumber(JsonForm):
    """One measured number that a finding rests on."""

    what: str
    value: Interval
    unit: Unit


class RuleRecord(JsonForm):
    """How often a rule's advice was tried, and what came of it (``verified.csv``)."""

    verified: int
    """Pieces of advice that were measured beside what they change."""
    shown: int
    """Those whose measured interval excludes 1: a gain or a loss was shown."""
    sign_right: int
    """Of ``shown``, those that gained."""
    inside: int
    """Of ``verified``, those whose measured gain is in the predicted interval."""
    median_error: float | None
    """Of |predicted / measured - 1|; None of a rule that was never verified."""


class Finding(JsonForm):
    """A diagnosis of one trial."""

    rule: str
    trial: str
    claim: str
    evidence: list[EvidenceNumber]
    gain: Interval[float | None]
    """Predicted: samples per second with the change over those without, with an interval at ``GAIN_LEVEL``; None where
    the rule cannot tell."""
    change: str
    """What to change, in a sentence."""
    overrides: list[str]
    """The change as ``key.path=value`` for ``steptime run``; empty where no key of a study makes it."""
    disproof: str
    """An observation that would show the claim to be wrong."""
    record: RuleRecord


class Unsettled(JsonForm):
    """A rule that is silent although its number is large: noise drowns it."""

    rule: str
    trial: str
    reason: str


class Diagnosis(JsonForm):
    """Everything that the rules say of a study's trials, largest predicted gain first."""

    findings: list[Finding] = Field(default_factory=list)
    unsettled: list[Unsettled] = Field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the object of the key ``diagnosis``."""
        return self.model_dump(mode="json")
