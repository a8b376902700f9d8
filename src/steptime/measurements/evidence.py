"""Evidence: the facts of a record that show whether it belongs to its trial."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ClockReadings:
    """Moments of one worker on its host's monotonic clock, in the order in which they came."""

    moments: Sequence[float]
    within_s: float | None = None
    """Seconds that the process counted around them; None if it did not."""


@dataclass(frozen=True)
class WorkerEvidence:
    """One worker of a launch."""

    rank: int
    host: str | None = None
    """By the name that it gives itself; None if the record lacks it."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    readings: Sequence[ClockReadings] = ()
    """One after the other."""
    steps: Sequence[int] = ()
    """Numbers of steps, batches or messages that all workers of a launch have agreed on."""
    also_read: Sequence[float] = ()
    """Further moments on this clock, in no order."""
    lasted_s: float = 0.0
    """The sum of durations that followed each other."""
