"""POP efficiencies in the JSON that TALP-Pages reads, whose `talp ci-report` draws histories and scaling tables.

TALP is the profiler of DLB; TALP-Pages (Barcelona Supercomputing Center) reads what TALP writes: a file for each run,
in a folder for each experiment, of which the runs differ in their resources or in their date.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import steptime
from steptime.analysis.ablation.form import PopEfficiencies
from steptime.analysis.summary import summarise
from steptime.analysis.summary_form import TrialSummary
from steptime.errors import StoreError
from steptime.results.jsonlines import json_text
from steptime.results.record_kinds import ABLATION
from steptime.results.store import Store
from steptime.user_output import TALP, write_user_file

_FORM = "3.8"
"""The version of DLB whose form this is; TALP-Pages chooses its reader by the first two numbers."""
_SAMPLES = 1_000_000
"""Times are of as many steps as process so many samples, so that a speed-up is always one of throughput."""
_NS = 1e9
_NOT_COUNTED = 0
"""Of hardware counters: TALP-Pages takes 0 for a run without them."""


def export_talp(store: Store, folder: Path) -> list[Path]:
    """Write a file for each trial with POP efficiencies below ``folder``; return the paths.

    A folder holds the trials of one scaling curve, its reference of fewer workers among them. Raises StoreError when
    no trial has efficiencies, or a file cannot be written.
    """
    trials = {each.id: each for each in summarise(store).trials if each.pop is not None}
    if not trials:
        message = (
            f"{store.path} holds no POP efficiencies: they need synchronous trials that were broken down; run the "
            "study with breakdown=true"
        )
        raise StoreError(message)
    paths = []
    for name, members in _curves(trials).items():
        for trial in members:
            path = folder / name / f"{trial.id}.json"
            data = json_text(_talp_json(trial, _started_at(store, trial.id)), indent=1) + "\n"
            write_user_file(path, data.encode(), TALP, store.folder_around(path))
            paths.append(path)
    return paths


def _curves(trials: Mapping[str, TrialSummary]) -> dict[str, list[TrialSummary]]:
    """Return the trials of each scaling curve by the curve's name, which is that of a folder."""
    curves: dict[tuple[Any, ...], list[TrialSummary]] = {}
    for trial in trials.values():
        reference = trial.pop.reference if trial.pop else None
        if reference != trial.id or not _is_reference(trial.id, trials.values()):
            key = (trial.framework, trial.strategy, trial.workload, reference, repr(sorted(trial.options.items())))
            curves.setdefault(key, [trials[reference]] if reference and reference != trial.id else [])
            curves[key].append(trial)
    named: dict[str, list[TrialSummary]] = {}
    for key, members in curves.items():
        name = "-".join(key[:3])
        alike = sum(other == name or other.startswith(f"{name}~") for other in named)
        named[f"{name}~{alike + 1}" if alike else name] = members
    return named


def _is_reference(trial_id: str, trials: Iterable[TrialSummary]) -> bool:
    return any(each.pop and each.pop.reference == trial_id and each.id != trial_id for each in trials)


def _started_at(store: Store, trial_id: str) -> str:
    moments = [each.started_at for each in store.records(ABLATION, trial_id)]
    return max(moments, default=datetime.now(UTC).isoformat())


def _talp_json(trial: TrialSummary, started_at: str) -> dict[str, Any]:
    """Return a run as TALP writes it; its processors are those of all workers."""
    pop, step = trial.pop, trial.breakdown.step_s.value_s if trial.breakdown else 0.0
    assert pop is not None  # noqa: S101 - for the type checker: trials without any were left out
    processors = trial.workers * trial.threads
    steps = _SAMPLES / (trial.workers * trial.batch_per_worker)
    return {
        "dlbVersion": f"{_FORM} (the form; written by steptime {steptime.__version__})",
        "timestamp": started_at,
        "resources": {"numCpus": processors, "numNodes": trial.hosts, "numMpiRanks": trial.workers, "numGpus": 0},
        "Application": {"Global": {**_region(pop, trial), **_times(pop, step, steps, processors)}},
    }


def _region(pop: PopEfficiencies, trial: TrialSummary) -> dict[str, Any]:
    """Return the efficiencies of the whole step. TALP's of communication is serialisation x transfer."""
    inside = trial.hosts == 1
    balance = pop.load_balance.value
    return {
        "numCpus": trial.workers * trial.threads,
        "numNodes": trial.hosts,
        "numMpiRanks": trial.workers,
        "avgCpus": float(trial.workers * trial.threads),
        "averageIPC": _NOT_COUNTED,
        "cycles": _NOT_COUNTED,
        "instructions": _NOT_COUNTED,
        "parallelEfficiency": pop.parallel.value,
        "mpiParallelEfficiency": pop.parallel.value,
        "mpiCommunicationEfficiency": pop.communication.value,
        "mpiLoadBalance": balance,
        # Of one host there is nothing between hosts; of several it is not known how imbalance divides.
        "mpiLoadBalanceIn": balance if inside else 1.0,
        "mpiLoadBalanceOut": 1.0 if inside else balance,
        "ompParallelEfficiency": 1.0,
        "ompLoadBalance": 1.0,
        "ompSchedulingEfficiency": 1.0,
        "ompSerializationEfficiency": 1.0,
        "gpuParallelEfficiency": 1.0,
        "gpuLoadBalance": 1.0,
        "gpuCommunicationEfficiency": 1.0,
        "gpuOrchestrationEfficiency": 1.0,
        "deviceOffloadEfficiency": 1.0,
    }


def _times(pop: PopEfficiencies, step_s: float, steps: float, processors: int) -> dict[str, int]:
    """Return nanoseconds of ``steps`` steps; useful and MPI times are sums over processors."""
    elapsed = step_s * steps
    return {
        "elapsedTime": round(_NS * elapsed),
        "usefulTime": round(_NS * pop.useful_s.value * steps * processors),
        "mpiTime": round(_NS * (step_s - pop.useful_s.value) * steps * processors),
    }
