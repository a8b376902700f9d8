"""Replays are kept whole or not at all, and those that allow for rounding are made whenever a launch needs them."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from simulated import a_launch, a_trial, a_worker

from steptime.catalog.workloads.table import build_workload
from steptime.equivalence.replay import Replays
from steptime.execution.collected import Collected
from steptime.execution.executor import Executor, LaunchResult
from steptime.execution.progress import Silent
from steptime.launchers.fork_servers import Preloading
from steptime.launchers.request import LaunchOutcome
from steptime.results.records import Launch, Replay
from steptime.study.trial import Trial
from steptime.validity.kept_losses import FROZEN
from steptime.validity.training_evidence import mistake

TRIAL = a_trial()
RATE = TRIAL.optimizer.learning_rate
EQUAL, ROUNDED = 1.0, 1.0 + 5e-5
"""The last loss of a launch that is its replay to the last digit, and of one that rounding led away."""


def launch_of(last: float) -> Launch:
    worker = replace(a_worker([0.1, 0.2]), loss_first=None, loss_last=last, losses=[(1, 2.0)], samples=8)
    return a_launch(TRIAL, workers=[worker])


class Replaying:
    """An executor whose launches lose as they do where rounding leads: with another rate, to another last loss."""

    do_side_by_side = Executor.do_side_by_side

    def __init__(self, stop_at: int | None = None, fails: str | None = None) -> None:
        self.cancelled = threading.Event()
        self.preloading, self.forks = Preloading(), 0
        self.rates: list[float] = []
        self.turns: list[bool] = []
        self.jobs: list[Mapping[str, Any]] = []
        self.workers = 1
        self._stop_at = stop_at
        self._fails = fails

    def launch(self, trial: Trial, job: Mapping[str, Any], _folder: Path, **_how: Any) -> LaunchResult:
        self.rates.append(trial.optimizer.learning_rate)
        self.jobs.append(job)
        self.turns.append(job["schedule"]["turns"])
        if len(self.rates) == self._stop_at:
            self.cancelled.set()
        reason = "cancelled" if self.cancelled.is_set() else self._fails
        last = EQUAL if trial.optimizer.learning_rate == RATE else ROUNDED
        rounds = len(job["schedule"]["rounds"])
        record = {"losses": [*[2.0] * (rounds - 1), last], "weights": [None] * rounds, "batches": []}
        outcome = LaunchOutcome(ok=reason is None, reason=reason, wall_s=0.1, commands=[])
        workers = {f"worker-{rank}": {"replay": record} for rank in range(self.workers)}
        return LaunchResult(outcome, Collected(workers), reason, {})

    def remove(self, _folder: Path) -> None: ...


def replay(
    executor: Replaying,
    launches: list[Launch],
    there: list[Replay],
    keep: Callable[[Replay], None],
    trial: Trial = TRIAL,
) -> None:
    replays = Replays(executor, Path("scratch"), keep, Silent())
    workloads = {trial.id: build_workload("mlp")}
    replays.run([trial], workloads, {trial.id: {}}, {trial.id: launches}, lambda _: list(there))


def test_a_launch_that_is_its_replay_needs_one_alone():
    executor, kept = Replaying(), []
    replay(executor, [launch_of(EQUAL)], [], kept.append)

    assert executor.rates == [RATE]
    assert mistake(TRIAL, [launch_of(EQUAL)], kept) is None


def test_an_interrupted_replay_keeps_nothing_that_counts_against_its_trial():
    executor, kept = Replaying(stop_at=2), []
    replay(executor, [launch_of(ROUNDED)], [], kept.append)

    assert kept == []


def test_a_later_launch_that_rounding_leads_away_gets_the_replays_that_allow_for_it():
    kept: list[Replay] = []
    replay(Replaying(), [launch_of(EQUAL)], [], kept.append)
    launches = [launch_of(EQUAL), launch_of(ROUNDED)]
    assert mistake(TRIAL, launches, kept) is not None

    executor = Replaying()
    replay(executor, launches, kept, kept.append)

    assert len({each.nudge for each in kept}) > 1
    assert executor.rates.count(RATE) == 2  # the repeats without a nudge; the first is there
    assert mistake(TRIAL, launches, kept) is None


def test_launches_that_their_replays_allow_are_replayed_no_more():
    kept: list[Replay] = []
    replay(Replaying(), [launch_of(ROUNDED)], [], kept.append)
    executor = Replaying()
    replay(executor, [launch_of(ROUNDED)], kept, kept.append)

    assert executor.rates == []


def test_asynchronous_workers_are_replayed_once_with_weights_that_stay():
    trial = a_trial(strategy="ps_async", workers=2)
    workers = [replace(a_worker([0.1, 0.2], rank), loss_last=1.0, losses=[(1, 2.0)]) for rank in range(2)]
    executor, kept = Replaying(), []
    executor.workers = 2
    launches = [a_launch(trial, workers=workers)]
    replay(executor, launches, [], kept.append, trial)
    replay(executor, launches, kept, kept.append, trial)

    assert [each.nudge for each in kept] == [FROZEN]
    assert executor.rates == [trial.optimizer.learning_rate * FROZEN]


def test_asynchronous_steps_that_were_taken_in_turn_are_repeated_in_turn():
    trial = a_trial(strategy="ps_async", workers=2)
    workers = [
        replace(a_worker([0.1, 0.2], rank), loss_last=1.0, losses=[(1, 2.0)], first_turns=[None, None])
        for rank in range(2)
    ]
    executor, kept = Replaying(), []
    executor.workers = 2
    replay(executor, [a_launch(trial, workers=workers)], [], kept.append, trial)

    assert [(each.nudge, each.steps) for each in kept] == [(FROZEN, [1, 3]), (1.0, [1, 2])]
    assert executor.turns == [False, True]


def test_one_asynchronous_worker_has_no_others_to_be_compared_with():
    executor = Replaying()
    trial = a_trial(strategy="ps_async")
    replay(executor, [a_launch(trial, workers=[a_worker([0.1])])], [], lambda _: None, trial)

    assert executor.rates == []
