"""The verdict on one check: the findings of its repeats, and whether they pass."""

import math
from pathlib import Path

from steptime.measurements.records import EquivalenceResult
from steptime.runner.equivalence.oracle import Truth, read_weights, weights_path
from steptime.runner.equivalence.tolerances import TOLERANCES, relative_error, update_error, weight_error
from steptime.runner.executor import LaunchResult
from steptime.study.trial import Trial
from steptime.workloads.layers import Workload

_ROUNDINGS = 8.0
"""So many times the reference's own rounding is allowed: frameworks add in other orders, and errors grow step by
step. With the rounding of an update below 5 % this stays under the half that a fault of exchange changes."""


class Findings:
    """Collects repeats; what was found is final when ``reasons`` is not empty."""

    def __init__(self, trial: Trial, workload: Workload, *, exact: bool) -> None:
        """``exact``: whether the strategy has one right answer, as ``Strategy.exact`` says."""
        self.reasons: list[str] = []
        self._trial = trial
        self._workload = workload
        self._exact = exact
        self._errors: dict[str, float] = {}
        self._parameters: int | None = None
        self._output_shape: list[int] | None = None
        self._crashes = 0

    def note_crash(self) -> None:
        """Count a run that a signal ended, and that is repeated."""
        self._crashes += 1

    def add(self, ran: LaunchResult, folder: Path, truth: Truth) -> None:
        """Hold one repeat against the truth."""
        if ran.reason:
            self.reasons.append(ran.reason)
            return
        check = ran.collected.worker(0)["check"]
        self._parameters, self._output_shape = check["parameters"], check["output_shape"]
        losses = check["losses"]
        if not all(math.isfinite(loss) for loss in losses):
            self.reasons.append(f"the loss is not finite: {losses}")
        self._note("first_loss", relative_error(losses[0], truth.losses[0]), "first loss", truth.rounding.first_loss)
        if self._exact:
            self._note("last_loss", relative_error(losses[-1], truth.losses[-1]), "last loss", truth.rounding.last_loss)
            self._compare_weights(folder, truth)
        self._check_form()

    def _compare_weights(self, folder: Path, truth: Truth) -> None:
        ranks = [rank for rank in range(self._trial.workers) if weights_path(folder, rank).exists()]
        if not ranks:
            self.reasons.append("no worker returned its weights")
        for rank in ranks:
            weights = read_weights(folder, rank)
            try:
                error, where = weight_error(weights, truth.weights)
                update, where_update = update_error(weights, truth.weights, truth.initial)
            except ValueError as mistake:
                self.reasons.append(f"worker {rank}: {mistake}")
                return
            weights_path(folder, rank).unlink()
            self._note("weights", error, f"worker {rank}: {where}", truth.rounding.weights)
            self._note("update", update, f"worker {rank}: the update of {where_update}", truth.rounding.update)

    def _note(self, name: str, error: float, what: str, rounding: float) -> None:
        self._errors[name] = max(error, self._errors.get(name, 0.0))
        allowed = max(TOLERANCES[self._trial.precision][name], _ROUNDINGS * rounding)
        if not error <= allowed:
            self.reasons.append(f"{what} is {error:.2g} away from the reference (allowed: {allowed:.2g})")

    def _check_form(self) -> None:
        expected = self._workload.parameter_count
        if self._parameters != expected:
            self.reasons.append(f"{self._parameters} parameters instead of {expected}")
        shape = [self._trial.batch_per_worker, *self._workload.output_shape]
        if self._output_shape != shape:
            self.reasons.append(f"output shape {self._output_shape} instead of {shape}")

    def result(self, truth: Truth | None, repeats: int, version: str) -> EquivalenceResult:
        """Return the result; ``truth`` is None when there was none to compare with."""
        trial = self._trial
        return EquivalenceResult(
            framework=trial.framework,
            framework_version=version,
            strategy=trial.strategy,
            workload=trial.workload,
            input_shape=list(trial.input_shape),
            workers=trial.workers,
            repeats=repeats,
            steps=truth.steps if truth else 0,
            parameters=self._parameters,
            parameters_expected=self._workload.parameter_count,
            output_shape=self._output_shape,
            first_loss_error=self._errors.get("first_loss"),
            last_loss_error=self._errors.get("last_loss"),
            weight_error=self._errors.get("weights"),
            update_error=self._errors.get("update"),
            update_rounding=truth.rounding.update if truth else None,
            passed=not self.reasons,
            reason="; ".join(dict.fromkeys(self.reasons)) or None,
            options=dict(trial.options),
            crashes=self._crashes,
            learning_rate=truth.learning_rate if truth else None,
        )
