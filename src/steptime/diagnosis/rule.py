"""The form of a rule: one number that is large where something is wrong, and a claim about it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from steptime.diagnosis.form import EvidenceNumber, TrialFinding, Unit, Unsettled
from steptime.diagnosis.tried_advice import record_of_rule, widened
from steptime.flags import FOREIGN_CORES
from steptime.results.json_form import NOT_MEASURED, Interval
from steptime.units import is_undecided

Subject = TypeVar("Subject")
"""What rules are about: a trial of a study, or a run of a user's own script."""


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
class DiagnosisRule(Generic[Subject]):
    """One way in which a step is slower than it need be."""

    name: str
    title: str
    """What its number is, as a report shows it."""
    number: Callable[[Subject], Interval | None]
    """At the level of all intervals; None if the rule does not apply, or nothing was measured."""
    least: float
    """Above which the whole interval of the number must be."""
    claim: Callable[[Subject, Interval], Claim | None]
    """None if the number has another cause, or the change is on already."""
    disproof: str
    unit: Unit = "share"
    alone: bool = False
    """Whether the machine must be the trial's own: of cores that others use, nothing follows from a count."""
    believed: bool = False
    """Whether the interval of its number is a belief, such as how fast a core multiplies, that no launch narrows."""

    def judge(self, subject: Subject, trial: str, foreign_cores: float) -> TrialFinding | Unsettled | None:
        """Return the finding about a trial or a run, or why it is not settled; None if the rule is silent.

        Args:
            subject: the trial or the run.
            trial: the name of it in findings.
            foreign_cores: that other programs kept busy meanwhile.
        """
        number = self.number(subject)
        if number is None or number.value <= self.least:
            return None
        claim = self.claim(subject, number)
        if claim is None:
            return None
        reason = self._unsettled(number, foreign_cores, claim)
        if reason is not None:
            return Unsettled(rule=self.name, trial=trial, reason=reason)
        own = EvidenceNumber(what=self.title, value=number, unit=self.unit)
        return TrialFinding(
            rule=self.name,
            trial=trial,
            claim=claim.claim,
            evidence=[own, *claim.evidence],
            gain=widened(claim.gain),
            rule_gain=claim.gain,
            change=claim.change,
            overrides=list(claim.overrides),
            disproof=self.disproof,
            record=record_of_rule(self.name),
        )

    def _unsettled(self, number: Interval, foreign_cores: float, claim: Claim) -> str | None:
        """Return why nothing follows from a number that is large, None if something does."""
        shown = self._with_interval(number)
        if self.alone and foreign_cores > FOREIGN_CORES:
            kept_busy = f"but other programs kept {foreign_cores:.2g} cores busy meanwhile"
            return f"{self.title}: {shown}, {kept_busy}"
        if number.low is None:
            return f"a single launch has no interval of its {self.title}"
        if number.low <= self.least:
            bounds = f"{shown}, not shown to be above {self._shown(self.least)}"
            change = (
                f"a trial with {' '.join(claim.overrides)}" if self.believed and claim.overrides else "more launches"
            )
            return f"{self.title}: {bounds}; {change} would tell"
        return None

    def _with_interval(self, number: Interval) -> str:
        if number.low is None or number.high is None:
            return self._shown(number.value)
        value, low, high = (self._shown(each) for each in (number.value, number.low, number.high))
        return f"{'inconclusive' if is_undecided(number.low, number.high) else value} ({low} to {high})"

    def _shown(self, value: float) -> str:
        return f"{100 * value:.0f} %" if self.unit == "share" else f"{value:.3g}"


def worth(finding: TrialFinding) -> tuple[bool, float]:
    """Return a key that sorts gains whose whole interval is one before those that may be none, the larger first."""
    gain = finding.gain
    return gain.low is None or gain.low <= 1.0, -(gain.value or 0.0)
