"""The launches that take steps apart, after the timed ones and never among them."""

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steptime.measurements.ablation.records import AblationLaunch
from steptime.runner.collection import worker_ablations
from steptime.runner.executor import Bench, describe, launch_once
from steptime.runner.jobs import AblationSchedule, ablation_job
from steptime.runner.observer import Observer
from steptime.runner.schedule import FAILURES
from steptime.study.trial import Trial
from steptime.workloads.layers import Workload


@dataclass(frozen=True)
class AblationRuns:
    """What an ablation launch needs beside its trial."""

    bench: Bench
    schedule: AblationSchedule
    launches: int
    """Of each trial."""
    workloads: Mapping[str, Workload]
    loaders: Mapping[str, Mapping[str, Any]]
    """The job's ``loader`` object; both mappings are by trial id."""
    folder: Callable[[Trial, int], Path]
    """Where the run folder of a trial's n-th ablation launch is."""
    keep: Callable[[AblationLaunch], None]
    observer: Observer
    seed: int

    def run(self, trials: Sequence[Trial], done: Mapping[str, int], deadline: float | None) -> None:
        """Launch every trial so often as it still needs, in randomised blocks, while there is time.

        A launch that failed is repeated at the end of its block, as some frameworks die or hang now and then; a trial
        is given up after as many failures as in the race.

        Args:
            trials: to take apart.
            done: for each trial's id, how many good ablation launches it has.
            deadline: on ``time.monotonic``, after which no launch is begun; None for no budget.
        """
        needed = sum(max(0, self.launches - done[trial.id]) for trial in trials)
        if not needed:
            return
        self.observer.stage("Taking steps apart", needed)
        failures: Counter[str] = Counter()
        for block in range(self.launches):
            members = [trial for trial in trials if done[trial.id] <= block and failures[trial.id] < FAILURES]
            random.Random(f"{self.seed}/ablation/{block}").shuffle(members)  # noqa: S311 - reproducible, not secret
            for trial in members:  # which grows by those that failed
                if deadline is not None and time.monotonic() >= deadline:
                    self.observer.note("the budget is spent; what was measured is kept")
                    return
                self.observer.working_on(describe(trial, block))
                launch = self.launch(trial, block)
                self.keep(launch)
                self.observer.finished(describe(trial, block), ok=launch.status == "ok")
                if launch.status == "failed":
                    failures[trial.id] += 1
                    if failures[trial.id] < FAILURES:
                        members.append(trial)

    def launch(self, trial: Trial, number: int) -> AblationLaunch:
        """Run one ablation launch of ``trial`` and return its record; folders are kept as those of timed launches."""
        job = ablation_job(trial, self.workloads[trial.id], self.loaders[trial.id], self.schedule)
        launched = launch_once(self.bench, trial, job, self.folder(trial, number), keep_folder=number == 0)
        ran = launched.ran
        return AblationLaunch(
            **launched.shared,
            launch=number,
            workers=[] if ran.reason else worker_ablations(ran.collected, trial.workers),
        )
