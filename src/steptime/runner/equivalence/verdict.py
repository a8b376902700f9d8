"""The verdict on one check: the findings of its probes, and whether they pass."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from steptime.measurements.records import EquivalenceResult
from steptime.runner.equivalence.distance import (
    Distance,
    Round,
    Sketch,
    distances,
    may_be_one_activation,
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

_Place = tuple[str, int, int]
"""Of a fault: what was compared, ``loss`` or ``weights``, of which worker, in which round."""


@dataclass(frozen=True)
class _Fault:
    words: str
    may_be_one_activation: bool


@dataclass(frozen=True)
class _Seen:
    """What a launch left behind, by rank."""

    losses: list[list[float]]
    sketches: list[dict[int, Sketch]]
    """Empty of a worker that returned no weights."""
    starts: list[Sketch]
    """The first weights, which nobody writes: they are the right ones."""

    @classmethod
    def of(cls, ran: LaunchResult, folder: Path, truth: Truth) -> "_Seen":
        ranks = range(len(truth.ranks))
        losses = [ran.collected.worker(rank)["check"]["losses"] for rank in ranks]
        return cls(losses, [read_sketches(folder, rank) for rank in ranks], [each[0].start for each in truth.ranks])


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

    def add(
        self,
        probe: Probe,
        ran: LaunchResult,
        folder: Path,
        truth: Truth,
        beside: Callable[[int], Iterable[Truth]] = lambda _: (),
    ) -> None:
        """Hold one launch against the truth.

        Args:
            probe: that was launched.
            ran: how the launch ended.
            folder: of the launch, with the weights of its workers.
            truth: what is right.
            beside: what is as right from a round on; where one activation at zero may have decided, the launch is held
                against these too, until one of them says the same.
        """
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
        seen = _Seen.of(ran, folder, truth)
        for rank, losses in enumerate(seen.losses):
            if not all(math.isfinite(loss) for loss in losses):
                self.reasons.append(f"worker {rank}: the loss is not finite: {losses}")
        if not any(seen.sketches):
            self.reasons.append("no worker returned its weights")
        try:
            faults = self._faults(probe, seen, truth, noted=True)
        except ValueError as mistake:
            self.reasons.append(str(mistake))
            return
        if faults and not self.reasons and all(fault.may_be_one_activation for fault in faults.values()):
            for other in beside(min(place for _, _, place in faults)):
                again = self._faults(probe, seen, other, noted=False)
                faults = {place: fault for place, fault in faults.items() if place in again}
                if not faults:
                    break
        first: dict[tuple[str, int], str] = {}
        for (what, rank, _), fault in faults.items():
            first.setdefault((what, rank), f"{probe.name}: worker {rank}: {fault.words}")
        self.reasons += first.values()

    def _faults(self, probe: Probe, seen: _Seen, truth: Truth, *, noted: bool) -> dict[_Place, _Fault]:
        """Return what of a launch is further away from ``truth`` than is allowed; ``noted``: distances are kept."""
        found: dict[_Place, _Fault] = {}
        for rank, rounds in enumerate(truth.ranks):
            if rank == 0 or probe.answer == "any_order":  # the reference has the loss of the first batch only
                found |= self._faults_of_losses(probe, rank, rounds, seen.losses[rank], noted=noted)
            if seen.sketches[rank]:
                found |= self._faults_of_weights(probe, rank, rounds, seen, noted=noted)
        return found

    def _faults_of_losses(
        self, probe: Probe, rank: int, rounds: Sequence[Round], losses: Sequence[float], *, noted: bool
    ) -> dict[_Place, _Fault]:
        found: dict[_Place, _Fault] = {}
        seen = losses[-1:] if probe.turns else losses
        for number, (right, loss) in enumerate(zip(rounds, seen, strict=False)):
            if right.loss is None:
                continue
            distance = abs(loss - right.loss) if math.isfinite(loss) else math.inf
            key = "first_loss" if number == 0 and right.steps == 1 else "last_loss"
            if noted:
                self._note(key, distance / max(abs(right.loss), 1e-30))
            if not distance <= right.allowed_loss(probe.tolerance):
                what = "first loss" if key == "first_loss" else "loss"
                words = (
                    f"the {what} is {loss:.6g} instead of {right.loss:.6g} "
                    f"(allowed: {right.allowed_loss(probe.tolerance):.2g} away)"
                )
                found["loss", rank, number] = _Fault(words, may_be_one_activation=number > 0)
        return found

    def _faults_of_weights(
        self, probe: Probe, rank: int, rounds: Sequence[Round], seen: _Seen, *, noted: bool
    ) -> dict[_Place, _Fault]:
        faults: dict[_Place, _Fault] = {}
        sketches, start = seen.sketches[rank], seen.starts[rank]
        for place, (right, number) in enumerate(zip(rounds, sorted(sketches), strict=False)):
            end = sketches[number]
            try:
                found = distances(start, end, right, probe.tolerance)
            except ValueError as mistake:
                message = f"worker {rank}: {mistake}"
                raise ValueError(message) from mistake
            key = "gradient" if place == 0 and right.steps == 1 else "update"
            if noted:
                self._note_weights(key, found, relative_distance(end, right.end))
            worst = worst_fault(found)
            slope = wrong_slope(start, end, right, probe.tolerance) if key == "gradient" else None
            if worst is not None:
                words = f"the {key} of {worst.name} in round {place + 1} {worst.in_words()}"
                faults["weights", rank, place] = _Fault(words, may_be_one_activation(found))
            elif slope is not None:
                faults["weights", rank, place] = _Fault(
                    f"gradients are {slope:.3g} times the reference's", may_be_one_activation=False
                )
            start = end
        return faults

    def _note_weights(self, key: str, found: Sequence[Distance], relative: float) -> None:
        clear = [each for each in found if each.update > 0]
        self._note(key, max((each.relative for each in clear), default=0.0))
        self._note_rounding(key, max((each.rounding for each in clear), default=0.0))
        self._note("weights", relative)

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
