"""The study of one trial of a results folder, which a change can be made to."""

from collections.abc import Mapping
from typing import Any

from steptime.catalog.manifest import load_manifests
from steptime.measurements.store import Store
from steptime.study.trial import Trial

_LAUNCHES = 5
"""Of each side of a verification: with fewer, few gains are shown."""
_NOT_OF_ONE_TRIAL: dict[str, Any] = {
    "paper": None,
    "scales": {},
    "scale": "small",
    "include": [],
    "exclude": [],
    "breakdown": None,
    "loader_alone": None,
    "published": [],
    "published_efficiency": [],
    "performance_models": [],
    "predictions": None,
    "global_batch": None,
    "budget": None,
}


def study_of(store: Store, trial: Trial, launches: int = _LAUNCHES) -> dict[str, Any]:
    """Return a study of ``trial`` alone, as it was measured, for so many launches.

    Keys without a list, such as threads and hosts, are those of the folder's study. A trial that the study described
    by an inclusion with hosts or a training of its own is not what this study expands into.
    """
    study = store.study_json
    workloads = [_without_batch(each) for each in study["workloads"] if each["name"] == trial.workload]
    same_data = [each for each in workloads if each.get("dataset") in {None, trial.dataset}]
    return {
        **study,
        **_NOT_OF_ONE_TRIAL,
        "question": "",
        "workloads": same_data[:1],
        "frameworks": [trial.framework],
        "strategies": [trial.strategy],
        "loaders": [{"name": trial.loader, "processes": [trial.loader_processes]}],
        "workers": [trial.workers],
        "servers": [trial.servers or 1],
        "server_placement": [trial.server_placement or "own"],
        "batch_per_worker": [trial.batch_per_worker],
        "precision": [trial.precision],
        "device": [trial.device],
        "tuning": [trial.tuning],
        "environment_names": [trial.environment_name],
        "options": {trial.framework: _chosen_options(trial)},
        "environment_variables": {name: [value] for name, value in trial.environment_variables.items()},
        "optimizer": trial.optimizer.model_dump(mode="json"),
        "launches": {"min": launches, "max": launches},
    }


def _without_batch(workload: Mapping[str, Any]) -> dict[str, Any]:
    return {**workload, "batch_per_worker": None, "global_batch": None}


def _chosen_options(trial: Trial) -> dict[str, Any]:
    """Return the options that are not those of the trial's tier anyway: others may mean nothing after a change."""
    manifest = load_manifests().get(trial.framework)
    usual = manifest.tier_options(trial.tuning, trial.strategy, trial.device) if manifest else {}
    return {name: [value] for name, value in trial.options.items() if usual.get(name) != value}
