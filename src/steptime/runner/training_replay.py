"""Replays of trainings: the first steps of each are taken again without validation, up to one that is drawn afterwards.

A step is drawn among those whose losses were kept, the more often the earlier it is, so that a replay costs a part of
its training and no step is known to be left out.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from steptime.analysis.accuracy import loss_of
from steptime.equivalence.replay import FACTORS, NUDGES, Replays
from steptime.execution.jobs import TrainingPlan, epoch_steps, training_replay_job
from steptime.results.accuracy_records import TrainingRun
from steptime.results.records import Replay
from steptime.runner.training_runs import TrainingRuns
from steptime.study.trial import Trial
from steptime.validity.accuracy_evidence import as_launch, can_replay_training, kept_losses, replays_of
from steptime.validity.training_evidence import REPEATS, differs_from_replay

_FEWEST = 64
"""Steps of a replay, where the training has as many."""


@dataclass(frozen=True)
class TrainingReplays:
    """Replays the trainings of trials, one after the other."""

    replays: Replays
    runs: TrainingRuns
    kept: Callable[[str], Sequence[Replay]]
    """Returns the replays that there are of a trial."""

    def run(self, trials: Sequence[Trial], trained: Mapping[str, Sequence[TrainingRun]]) -> None:
        """Replay the trainings of ``trials``, ``trained`` by trial id, that are without a replay."""
        wanted = [
            (trial, run)
            for trial in trials
            for run in trained.get(trial.id, ())
            if can_replay_training(trial, run) and not replays_of(run, self.kept(trial.id))
        ]
        if not wanted:
            return
        self.replays.observer.stage("Repeating steps of trainings", len(wanted))

        def replay(one: tuple[Trial, TrainingRun]) -> None:
            trial, run = one
            if self.replays.executor.cancelled.is_set():
                return
            what = self.runs.describe(trial, run.launch)
            self.replays.observer.working_on(what)
            replays = self._of(trial, run)
            if self.replays.executor.cancelled.is_set():
                return
            for each in replays:
                self.replays.keep(each)
            self.replays.observer.finished(what, ok=replays[0].reason is None, kept=False)

        self.replays.executor.do_side_by_side(replay, wanted)

    def _of(self, trial: Trial, run: TrainingRun) -> list[Replay]:
        """Return the replay of a training, and nudged ones where it differs from that."""
        steps = drawn_steps(run)
        replays = [self._replay(trial, run, steps, 1.0)]
        if replays[0].reason is None and differs_from_replay(trial, as_launch(run), replays):
            for factor in (*(0.0,) * (REPEATS - 1), *FACTORS):
                beside = self._replay(trial, run, steps, 1.0 + factor * NUDGES[trial.precision])
                replays += [beside] if beside.reason is None else []
        return replays

    def _replay(self, trial: Trial, run: TrainingRun, steps: Sequence[int], nudge: float) -> Replay:
        nudged = trial.with_learning_rate(trial.optimizer.learning_rate * nudge)
        loader = self.runs.inputs.loaders[trial.id]
        plan = TrainingPlan(run.seed, epoch_steps(trial, loader), self.runs.splits[trial.id].validation, None)
        rounds = [later - earlier for earlier, later in pairwise([0, *steps])]
        validated = [loss_of(parts) or 0.0 for parts in run.epochs]
        job = training_replay_job(nudged, self.runs.inputs.workloads[trial.id], loader, plan, rounds, validated)
        return self.replays.outcome(nudged, job, Replay(trial.id, nudge, list(steps), [], [], [], launch=run.launch))


def drawn_steps(run: TrainingRun) -> list[int]:
    """Return the steps behind which a replay reads losses: all that the training kept up to one that is drawn now."""
    kept = list(kept_losses(run))
    able = [step for step in kept if step >= _FEWEST] or kept[-1:]
    (last,) = random.SystemRandom().choices(able, [1.0 / step for step in able])
    return [step for step in kept if step <= last]
