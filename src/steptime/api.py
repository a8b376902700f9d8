"""The public Python interface: results as tables, a profile fitted to them, and predictions from it.

These names are also in ``steptime`` itself. Everything else in the package is private and may change without notice.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steptime.analysis.summary import summarise
from steptime.exports.export import steps_table, trials_table
from steptime.extras import require_extra
from steptime.fitting.profile import Profile, read_profile, write_profile
from steptime.importers import read_imports
from steptime.predict import predict as predicting
from steptime.predict.held_out import fit_with_holdout
from steptime.predict.query import read_queries
from steptime.results.record_kinds import TIMING
from steptime.results.store import Store

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Profile", "Results", "fit", "predict", "read_profile", "read_results", "write_profile"]


@dataclass(frozen=True)
class Results:
    """A results folder as polars frames. Times are in seconds; a missing value is null, never 0."""

    trials: "pl.DataFrame"
    """A row per trial: its configuration, ``step_time_s_*``, ``throughput_samples_per_s_*`` and ``efficiency_*`` with
    their 95 % intervals, ``status`` and ``reason``."""
    launches: "pl.DataFrame"
    """A row per launch: trial, launch, block, status, reason, started_at, wall_s (of the whole launch), workers."""
    steps: "pl.DataFrame"
    """A row per timed step: trial, launch, block, step, end_s (since the first timed step began), step_time_s, and
    steady (whether it is behind the warm-up that was found)."""
    phases: "pl.DataFrame"
    """A row per phase of a trial that was broken down: trial, phase, value_s, low_s, high_s, how (``direct`` or
    ``derived``). The phases of a trial sum to its step, but for ``comm_hidden``, which computation covers."""
    problems: list[str]
    """What was damaged and left out, a sentence each."""


def read_results(folder: str | Path) -> Results:
    """Read a results folder; a study that is still running can be read too.

    Raises ``steptime.errors.StoreError`` when the folder is not one, or was written by a newer steptime, and
    ``steptime.extras.MissingExtra`` without polars.
    """
    require_extra("export")
    import polars as pl  # noqa: PLC0415 - half a second that a reader of profiles need not wait

    store = Store.open(Path(folder))
    summary = summarise(store)
    launches = pl.DataFrame(list(_launches(store)), schema=_LAUNCHES, orient="row")
    phases = [
        (trial.id, name, phase.value_s, phase.low_s, phase.high_s, phase.how)
        for trial in summary.trials
        for name, phase in (trial.phases or {}).items()
        if phase is not None
    ]
    return Results(
        trials=trials_table(summary),
        launches=launches,
        steps=steps_table(store),
        phases=pl.DataFrame(phases, schema=_PHASES, orient="row"),
        problems=list(store.problems),
    )


def fit(folder: str | Path, nccl_tests: Sequence[str | Path] = ()) -> Profile:
    """Fit each phase of a step to the measurements of a results folder, and score the fit on held-out configurations.

    Args:
        folder: the results of a study with ``breakdown``; without one, predictions are refused.
        nccl_tests: files with the output of nccl-tests' ``all_reduce_perf`` on the same hosts.

    Raises ``steptime.errors.StoreError`` when the folder cannot be read, and ``steptime.errors.UsageError`` when a file
    of nccl-tests cannot.
    """
    store = Store.open(Path(folder))
    imported = read_imports([Path(each) for each in nccl_tests], "links")
    return fit_with_holdout(store, [table for records in imported for table in records.links])


def predict(profile: Profile, workers: Sequence[int], changes: Sequence[str] = ()) -> "pl.DataFrame":
    """Predict step times that were not measured, each with its interval of 90 %.

    Args:
        profile: what ``fit`` or ``read_profile`` returned.
        workers: numbers of workers.
        changes: ``KEY=VALUE`` as on the command line, such as ``interconnect.bandwidth=25Gbit/s``.

    Returns:
        A row per model of the profile, combination of changes and number of workers: framework, strategy, workload,
        workers, changed, step_time_s, step_time_s_low, step_time_s_high, throughput_samples_per_s, efficiency,
        dominant_phase, extrapolation (how far outside the measured configurations, as a ratio), and refused: the reason
        where there is no prediction; the numbers are null there.

    Raises ``steptime.errors.UsageError`` with every change that is unknown or impossible.
    """
    require_extra("export")
    import polars as pl  # noqa: PLC0415 - as above

    rows = [
        (
            each.key.framework,
            each.key.strategy,
            each.key.workload,
            each.workers,
            ", ".join(f"{name}={value}" for name, value in each.query.texts.items()),
            *((each.step_s.value, each.step_s.low, each.step_s.high) if each.step_s else (None, None, None)),
            each.throughput.value if each.throughput else None,
            each.efficiency.value if each.efficiency else None,
            each.dominant,
            each.extrapolation,
            each.refused,
        )
        for each in predicting.predict(profile, workers, read_queries(changes, profile))
    ]
    return pl.DataFrame(rows, schema=_PREDICTIONS, orient="row")


_LAUNCHES = {
    "trial": str,
    "launch": int,
    "block": int,
    "status": str,
    "reason": str,
    "started_at": str,
    "wall_s": float,
    "workers": int,
}
_PHASES = {"trial": str, "phase": str, "value_s": float, "low_s": float, "high_s": float, "how": str}
_PREDICTIONS = {
    "framework": str,
    "strategy": str,
    "workload": str,
    "workers": int,
    "changed": str,
    "step_time_s": float,
    "step_time_s_low": float,
    "step_time_s_high": float,
    "throughput_samples_per_s": float,
    "efficiency": float,
    "dominant_phase": str,
    "extrapolation": float,
    "refused": str,
}


def _launches(store: Store) -> Iterator[tuple[Any, ...]]:
    for trial in store.trials():
        for each in store.iter_records(TIMING, trial.id):
            yield (
                *(each.trial, each.launch, each.block, each.status, each.reason),
                *(each.started_at, each.wall_s, len(each.workers)),
            )
