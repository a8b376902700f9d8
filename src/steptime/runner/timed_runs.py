"""The timed part of a study: launch after launch, each stored before the next begins."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steptime.measurements.records import Launch
from steptime.runner.collection import worker_steps
from steptime.runner.executor import Bench, describe, launch_once
from steptime.runner.jobs import TimingSchedule, timing_job
from steptime.runner.observer import Observer
from steptime.runner.schedule import Schedule
from steptime.study.trial import Trial
from steptime.workloads.layers import Workload

START_S = 6.0
"""A guess of what starting a framework takes, until the first launch has shown it."""


@dataclass(frozen=True)
class Race:
    """What a timed launch needs beside its trial."""

    bench: Bench
    timing: TimingSchedule
    workloads: Mapping[str, Workload]
    loaders: Mapping[str, Mapping[str, Any]]
    """The job's ``loader`` object; both mappings are by trial id."""
    folder: Callable[[Trial, int], Path]
    """Where the run folder of a trial's n-th launch is."""
    keep: Callable[[Launch], None]
    observer: Observer

    def run(self, schedule: Schedule, deadline: float | None) -> None:
        """Launch blocks until all trials are settled, or until the next one would end after ``deadline``.

        Args:
            schedule: the trials and what is known of them.
            deadline: on ``time.monotonic``; None for no budget.
        """
        self.observer.stage("Racing", len(schedule.trials) * schedule.min_launches)
        while True:
            block, trials = schedule.next_block()
            if not trials:
                return
            fitting = [trial for trial in trials if self._fits(schedule, trial, deadline)]
            if not fitting:
                self.observer.note("the budget is spent; what was measured is kept")
                return
            for trial in fitting:
                if not self._fits(schedule, trial, deadline):
                    continue
                self.observer.time_left(self.time_left_s(schedule, deadline))
                self.observer.working_on(describe(trial, block))
                launch = self.launch(trial, block)
                self.keep(launch)
                schedule.add(launch)
                self.observer.finished(describe(trial, block), ok=launch.status == "ok")

    def expected_wall_s(self, schedule: Schedule, trial: Trial) -> float:
        """How long a launch of ``trial`` will take, as far as is known."""
        return schedule.expected_wall_s(trial, START_S + self.timing.seconds)

    def time_left_s(self, schedule: Schedule, deadline: float | None) -> float:
        """How long the rest may take: the launches that every trial still needs, but not longer than the budget."""
        needed = 0.0
        for trial in schedule.trials:
            if schedule.verdict(trial) == "continue":
                done = len(schedule.launches.get(trial.id, []))
                needed += max(1, schedule.min_launches - done) * self.expected_wall_s(schedule, trial)
        return needed if deadline is None else min(needed, max(0.0, deadline - time.monotonic()))

    def launch(self, trial: Trial, number: int) -> Launch:
        """Run one launch of ``trial`` and return its record.

        The run folders of the first launch and of failed ones are kept, to be looked into and started by hand; the
        others differ from the first in nothing but their records.
        """
        job = timing_job(trial, self.workloads[trial.id], self.loaders[trial.id], self.timing)
        launched = launch_once(self.bench, trial, job, self.folder(trial, number), keep_folder=number == 0)
        ran = launched.ran
        return Launch(
            **launched.shared,
            launch=number,
            block=number,
            commands=ran.outcome.commands,
            workers=[] if ran.reason else worker_steps(ran.collected, trial.workers),
        )

    def _fits(self, schedule: Schedule, trial: Trial, deadline: float | None) -> bool:
        """Say whether a launch of ``trial`` still fits; a slow trial must not end the study for the quick ones.

        A first launch fits as long as there is time at all: nobody knows yet how long it takes.
        """
        if deadline is None:
            return True
        expected = self.expected_wall_s(schedule, trial) if schedule.launches.get(trial.id) else 0.0
        return time.monotonic() + expected <= deadline
