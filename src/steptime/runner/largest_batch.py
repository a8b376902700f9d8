"""The largest batch that fits a trial's memory, searched by short launches where a trial ran out of memory.

The batch is halved until one fits, and then bisected until the largest known to fit and the smallest known not to are
12.5 % of the former apart.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from steptime.runner.executor import Executor
from steptime.runner.jobs import TimingSchedule, timing_job
from steptime.runner.progress import Observer
from steptime.runner.trial_runs import TrialInputs
from steptime.study.trial import Trial

_WITHIN = 0.125
_MOST_LAUNCHES = 16
SHORT = TimingSchedule(warmup_steps=2, seconds=0.0, min_steps=3, max_steps=3)
"""Steps of a launch that only has to fit: frameworks take memory in the first ones."""


@dataclass(frozen=True)
class LargestBatch:
    """What a search found."""

    fits: int
    """The largest ``batch_per_worker`` that was seen to fit; 0 where none was."""
    fails: int
    """The smallest that was seen not to."""
    launches: int
    """How many were needed."""
    stopped: str = ""
    """Why the search ended early; empty where it did not."""

    def in_words(self) -> str:
        """Say what fits, for the report."""
        launches = "1 short launch" if self.launches == 1 else f"{self.launches} short launches"
        found = f"batch_per_worker {self.fits} fits" if self.fits else "no batch was seen to fit"
        stopped = f"; the search ended there: {self.stopped}" if self.stopped else ""
        return f"{found}, {self.fails} does not (by {launches}{stopped})"


def search_largest_batch(fails: int, attempt: Callable[[int], bool | str]) -> LargestBatch:
    """Search below a batch that does not fit.

    Args:
        fails: the batch.
        attempt: returns whether a batch fits, or as a sentence why that cannot be found out any more.
    """
    fits, launches = 0, 0
    while fails - fits > max(1, _WITHIN * fits) and launches < _MOST_LAUNCHES:
        batch = (fits + fails) // 2
        seen = attempt(batch)
        if isinstance(seen, str):
            return LargestBatch(fits, fails, launches, seen)
        launches += 1
        fits, fails = (batch, fails) if seen else (fits, batch)
    return LargestBatch(fits, fails, launches)


@dataclass(frozen=True)
class BatchSearch:
    """Searches for trials of a study that ran out of memory."""

    executor: Executor
    inputs: TrialInputs
    observer: Observer
    deadline: float | None
    """The end of the study's budget on the monotonic clock; None if it has none."""

    def run(self, trial: Trial, launch_s: float) -> LargestBatch:
        """Search below the batch of ``trial``, whose own launches took about ``launch_s`` seconds each."""

        def attempt(batch: int) -> bool | str:
            if self.deadline is not None and time.monotonic() + launch_s > self.deadline:
                return "the budget is spent"
            smaller = trial.model_copy(update={"batch_per_worker": batch})
            what = f"{trial.framework} {trial.strategy}, {trial.workload}, does batch_per_worker {batch} fit"
            self.observer.working_on(what)
            job = timing_job(smaller, self.inputs.workloads[trial.id], self.inputs.loaders[trial.id], SHORT)
            result = self.executor.launch(smaller, job, self._folder, keep_folder=False)
            self.observer.finished(what)
            if result.reason and not result.out_of_memory:
                return result.reason
            return not result.reason

        self.observer.stage("Searching the largest batch that fits", None)
        try:
            return search_largest_batch(trial.batch_per_worker, attempt)
        finally:
            self.executor.remove(self._folder)

    @property
    def _folder(self) -> Path:
        return self.inputs.results / "largest_batch"
