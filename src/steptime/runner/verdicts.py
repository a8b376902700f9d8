"""The verdicts of a run: why trials have no result, or no rank, and how many trials ended how."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from steptime.catalog.manifest import Manifest
from steptime.measurements.accuracy.records import TrainingRun
from steptime.measurements.record_kinds import TIMING, TRAINING
from steptime.measurements.records import Launch
from steptime.measurements.store import Store
from steptime.measurements.verdicts import TrialVerdict
from steptime.study.trial import Trial

NOT_RUN = "not run: the budget was spent before its first launch"
HALF_TRAINED = "not finished: the budget is spent, and of its first training {}; run the study again to go on"


@dataclass(frozen=True)
class TrialCounts:
    """How the trials of a run ended, in numbers for the exit code and the last line."""

    ok: int
    failed: int
    not_equivalent: int
    not_run: int
    """For want of budget, which is not a failure: another run goes on with them."""


@dataclass
class Verdicts:
    """What a run found against trials, by trial id; those of earlier runs stay where it did not look again."""

    against: dict[str, TrialVerdict] = field(default_factory=dict)
    """Of trials that have no result."""
    _unranked: dict[str, TrialVerdict] = field(default_factory=dict)
    """Of trials that are measured and change what is computed."""
    _left_out: set[str] = field(default_factory=set)
    """The ids of the trials that the budget did not suffice for."""
    _accepted: set[str] = field(default_factory=set)
    """The ids of the trials that this run found nothing against before launching them."""

    def refuse(
        self, trials: list[Trial], reasons: Mapping[str, str | None], status: Literal["failed", "not_equivalent"]
    ) -> list[Trial]:
        """Return the trials that have no reason against them; the others get their verdict, for the report."""
        for trial_id, reason in reasons.items():
            if reason:
                self.against[trial_id] = {"status": status, "reason": reason}
        return [trial for trial in trials if trial.id not in self.against]

    def accept(self, trials: Sequence[Trial], manifests: Mapping[str, Manifest]) -> None:
        """Note the trials that are launched, and which of them change what is computed, by their options."""
        self._accepted = {trial.id for trial in trials}
        reasons = {each.id: manifests[each.framework].unranked(each.options) for each in trials}
        self._unranked = {
            trial_id: {"status": "unranked", "reason": reason} for trial_id, reason in reasons.items() if reason
        }

    def leave_out(self, trial: Trial, reason: str) -> None:
        """Give a trial its verdict for want of budget."""
        self.against[trial.id] = {"status": "failed", "reason": reason}
        self._left_out.add(trial.id)

    def keep(self, store: Store) -> None:
        """Keep what this run found against trials, and what earlier ones did that this run has not looked at again."""
        before = store.get("verdicts") or {}
        standing = {trial_id: verdict for trial_id, verdict in before.items() if trial_id not in self._accepted}
        store.put("verdicts", {**standing, **self._unranked, **self.against})

    def counts(self, store: Store, trials: Sequence[Trial]) -> TrialCounts:
        """Return how many of ``trials`` ended how."""
        not_equivalent = sum(verdict["status"] == "not_equivalent" for verdict in self.against.values())
        ok = sum(
            trial.id not in self.against and any(each.status == "ok" for each in _measured(store, trial))
            for trial in trials
        )
        not_run = len(self._left_out)
        return TrialCounts(ok, len(trials) - ok - not_equivalent - not_run, not_equivalent, not_run)


def _measured(store: Store, trial: Trial) -> Iterable[Launch | TrainingRun]:
    """Return what was measured of a trial: its trainings, or its timed launches."""
    if trial.training:
        return store.records(TRAINING, trial.id)
    return store.iter_records(TIMING, trial.id)
