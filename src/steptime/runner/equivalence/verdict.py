"""The verdict on one check: the findings of its probes, and whether they pass."""

import math
from collections.abc import Sequence
from pathlib import Path

from steptime.measurements.records import EquivalenceResult
from steptime.runner.equivalence.distance import (
    Round,
    Sketch,
    distances,
    read_sketches,
    relative_distance,
    worst_fault,
    wrong_slope,
)
from steptime.runner.equivalence.oracle import Truth
from steptime.runner.equivalence.probes import Probe
from steptime.runner.executor import LaunchResult
from steptime.study.trial import Trial
from steptime.workloads.layers import Workload


class Findings:
    """Collects probes; what was found is final when ``reasons`` is not empty."""

    def __init__(self, trial: Trial, workload: Workload) -> None:
        """Take the check's trial and its workload."""
        self.reasons: list[str] = []
        self._trial = trial
        self._workload = workload
        self._errors: dict[str, float] = {}
        self._rounding: dict[str, float] = {}
        self._parameters: int | None = None
        self._output_shape: list[int] | None = None
        self._crashes = 0
        self._launches = 0
        self._rounds = 0
        self._steps = 0
        self._learning_rates: list[float] = []

    def note_crash(self) -> None:
        """Count a run that a signal ended, and that is repeated."""
        self._crashes += 1

    def add(self, probe: Probe, ran: LaunchResult, folder: Path, truth: Truth) -> None:
        """Hold one launch against the truth."""
        self._launches += 1
        self._learning_rates.append(truth.learning_rate)
        if ran.reason:
            self.reasons.append(ran.reason)
            return
        check = ran.collected.worker(0)["check"]
        self._parameters, self._output_shape = check["parameters"], check["output_shape"]
        self._check_form(probe)
        self._rounds += len(truth.rounds)
        self._steps = max(self._steps, sum(each.steps for each in truth.rounds))
        held = 0
        for rank, rounds in enumerate(truth.ranks):
            losses = ran.collected.worker(rank)["check"]["losses"]
            if not all(math.isfinite(loss) for loss in losses):
                self.reasons.append(f"worker {rank}: the loss is not finite: {losses}")
            if rank == 0 or probe.answer == "any_order":  # the reference has the loss of the first batch only
                self._compare_losses(probe, rank, rounds, losses)
            sketches = read_sketches(folder, rank)
            if sketches:
                held += 1
                self._compare_weights(probe, rank, rounds, sketches)
        if not held:
            self.reasons.append("no worker returned its weights")

    def _compare_losses(self, probe: Probe, rank: int, rounds: Sequence[Round], losses: Sequence[float]) -> None:
        seen = losses[-1:] if probe.turns else losses
        for number, (right, loss) in enumerate(zip(rounds, seen, strict=False)):
            if right.loss is None:
                continue
            distance = abs(loss - right.loss) if math.isfinite(loss) else math.inf
            key = "first_loss" if number == 0 and right.steps == 1 else "last_loss"
            self._note(key, distance / max(abs(right.loss), 1e-30))
            if not distance <= right.allowed_loss(probe.tolerance):
                what = "first loss" if key == "first_loss" else "loss"
                self.reasons.append(
                    f"{probe.name}: worker {rank}: the {what} is {loss:.6g} instead of {right.loss:.6g} "
                    f"(allowed: {right.allowed_loss(probe.tolerance):.2g} away)"
                )
                return

    def _compare_weights(self, probe: Probe, rank: int, rounds: Sequence[Round], sketches: dict[int, Sketch]) -> None:
        numbers = sorted(sketches)
        start = rounds[0].start
        for place, (right, number) in enumerate(zip(rounds, numbers, strict=False)):
            end = sketches[number]
            try:
                found = distances(start, end, right, probe.tolerance)
            except ValueError as mistake:
                self.reasons.append(f"worker {rank}: {mistake}")
                return
            key = "gradient" if place == 0 and right.steps == 1 else "update"
            clear = [each for each in found if each.update > 0]
            self._note(key, max((each.relative for each in clear), default=0.0))
            self._note_rounding(key, max((each.rounding for each in clear), default=0.0))
            self._note("weights", relative_distance(end, right.end))
            worst = worst_fault(found)
            if worst is not None:
                what = f"the {key} of {worst.name} in round {place + 1}"
                self.reasons.append(f"{probe.name}: worker {rank}: {what} {worst.in_words()}")
                return
            slope = wrong_slope(start, end, right, probe.tolerance) if key == "gradient" else None
            if slope is not None:
                self.reasons.append(f"{probe.name}: worker {rank}: gradients are {slope:.3g} times the reference's")
                return
            start = end

    def _note(self, name: str, error: float) -> None:
        self._errors[name] = max(error, self._errors.get(name, 0.0))

    def _note_rounding(self, name: str, rounding: float) -> None:
        self._rounding[name] = max(rounding, self._rounding.get(name, 0.0))

    def _check_form(self, probe: Probe) -> None:
        expected = self._workload.parameter_count
        if self._parameters != expected:
            self.reasons.append(f"{self._parameters} parameters instead of {expected}")
        shape = [probe.trial.batch_per_worker, *self._workload.output_shape]
        if self._output_shape != shape:
            self.reasons.append(f"output shape {self._output_shape} instead of {shape}")

    def result(self, version: str) -> EquivalenceResult:
        """Return the result."""
        trial = self._trial
        return EquivalenceResult(
            framework=trial.framework,
            framework_version=version,
            strategy=trial.strategy,
            workload=trial.workload,
            input_shape=list(trial.input_shape),
            workers=trial.workers,
            repeats=self._launches,
            rounds=self._rounds,
            steps=self._steps,
            parameters=self._parameters,
            parameters_expected=self._workload.parameter_count,
            output_shape=self._output_shape,
            first_loss_error=self._errors.get("first_loss"),
            last_loss_error=self._errors.get("last_loss"),
            weight_error=self._errors.get("weights"),
            gradient_error=self._errors.get("gradient"),
            gradient_rounding=self._rounding.get("gradient"),
            update_error=self._errors.get("update"),
            update_rounding=self._rounding.get("update"),
            passed=not self.reasons,
            reason="; ".join(dict.fromkeys(self.reasons)) or None,
            options=dict(trial.options),
            environment_variables=dict(trial.environment_variables),
            optimizer=trial.optimizer.name,
            crashes=self._crashes,
            learning_rate=min(self._learning_rates, default=None),
        )
