"""The timed part of a study: launch after launch, each stored before the next begins."""

import resource
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from steptime.environments.table import ReadyEnvironment
from steptime.measurements.noise import difference, flags, snapshot
from steptime.measurements.records import Launch
from steptime.runner.bench import Bench
from steptime.runner.collecting import worker_steps
from steptime.runner.jobs import TimingSchedule, timing_job
from steptime.runner.observer import Observer
from steptime.runner.schedule import Schedule
from steptime.study.trial import Trial
from steptime.workloads.ir import Workload

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
        ready = self.bench.environments[trial.framework]
        folder = self.folder(trial, number)
        job = timing_job(trial, self.workloads[trial.id], self.loaders[trial.id], self.timing)
        started_at, before, own_before = datetime.now(UTC), snapshot(), _children_cpu_s()
        started = time.monotonic()
        ran = self.bench.run(trial, job, folder, "done")
        wall_s = time.monotonic() - started
        if number and not ran.reason:
            shutil.rmtree(folder, ignore_errors=True)
        noise = difference(before, snapshot(), _children_cpu_s() - own_before)
        return Launch(
            trial=trial.id,
            launch=number,
            block=number,
            status="failed" if ran.reason else "ok",
            reason=ran.reason,
            started_at=started_at.isoformat(timespec="milliseconds"),
            wall_s=wall_s,
            commands=ran.outcome.commands,
            environment=_environment(ready),
            noise=noise,
            flags=flags(noise, trial.workers, len(self.bench.cores), trial.threads),
            workers=[] if ran.reason else worker_steps(ran.collected, trial.workers),
            stderr=ran.stderr,
            cluster=ran.outcome.cluster.to_json() if ran.outcome.cluster else None,
        )

    def _fits(self, schedule: Schedule, trial: Trial, deadline: float | None) -> bool:
        """Say whether a launch of ``trial`` still fits; a slow trial must not end the study for the quick ones.

        A first launch fits as long as there is time at all: nobody knows yet how long it takes.
        """
        if deadline is None:
            return True
        expected = self.expected_wall_s(schedule, trial) if schedule.launches.get(trial.id) else 0.0
        return time.monotonic() + expected <= deadline


def describe(trial: Trial, launch: int) -> str:
    """Return a trial's launch in a few words."""
    workers = "1 worker" if trial.workers == 1 else f"{trial.workers} workers"
    return f"{trial.framework} {trial.strategy}, {trial.workload}, {workers}, launch {launch + 1}"


def _children_cpu_s() -> float:
    """Processor seconds of all ended and awaited children of this process."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _environment(ready: ReadyEnvironment) -> dict[str, Any]:
    return {
        "name": ready.name,
        "kind": ready.kind,
        "interpreter": str(ready.interpreter),
        "python": ready.python_version,
        "packages": ready.packages,
    }
