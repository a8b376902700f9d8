"""How far a study is: the launches of each trial, counted from its records.

Nothing is kept between two calls: a cache would be one more file of somebody else to be wary of.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from steptime.measurements.ablation.records import AblationLaunch
from steptime.measurements.accuracy.records import TrainingRun
from steptime.measurements.launch_times import step_times
from steptime.measurements.records import Launch
from steptime.study.trial import Trial, Tuning


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


def trial_progress(
    trial: Trial,
    launches: Iterable[Launch],
    ablations: Iterable[AblationLaunch],
    trainings: Iterable[TrainingRun],
    verdict: Mapping[str, Any] | None,
) -> TrialProgress:
    """Count the launches of ``trial``; ``verdict`` says why it is not launched again, if it is not."""
    steps, epochs, last = 0, 0, None
    ok, failed = Counter[str](), Counter[str]()
    reason = verdict["reason"] if verdict else None
    for kind, found in (("timing", launches), ("ablation", ablations), ("training", trainings)):
        for launch in found:
            last = max(last or launch.started_at, launch.started_at)
            if launch.status == "ok":
                ok[kind] += 1
            else:
                failed[kind] += 1
                reason = reason or launch.reason
            if isinstance(launch, Launch):
                steps += len(step_times(launch, trial.strategy))
            elif isinstance(launch, TrainingRun):
                epochs += len(launch.epochs)
    return TrialProgress(
        trial=trial.id,
        tuning=trial.tuning,
        ok=ok["timing"],
        failed=failed["timing"],
        ablations_ok=ok["ablation"],
        ablations_failed=failed["ablation"],
        trainings_ok=ok["training"],
        trainings_failed=failed["training"],
        epochs=epochs,
        steps=steps,
        last_launch_at=last,
        reason=reason,
    )
