"""What must be checked before trials may be ranked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from steptime.frameworks.manifest import Manifest
from steptime.study.trial import Trial

_BATCH = 8
"""Samples per worker: enough for batch statistics, small enough for the reference."""
_WORKERS = 2
"""Workers of a check with several: a fault of the exchange shows with two."""


@dataclass(frozen=True)
class Case:
    """One check: a small, synthetic trial that stands for all trials that differ in speed only."""

    trial: Trial
    stands_for: tuple[str, ...]
    """The ids of the trials that it stands for."""


def equivalence_cases(trials: Sequence[Trial], manifests: Mapping[str, Manifest]) -> list[Case]:
    """Return the checks that ``trials`` need, each once, in the order of the trials."""
    covered: dict[str, list[str]] = {}
    small: dict[str, Trial] = {}
    for trial in trials:
        check = check_trial(trial, manifests[trial.framework])
        small.setdefault(check.id, check)
        covered.setdefault(check.id, []).append(trial.id)
    return [Case(check, tuple(covered[key])) for key, check in small.items()]


def check_trial(trial: Trial, manifest: Manifest) -> Trial:
    """Return the check that stands for ``trial``: few workers on this host, a small batch, synthetic input."""
    here = {"cluster": None, "hosts": 1, "launcher": manifest.launcher_for(trial.strategy, trial.options)}
    return trial.model_copy(
        update={
            "dataset": None,
            "loader": "synthetic",
            "loader_processes": 0,
            "workers": min(trial.workers, _WORKERS),
            "batch_per_worker": min(trial.batch_per_worker, _BATCH),
            "threads": 1,
            **(here if trial.cluster else {}),
        }
    )
