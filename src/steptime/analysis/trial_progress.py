"""How far the trials of a study are: the launches of each, counted from its records.

Of the counts nothing is kept between two calls: a cache would be one more file of somebody else to be wary of.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict, cast

from steptime.catalog.options import Tuning
from steptime.results.accuracy_records import TrainingRun
from steptime.results.record_kinds import RECORD_KINDS, RecordKind
from steptime.results.records import Launch
from steptime.results.store import Store
from steptime.results.stored_record import TrialLaunch
from steptime.statistics.launch_times import step_times
from steptime.study.trial import Trial
from steptime.validity.verdicts import verdicts_of


class TrialProgress(TypedDict):
    """The launches of one trial, as ``steptime status --json`` prints them."""

    trial: str
    tuning: Tuning
    """The tier of its options."""
    ok: int
    failed: int
    ablations_ok: int
    ablations_failed: int
    trainings_ok: int
    trainings_failed: int
    epochs: int
    """Of all trainings that ended well."""
    steps: int
    """Timed steps of all launches."""
    last_launch_at: str | None
    """UTC, ISO 8601."""
    reason: str | None
    """Why the trial is not launched again; without such a verdict, of its first failure."""
    unverified: int
    """Lines of its records without a checksum."""
    set_aside: list[dict[str, Any]]
    """Lines of its records that do not count, as in the report."""


def progress_of_trials(store: Store) -> list[TrialProgress]:
    """Return how far each trial of a results folder is."""
    verdicts = verdicts_of(store)
    found = []
    for trial in store.trials():
        kinds = {kind: store.iter_records(kind, trial.id) for kind in RECORD_KINDS}
        progress = trial_progress(trial, kinds, verdicts.get(trial.id))
        progress["unverified"] = store.unverified_of(trial.id)
        progress["set_aside"] = [each.model_dump() for each in store.set_aside_of(trial.id)]
        found.append(progress)
    return found


def trial_progress(
    trial: Trial, records: Mapping[RecordKind[Any], Iterable[TrialLaunch]], verdict: Mapping[str, Any] | None
) -> TrialProgress:
    """Count the launches of ``trial``; ``verdict`` is why it is not launched again, if it is not.

    All ``records`` are read, those of kinds that are not counted too. What was set aside or has no checksum is for the
    caller to add: it is known afterwards.
    """
    steps, epochs, last = 0, 0, None
    counts: dict[str, int] = {}
    reason = verdict["reason"] if verdict else None
    for kind, found in records.items():
        if kind.counted is not None:
            counts |= {f"{kind.counted}{status}": 0 for status in ("ok", "failed")}
        for launch in found:
            if kind.counted is None:
                continue
            counts[f"{kind.counted}{launch.status}"] += 1
            last = max(last or launch.started_at, launch.started_at)
            if launch.status != "ok":
                reason = reason or launch.reason
            if isinstance(launch, Launch):
                steps += len(step_times(launch, trial.strategy))
            elif isinstance(launch, TrainingRun):
                epochs += len(launch.epochs)
    progress: dict[str, Any] = {
        "trial": trial.id,
        "tuning": trial.tuning,
        **counts,
        "epochs": epochs,
        "steps": steps,
        "last_launch_at": last,
        "reason": reason,
        "unverified": 0,
        "set_aside": [],
    }
    return cast("TrialProgress", progress)
