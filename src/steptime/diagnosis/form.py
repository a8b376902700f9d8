"""The form of a diagnosis: the key ``diagnosis`` of ``steptime report --json`` and ``steptime advise --json``."""

from typing import Any, Literal

from pydantic import Field

from steptime.results.json_form import Interval, JsonForm

Unit = Literal["share", "seconds", "count", "bytes", "ratio"]
Judgement = Literal["as expected", "slower", "faster"]
GAIN_LEVEL = 0.9
"""Confidence of predicted gains, as of all predictions."""
OWN_SCRIPT = "own script"
"""The trial of findings about a user's own script."""


class EvidenceNumber(JsonForm):
    """One measured number that a finding rests on."""

    what: str
    value: Interval
    unit: Unit


class RuleRecord(JsonForm):
    """How often a rule's advice was tried, and what came of it (``verified.csv``)."""

    verified: int
    """Pieces of advice that were measured."""
    shown: int
    """Those whose measured interval excludes 1."""
    sign_right: int
    """Of ``shown``, those that gained."""
    inside: int
    """Of ``verified``, those inside the interval as it is predicted now: widened by all other gains that were tried."""
    inside_unwidened: int
    """Of ``verified``, those inside the rule's own interval."""
    median_error: float | None
    """Of |predicted / measured - 1|."""


class TrialFinding(JsonForm):
    """A diagnosis of one trial."""

    rule: str
    trial: str
    claim: str
    evidence: list[EvidenceNumber]
    gain: Interval[float | None]
    """Predicted samples per second with the change over those without, with an interval of 90 %."""
    rule_gain: Interval[float | None]
    """The same by the rule alone, before what earlier predictions missed widened it."""
    change: str
    overrides: list[str]
    """As ``key.path=value`` for ``steptime run``; empty where no key of a study makes the change."""
    disproof: str
    """An observation that would show the claim to be wrong."""
    record: RuleRecord


class Unsettled(JsonForm):
    """A rule that is silent although its number is large: noise drowns it."""

    rule: str
    trial: str
    reason: str


class Scenario(JsonForm):
    """One step that could be."""

    trial: str
    change: str
    step_s: float
    speedup: Interval
    """Step as it was over step as it would be."""


class ExpectedStep(JsonForm):
    """A trial's measured step beside its expectation."""

    trial: str
    source: str
    expected_s: Interval[float | None]
    ratio: Interval[float | None]
    judgement: Judgement | None
    phase: str | None = None
    """That exceeds its expectation most, where the step is slower."""
    reason: str | None = None
    """Why it has no expectation."""


class JobUse(JsonForm):
    """One use of the whole time of a job; the uses of an account sum to it."""

    name: str
    seconds: float
    """Mean over seeds or ranks."""
    share: float


class JobAccount(JsonForm):
    """Where the whole time of a job went, from its command to its end."""

    trial: str | None
    """None of a user's own script."""
    jobs: int
    total_s: float
    uses: list[JobUse]
    goodput: Interval
    """The share of steps that count; its interval is over seeds."""


class Diagnosis(JsonForm):
    """Everything that the rules say of a study's trials, largest predicted gain first."""

    findings: list[TrialFinding] = Field(default_factory=list)
    unsettled: list[Unsettled] = Field(default_factory=list)
    expected: list[ExpectedStep] = Field(default_factory=list)
    what_if: list[Scenario] = Field(default_factory=list)
    jobs: list[JobAccount] = Field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the object of the key ``diagnosis``."""
        return self.model_dump(mode="json")
