"""Which trial is launched next: randomised blocks, until every trial is settled or the budget is spent.

A block launches every unsettled trial once, in random order, so that a drift of the machine hits all alike and
trials can be compared pair by pair. The block of a launch is its index among the launches of its trial, which makes
a resumed study finish the block that was interrupted before it begins another.
"""

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from steptime.measurements.records import Launch
from steptime.study.trial import Trial

Verdict = Literal["continue", "settled", "abandoned"]
Stopping = Callable[[Trial, Sequence[Launch]], bool]
"""Says whether a trial's launches suffice."""

FAILURES = 2
"""After so many failed launches, and no more good ones than that, a trial is given up."""


@dataclass
class Schedule:
    """The order of launches of one study; ``launches`` grows as results come in."""

    trials: Sequence[Trial]
    suffices: Stopping
    min_launches: int
    max_launches: int
    seed: int
    launches: dict[str, list[Launch]] = field(default_factory=dict)

    def verdict(self, trial: Trial) -> Verdict:
        """Say whether ``trial`` needs another launch."""
        done = self.launches.get(trial.id, [])
        good = [launch for launch in done if launch.status == "ok"]
        failures = len(done) - len(good)
        if failures >= FAILURES and failures >= len(good):
            return "abandoned"
        if len(done) >= self.max_launches:
            return "settled"
        if len(good) >= self.min_launches and self.suffices(trial, good):
            return "settled"
        return "continue"

    def next_block(self) -> tuple[int, list[Trial]]:
        """Return the index of the next block and its trials in their random order; no trials when all are settled."""
        waiting = [trial for trial in self.trials if self.verdict(trial) == "continue"]
        if not waiting:
            return 0, []
        block = min(self._count(trial) for trial in waiting)
        members = [trial for trial in waiting if self._count(trial) == block]
        random.Random(f"{self.seed}/{block}").shuffle(members)  # noqa: S311 - reproducible, not secret
        return block, members

    def add(self, launch: Launch) -> None:
        """Take a result into account."""
        self.launches.setdefault(launch.trial, []).append(launch)

    def expected_wall_s(self, trial: Trial, guess_s: float) -> float:
        """Return how long a launch of ``trial`` will take.

        As its launches so far; where there is none, as those of the other trials on average, or else ``guess_s``.
        """
        own = [launch.wall_s for launch in self.launches.get(trial.id, [])]
        if own:
            return statistics.median_high(own)
        others = [launch.wall_s for launches in self.launches.values() for launch in launches]
        return statistics.fmean(others) if others else guess_s

    def _count(self, trial: Trial) -> int:
        return len(self.launches.get(trial.id, []))
