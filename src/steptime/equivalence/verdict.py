"""The verdict on one check: the findings of its probes, and whether they pass."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from steptime.catalog.workloads.layers import Workload
from steptime.equivalence.distance import (
    Round,
    Sketch,
    distances,
    may_be_one_activation,
    read_sketches,
    relative_distance,
    worst_fault,
    wrong_slope,
)
from steptime.equivalence.oracle import Truth
from steptime.equivalence.probes import Probe
from steptime.execution.executor import LaunchResult
from steptime.results.equivalence_records import EquivalenceResult
from steptime.study.trial import Trial

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
    """The first weights, which are not written: they are the right ones."""

    @classmethod
    def of(cls, ran: LaunchResult, folder: Path, truth: Truth) -> "_Seen":
        ranks = range(len(truth.ranks))
        losses = [ran.collected.worker(rank)["check"]["losses"] for rank in ranks]
        return cls(losses, [read_sketches(folder, rank) for rank in ranks], [each[0].start for each in truth.ranks])


class _Deviations:
    """One launch beside one truth: what is further away from it than is allowed, and how far away all is."""

    def __init__(self, probe: Probe, seen: _Seen, truth: Truth) -> None:
        """Compare losses and weights of every worker.

        Raises:
            ValueError: a worker's weights are not those of the workload.
        """
        self.faults: dict[_Place, _Fault] = {}
        self.furthest: dict[str, float] = {}
        self._beyond_rounding: set[int] = set()
        self._probe = probe
        for rank, rounds in enumerate(truth.ranks):
            if rank == 0 or probe.answer == "any_order":  # the reference has the loss of the first batch only
                self._compare_losses(rank, rounds, seen.losses[rank])
            if seen.sketches[rank]:
                self._compare_weights(rank, rounds, seen.sketches[rank], seen.starts[rank])

    @property
    def first_faulty(self) -> int:
        """The first round with a fault, of which there must be one."""
        return min(place for *_, place in self.faults)

    @property
    def first_away(self) -> int:
        """The first round that rounding does not explain, where what lies behind the first fault began."""
        return min([self.first_faulty, *self._beyond_rounding])

    @property
    def reached(self) -> tuple[float, float]:
        """How far the launch follows this truth: the larger, the further."""
        return (self.first_faulty, self.first_away) if self.faults else (math.inf, math.inf)

    @property
    def may_begin_at_one_activation(self) -> bool:
        """Whether the faults of the first round that has any may come from one activation at zero.

        Where an earlier round is away, by less than is allowed, those behind it may be away in every array.
        """
        return self.first_away < self.first_faulty or all(
            fault.may_be_one_activation for (*_, place), fault in self.faults.items() if place == self.first_faulty
        )

    def _compare_losses(self, rank: int, rounds: Sequence[Round], losses: Sequence[float]) -> None:
        seen = losses[-1:] if self._probe.turns else losses
        for number, (right, loss) in enumerate(zip(rounds, seen, strict=False)):
            if right.loss is None:
                continue
            distance = abs(loss - right.loss) if math.isfinite(loss) else math.inf
            of_first_step = number == 0 and right.steps == 1
            self._note(
                "first_loss_error" if of_first_step else "last_loss_error", distance / max(abs(right.loss), 1e-30)
            )
            allowed = right.allowed_loss(self._probe.tolerance, rounds[0].loss)
            if not distance <= allowed:
                what = "first loss" if of_first_step else "loss"
                words = f"the {what} is {loss:.6g} instead of {right.loss:.6g} (allowed: {allowed:.2g} away)"
                self.faults["loss", rank, number] = _Fault(words, may_be_one_activation=number > 0)

    def _compare_weights(self, rank: int, rounds: Sequence[Round], sketches: dict[int, Sketch], start: Sketch) -> None:
        for place, (right, number) in enumerate(zip(rounds, sorted(sketches), strict=False)):
            end = sketches[number]
            try:
                found = distances(start, end, right, self._probe.tolerance)
            except ValueError as mistake:
                message = f"worker {rank}: {mistake}"
                raise ValueError(message) from mistake
            what = "gradient" if place == 0 and right.steps == 1 else "update"
            clear = [each for each in found if each.update > 0]
            self._note(f"{what}_error", max((each.relative for each in clear), default=0.0))
            self._note(f"{what}_rounding", max((each.rounding for each in clear), default=0.0))
            self._note("weight_error", relative_distance(end, right.end))
            if any(not each.distance <= each.allowed_for_rounding for each in found):
                self._beyond_rounding.add(place)
            worst = worst_fault(found)
            slope = wrong_slope(start, end, right, self._probe.tolerance) if what == "gradient" else None
            if worst is not None:
                words = f"the {what} of {worst.name} in round {place + 1} {worst.in_words()}"
                self.faults["weights", rank, place] = _Fault(words, may_be_one_activation(found))
            elif slope is not None:
                words = f"gradients are {slope:.3g} times the reference's"
                self.faults["weights", rank, place] = _Fault(words, may_be_one_activation=False)
            start = end

    def _note(self, name: str, distance: float) -> None:
        _keep_furthest(self.furthest, name, distance)


class Findings:
    """Collects probes; what was found is final when ``reasons`` is not empty."""

    def __init__(self, trial: Trial, workload: Workload) -> None:
        """Take the check's trial and its workload."""
        self.reasons: list[str] = []
        self.explanation: str | None = None
        self._trial = trial
        self._workload = workload
        self._furthest: dict[str, float] = {}
        self._parameters: int | None = None
        self._expected = workload.parameter_count
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
        beside: Callable[[Truth, int], Iterable[Truth]] = lambda *_: (),
    ) -> None:
        """Hold one launch against the truth.

        Args:
            probe: that was launched.
            ran: how the launch ended.
            folder: of the launch, with the weights of its workers.
            truth: what is right.
            beside: what is as right as a truth, but for the gradients of a round; where one activation at zero may have
                decided that round, the launch is compared with these too.
        """
        self._launches += 1
        self._learning_rates.append(truth.learning_rate)
        if ran.reason:
            self.reasons.append(ran.reason)
            return
        check = ran.collected.worker(0)["check"]
        self._parameters, self._output_shape = check["parameters"], check["output_shape"]
        self._check_form(probe, ran, truth)
        self._rounds += len(truth.rounds)
        self._steps = max(self._steps, sum(each.steps for each in truth.rounds))
        seen = _Seen.of(ran, folder, truth)
        for rank, losses in enumerate(seen.losses):
            if not all(math.isfinite(loss) for loss in losses):
                self.reasons.append(f"worker {rank}: the loss is not finite: {losses}")
        if not any(seen.sketches):
            self.reasons.append("no worker returned its weights")
        try:
            deviations = _Deviations(probe, seen, truth)
        except ValueError as mistake:
            self.reasons.append(str(mistake))
            return
        for name, distance in deviations.furthest.items():
            _keep_furthest(self._furthest, name, distance)
        if not self.reasons:
            deviations = _nearest(deviations, lambda other: _Deviations(probe, seen, other), truth, beside)
        first: dict[tuple[str, int], str] = {}
        for (what, rank, _), fault in deviations.faults.items():
            first.setdefault((what, rank), f"{probe.name}: worker {rank}: {fault.words}")
        self.reasons += first.values()

    def _check_form(self, probe: Probe, ran: LaunchResult, truth: Truth) -> None:
        expected = self._expected = truth.parameters
        for rank in range(probe.trial.workers if self._workload.own else 0):
            facts = ran.collected.worker(rank)["session"]["facts"]["own"]
            if facts["first_weights"] != truth.facts["first_weights"]:
                self.reasons.append(
                    f"worker {rank} built the module with other weights than one process, though random numbers are "
                    "seeded alike; let build() draw them from those of the library"
                )
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
            parameters_expected=self._expected,
            output_shape=self._output_shape,
            first_loss_error=self._furthest.get("first_loss_error"),
            last_loss_error=self._furthest.get("last_loss_error"),
            weight_error=self._furthest.get("weight_error"),
            gradient_error=self._furthest.get("gradient_error"),
            gradient_rounding=self._furthest.get("gradient_rounding"),
            update_error=self._furthest.get("update_error"),
            update_rounding=self._furthest.get("update_rounding"),
            passed=not self.reasons,
            reason="; ".join(dict.fromkeys(self.reasons)) or None,
            options=dict(trial.options),
            environment_variables=dict(trial.environment_variables),
            optimizer=trial.optimizer.name,
            crashes=self._crashes,
            learning_rate=min(self._learning_rates, default=None),
            explanation=self.explanation,
        )


def _nearest(
    deviations: _Deviations,
    beside_another: Callable[[Truth], _Deviations],
    truth: Truth,
    beside: Callable[[Truth, int], Iterable[Truth]],
) -> _Deviations:
    """Return the deviations from the truth that a launch follows furthest, of those that are as right as ``truth``.

    Behind an activation at zero training goes another way: all later rounds are away, and by any distance. So only the
    first faulty round must look as one activation does, and of the truths beside the one before, that which explains
    most of the launch takes its place, until none explains more. Where none does, an update is right between them.
    """
    while deviations.faults and deviations.may_begin_at_one_activation:
        seen: list[Truth] = []
        reached = deviations.reached
        for other in beside(truth, deviations.first_away):
            seen.append(other)
            found = beside_another(other)
            if found.reached > deviations.reached:
                nearest, deviations = other, found
            if not found.faults:
                return found
        if deviations.reached == reached:
            nearest = truth.widened(seen)
            deviations = beside_another(nearest)
            if not deviations.reached > reached:
                return deviations
        truth = nearest
    return deviations


def _keep_furthest(furthest: dict[str, float], name: str, distance: float) -> None:
    furthest[name] = max(distance, furthest.get(name, 0.0))
