"""Trials, launches and folders to try things on."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from steptime.results.accuracy_records import TrainingRun, WorkerEpoch
from steptime.results.equivalence_records import EquivalenceResult
from steptime.results.records import Launch, WorkerSteps
from steptime.results.store import Store
from steptime.study.trial import Trial

ENDED = {"status": "ok", "reason": None, "started_at": "2026-01-01", "wall_s": 60.0, "environment": {}, "noise": {}}
"""Fields of the record of any launch that ended well."""


def a_trial(**changes: Any) -> Trial:
    """Return a configuration; ``changes`` replace its fields."""
    fields: dict[str, Any] = {
        "framework": "reference",
        "strategy": "single",
        "workload": "mlp",
        "input_shape": (784,),
        "classes": 10,
        "dataset": None,
        "loader": "synthetic",
        "device": "cpu",
        "precision": "fp32",
        "workers": 1,
        "batch_per_worker": 8,
    }
    return Trial(**{**fields, **changes})


def a_worker(ends_s: Sequence[float], rank: int = 0, host: str = "here", origin_s: float = 0.0) -> WorkerSteps:
    """Return a worker whose timed steps ended at ``ends_s``."""
    return WorkerSteps(
        rank=rank,
        host=host,
        warmup_ends_s=[],
        origin_s=origin_s,
        ends_s=list(ends_s),
        loss_first=2.0,
        loss_last=1.0,
        facts={"framework_version": "1.2"},
        usage={},
        opened_in_s=0.5,
    )


def a_launch(trial: Trial, number: int = 0, times: Sequence[float] = (0.1, 0.1), **changes: Any) -> Launch:
    """Return a launch whose workers all had step ``times``; ``changes`` replace its fields."""
    origin_s = _origin_s(trial, number)
    ends = (origin_s + np.cumsum(times)).tolist()
    fields: dict[str, Any] = {
        "trial": trial.id,
        "launch": number,
        "block": number,
        "status": "ok",
        "reason": None,
        "started_at": f"2026-01-01T00:00:{number:02d}.000+00:00",
        "commands": [["python", "start.py", "job.json"]],
        "environment": {"python": "3.11"},
        "noise": {"steal_share": 0.0, "thermal_throttles": None},
        "workers": [a_worker(ends, rank, origin_s=origin_s) for rank in range(trial.workers)],
    }
    fields |= changes
    return Launch(**{"wall_s": 1.0 + max(map(_span_s, fields["workers"]), default=0.0), **fields})


def _origin_s(trial: Trial, number: int) -> float:
    """Return when a launch began on a clock that does not go back: no other launch reads the same moments."""
    return float(crc32(f"{trial.id} {number}".encode()) % 65536)


def _span_s(worker: WorkerSteps) -> float:
    return max([worker.origin_s, *worker.ends_s]) - min([worker.origin_s, *worker.warmup_ends_s])


def a_failure(trial: Trial, number: int = 0) -> Launch:
    """Return a launch that failed."""
    return a_launch(trial, number, status="failed", reason="worker-0: ValueError: no", workers=[])


def an_epoch(**changes: Any) -> WorkerEpoch:
    """Return one worker's part of an epoch: 45 of 50 right in a second; ``changes`` replace its fields."""
    fields: dict[str, Any] = {"trained_s": 1.0, "evaluated_s": 0.1, "saved_s": 0.0, "samples": 200}
    fields |= {"counted": 50, "correct": 45, "loss_sum": 25.0, "learning_rate": 0.05, "training_loss": 0.4}
    return WorkerEpoch(**{**fields, **changes})


def a_training(trial: Trial, number: int = 0, **changes: Any) -> TrainingRun:
    """Return a training of two epochs on every worker; ``changes`` replace its fields."""
    fields: dict[str, Any] = {
        "trial": trial.id,
        "launch": number,
        "seed": number,
        "status": "ok",
        "reason": None,
        "started_at": f"2026-01-01T00:01:{number:02d}.000+00:00",
        "wall_s": 3.0,
        "environment": {"python": "3.11"},
        "noise": {"steal_share": 0.0},
        "steps_per_epoch": 25,
        "epochs": [[an_epoch() for _ in range(trial.workers)] for _ in range(2)],
    }
    return TrainingRun(**{**fields, **changes})


def a_check(**changes: Any) -> EquivalenceResult:
    """Return a passed equivalence check."""
    fields: dict[str, Any] = dict.fromkeys(field.name for field in dataclasses.fields(EquivalenceResult))
    fields |= {"framework": "reference", "framework_version": "1", "strategy": "single", "workload": "mlp"}
    fields |= {"input_shape": [784], "workers": 1, "steps": 4, "repeats": 1, "parameters": 5, "parameters_expected": 5}
    fields |= {"first_loss_error": 0.0, "passed": True, "options": {}, "crashes": 0, "rounds": 1, "optimizer": "sgd"}
    fields |= {"environment_variables": {}, "kept": False}
    return EquivalenceResult(**{**fields, **changes})


def a_store(folder: Path, **study: Any) -> Store:
    """Make an empty results folder."""
    return Store.create(folder, study_text="name: tried\n", study_json={"name": "tried", "question": "", **study})
