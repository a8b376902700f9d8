"""A comparison of two sides in the form of ``steptime compare --json``.

Schema diary (``SCHEMA`` grows by one whenever a key changes its meaning):

1. First version.
2. ``verdict`` is ``undecided`` as well for sides that did not take turns, and ``smallest_change`` null then.
3. Likewise for launches that would have shown no change below 50 %, and show none.
"""

from typing import Any, Literal

from pydantic import Field

from steptime.analysis.ablation.form import Difference, Gap
from steptime.results.json_form import IntervalOverLaunches, JsonForm

SCHEMA = 3

ChangeVerdict = Literal["faster", "slower", "no difference", "undecided"]
"""Of the second side; ``undecided`` if launches, or the times at which they ran, do not show how they differ."""

MOST_EXCLUDED = 0.5
"""A smallest change above this excludes too little to call two sides equal."""
Outcome = Literal["passed", "failed", "undecided"]
"""Of a comparison with a threshold; ``undecided`` if a slowdown beyond it is neither shown nor excluded, and launches
had a chance of less than 80 % to show one as large. A report is so where a trial is, and none fails."""
Order = Literal["same blocks", "turns", "one after the other", "unknown"]
"""In which launches of both sides ran: in the same randomised blocks; a run of each in turns by the times at which
they began; all of one side before the other; or otherwise, or at unknown times."""


class SideForm(JsonForm):
    """One of the two sides."""

    name: str
    source: str
    """The results folder, with what of it was chosen."""
    trials: int
    started_at: str | None
    """When its first launch began, UTC; None without any launch."""
    ended_at: str | None
    """When its last launch began."""


class ChangedPart(JsonForm):
    """A part of a user's own step, as both sides have it: means over runs."""

    name: str
    """As ``attached.parts`` of a report have it."""
    first_s: float
    second_s: float
    difference_s: Difference

    @property
    def is_shown(self) -> bool:
        """Whether the interval of the difference excludes 0."""
        low, high = self.difference_s.low_s, self.difference_s.high_s
        return low is not None and high is not None and not low <= 0.0 <= high


class ChangeOfTrial(JsonForm):
    """One configuration, as both sides measured it."""

    name: str
    """What both sides have in common, as far as compared trials differ in it."""
    first: str
    second: str
    """Ids of trials."""
    configuration: dict[str, Any]
    """All that identifies it."""
    first_step_s: float
    second_step_s: float
    launches: tuple[int, int]
    """Of each side."""
    interleaved: int
    """Pairs of launches that ran in the same blocks; 0 if the sides were measured one after the other."""
    sessions: tuple[int, int]
    """Times at which the launches of each side ran, with more than an hour in between. Sides that share no block are
    compared by these, and undecided where each has one."""
    ratio: IntervalOverLaunches
    """Step time of the second side divided by that of the first; above 1 the second is slower."""
    verdict: ChangeVerdict
    smallest_change: float | None
    """The smallest change of the step time that these launches would have shown with a power of 0.8."""
    launches_to_decide: int | None = None
    """About how many more launches of each side would show the change that was seen; None if decided, or unknown."""
    power_at_threshold: float | None
    """The probability of showing a change as large as the threshold; None without a threshold."""
    launches_to_threshold: int | None
    """About how many more launches of each side would show such a change with a power of 0.8."""
    fails: bool
    """Whether the second side is shown to be slower by more than the threshold, at the level of the gate."""
    outcome: Outcome | None
    """None without a threshold."""
    gate_low: float | None
    """The lower bound of the ratio at that level, which the threshold is compared with; None without a threshold."""
    smallest_failing: float | None
    """The smallest slowdown that these launches would have failed with a power of 0.8; None without a threshold."""
    gap: Gap | None
    """The difference by phase; None unless both sides were broken down."""
    parts: list[ChangedPart] = Field(default_factory=list)
    """Of a user's own script, the largest difference first; empty of trials."""
    flags: list[str]
    """Conditions of the trials of both sides."""


class Unpaired(JsonForm):
    """A trial that one side alone has, or that cannot be compared."""

    side: Literal["first", "second"]
    trial: str
    name: str
    reason: str
    broken: bool
    """Whether the first side measured it and the second failed to."""


class ChangedFact(JsonForm):
    """A fact of the software or the hardware in which the sides differ; None if a side lacks it."""

    fact: str
    first: str | None
    second: str | None


class ChangeReport(JsonForm):
    """What changed from the first side, the baseline, to the second."""

    schema_: int = SCHEMA
    first: SideForm
    """The baseline."""
    second: SideForm
    level: float
    """With which all intervals of ratios hold at once."""
    gate_level: float
    """Likewise, of the bounds that decide on failing: an equal side fails in one of 200 comparisons at most."""
    interleaved: bool
    """Whether launches of both sides ran in turns, so that what drifts hits both alike."""
    order: Order
    threshold: float | None
    """The slowdown that fails the comparison; None without one."""
    fails: bool
    outcome: Outcome | None
    """None without a threshold."""
    overall: IntervalOverLaunches | None
    """Geometric mean of the ratios of all pairs; None unless there are several whose spread is pooled."""
    trials: list[ChangeOfTrial]
    unpaired: list[Unpaired]
    software: list[ChangedFact]
    hardware: list[ChangedFact]
    notes: list[str]
    """What limits the conclusion, a sentence each."""

    def to_json(self) -> dict[str, Any]:
        """Return the object of ``steptime compare --json``."""
        data = self.model_dump(mode="json")
        return {"schema": data.pop("schema_"), **data}
