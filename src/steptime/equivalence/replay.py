"""Replays: launches of the check that repeat the training of timed launches, so that it can be compared step by step.

The same framework takes the same steps on the same batches from the same weights. Nothing is timed, and an adapter does
not see in which of both launches it is. Where a timed launch differs, the replay is repeated with learning rates that
are some millionths away, by which the comparison knows how far rounding leads; after some hundred steps of a network
that amplifies it, far.
"""

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from steptime.catalog.choices import strategy_named
from steptime.catalog.workloads.layers import Workload
from steptime.execution.executor import Executor
from steptime.execution.jobs import Beginning, repeated_turn_job, replay_job
from steptime.execution.progress import Observer
from steptime.execution.run_folder import trial_run_folder
from steptime.results.records import Launch, Replay
from steptime.study.trial import Trial
from steptime.validity.kept_losses import EVERY_STEP, FROZEN, batches_are_given
from steptime.validity.missing_evidence import can_replay, lacking, wanted_steps
from steptime.validity.steps_alone import alone_at, repeatable, unrepeated
from steptime.validity.training_evidence import REPEATS, differs_from_replay
from steptime.worker.timed_evidence import kept_weights

NUDGES = {"fp32": 2.0**-20, "tf32": 2.0**-12, "fp16": 2.0**-12, "bf16": 2.0**-9}
"""By precision, what the learning rate of the smallest nudge is away: more than what the order of sums changes of an
update."""
FACTORS = (1.0, -1.0, 4.0, -4.0)


@dataclass(frozen=True)
class Replays:
    """Replays trials in a scratch folder."""

    executor: Executor
    scratch: Path
    keep: Callable[[Replay], None]
    """Called with every replay."""
    observer: Observer
    at_once: int = 1
    """Trials side by side; nothing is timed."""
    took: Callable[[Trial, float], None] = lambda *_: None
    """Called with the seconds that all replays of a trial took."""

    def run(
        self,
        trials: Sequence[Trial],
        workloads: Mapping[str, Workload],
        loaders: Mapping[str, Mapping[str, Any]],
        launches: Mapping[str, Sequence[Launch]],
        kept: Callable[[str], Sequence[Replay]],
    ) -> None:
        """Replay the trials, as far as their launches need more than there is.

        Args:
            trials: those that were timed.
            workloads: and ``loaders``, the job's: by trial id.
            loaders: see there.
            launches: the timed ones, by trial id.
            kept: returns the replays that there are of a trial.
        """
        good = {trial.id: [each for each in launches.get(trial.id, ()) if each.status == "ok"] for trial in trials}
        there = {trial.id: [each for each in kept(trial.id) if each.reason is None] for trial in trials}
        wanted = [trial for trial in trials if can_replay(trial) and _need_more(trial, good[trial.id], there[trial.id])]
        if not wanted:
            return
        # What has no rank without one comes first; several workers wait until the cores of others are free.
        wanted.sort(key=lambda trial: (bool(there[trial.id]), trial.workers))
        self.observer.stage("Rerunning the timed steps without timers", len(wanted))
        keeping = threading.Lock()

        def replay(trial: Trial) -> None:
            what = f"{trial.framework} {trial.strategy}, {trial.workload}"
            self.observer.working_on(what)
            began = time.monotonic()
            found = list(self.of(trial, workloads[trial.id], loaders[trial.id], good[trial.id], there[trial.id]))
            if self.executor.cancelled.is_set():
                return  # without those that allow for rounding, the first would count against its trial
            with keeping:
                self.took(trial, time.monotonic() - began)
                for each in found:
                    self.keep(each)
            self.observer.finished(what, ok=all(each.reason is None for each in found), kept=False)

        self.executor.do_side_by_side(replay, wanted, self.at_once)

    def of(
        self,
        trial: Trial,
        workload: Workload,
        loader: Mapping[str, Any],
        launches: Sequence[Launch],
        there: Sequence[Replay] = (),
    ) -> Iterator[Replay]:
        """Yield the replay of a trial's good timed launches, and nudged ones where a launch differs from it.

        Of workers that do not wait for each other, whose steps cannot be repeated, the one with weights that stay, and
        that of the first steps, which they took in turn.

        What is ``there`` already, the replay of earlier launches, is not made again.
        """
        for nudge, wanted in wanted_steps(trial, launches).items():
            kept = [
                each for each in there if each.rank is None and each.nudge == nudge and set(wanted) <= set(each.steps)
            ]
            one_by_one = nudge == FROZEN and any(batches_are_given(trial, launch) for launch in launches)
            steps = sorted({*wanted, *range(1, min(EVERY_STEP, max(wanted, default=0)) + 1)}) if one_by_one else wanted
            found = kept[-1] if kept else self._replay(trial, workload, loader, steps, nudge)
            if not kept:
                yield found
            if found.reason is not None:
                continue
            if nudge == 1.0 and any(differs_from_replay(trial, each, [found]) for each in launches):
                yield from self.beside(trial, workload, loader, found.steps)
        left = {launch.launch for launch, _ in unrepeated(trial, launches, there)}
        for launch in launches:
            if launch.launch in left:
                yield from self._alone(trial, workload, loader, launch, there)

    def _alone(
        self,
        trial: Trial,
        workload: Workload,
        loader: Mapping[str, Any],
        launch: Launch,
        there: Sequence[Replay],
    ) -> Iterator[Replay]:
        """Yield the repetition of one worker's last step alone at each place, drawn now, if its weights are there."""
        run_folder = trial_run_folder(self.scratch.parent, trial, "launch", launch.launch)
        whole = True
        for _, place in unrepeated(trial, [launch], there):
            worker = secrets.choice(repeatable(trial, launch, place))
            ranks = [each.rank for each in launch.workers]
            kept = {rank: Path(kept_weights(str(run_folder), rank, place or "alone")) for rank in ranks}
            last = alone_at(worker, place)
            if last is None or not kept[worker.rank].exists():
                whole = False
                continue
            beginning = Beginning(worker.rank, kept[worker.rank], [last.batch - 1] * trial.workers)
            job = repeated_turn_job(trial, workload, loader, beginning)
            wanted = Replay(trial.id, 1.0, [1], [], [], [], launch=launch.launch, rank=worker.rank, place=place)
            repeated = self.outcome(trial, job, wanted)
            yield repeated
            whole = whole and repeated.reason is None
            for path in kept.values() if repeated.reason is None else ():
                self.executor.remove(path)
        if launch.launch and whole:
            self.executor.remove(run_folder)

    def beside(
        self, trial: Trial, workload: Workload, loader: Mapping[str, Any], steps: Sequence[int]
    ) -> Iterator[Replay]:
        """Yield the replay to the same ``steps`` again, and others whose learning rates are some millionths away."""
        for factor in (*(0.0,) * (REPEATS - 1), *FACTORS):
            found = self._replay(trial, workload, loader, steps, 1.0 + factor * NUDGES[trial.precision])
            if found.reason is None:
                yield found

    def _replay(
        self, trial: Trial, workload: Workload, loader: Mapping[str, Any], steps: Sequence[int], nudge: float
    ) -> Replay:
        """Return what came of the ``steps``, or why the launch failed; one that a signal ended is repeated once."""
        nudged = trial.with_learning_rate(trial.optimizer.learning_rate * nudge)
        rounds = [later - earlier for earlier, later in pairwise([0, *steps])]
        turns = nudge != FROZEN and not strategy_named(trial.strategy).synchronous
        job = replay_job(nudged, workload, loader, rounds, turns=turns, weights=nudge != FROZEN)
        return self.outcome(nudged, job, Replay(trial.id, nudge, list(steps), losses=[], weights=[], batches=[]))

    def outcome(self, trial: Trial, job: Mapping[str, Any], wanted: Replay) -> Replay:
        """Launch a job, and return what is ``wanted`` of it, or why it failed."""
        folder = self.scratch / f"replay-{wanted.trial}"
        # Replays run side by side, which pins would put on the same cores.
        ran = self.executor.launch(trial, job, folder, last_record="replay", pinned=False)
        if ran.crashed:
            ran = self.executor.launch(trial, job, folder, last_record="replay", pinned=False)
        self.executor.remove(folder)
        if ran.reason:
            return replace(wanted, reason=ran.reason)
        found = [ran.collected.worker(rank)["replay"] for rank in range(trial.workers)]
        return replace(
            wanted,
            losses=[list(losses) for losses in zip(*(each["losses"] for each in found), strict=True)],
            weights=found[wanted.rank or 0]["weights"],
            batches=[[tuple(batch) for batch in each["batches"]] for each in found],
        )


def _need_more(trial: Trial, launches: Sequence[Launch], there: Sequence[Replay]) -> bool:
    """Say whether launches are without a replay, or differ from one without those that allow for rounding."""
    if not launches:
        return False
    if lacking(wanted_steps(trial, launches), there) or unrepeated(trial, launches, there):
        return True
    whole = [each for each in there if each.rank is None]
    nudged = {each.nudge for each in whole if each.steps == whole[-1].steps} - {1.0, FROZEN}
    return not nudged and any(differs_from_replay(trial, each, there) for each in launches)
