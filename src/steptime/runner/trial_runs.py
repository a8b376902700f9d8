"""The launches of a study's trials: timed ones, whose step times are compared, and later ones that explain them.

Ablation launches break a step down; loader launches take batches and train on none. All kinds are launches of a trial
in a run folder of the results; they differ in their job and in what is read from their processes. Only timed launches
count for a step time: in them nothing but the clock of the step is measured.

The largest batch that fits a trial's memory, searched by short launches where a trial ran out of memory.

The batch is halved until one fits, and then bisected until the largest known to fit and the smallest known not to are
12.5 % of the former apart.
"""

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from steptime.catalog.choices import SYNTHETIC
from steptime.catalog.workloads.layers import Workload
from steptime.execution.collected import worker_ablations, worker_loadings, worker_steps
from steptime.execution.executor import Executor, LaunchResult, was_killed
from steptime.execution.jobs import AblationSchedule, TimingSchedule, ablation_job, loader_job, timing_job
from steptime.execution.living_hosts import LivingHosts
from steptime.execution.page_cache import dataset_files, drop_on_hosts, drop_page_cache
from steptime.execution.progress import Observer
from steptime.execution.run_folder import trial_run_folder
from steptime.results.ablation_records import AblationLaunch
from steptime.results.loader_records import LoaderLaunch, PageCache
from steptime.results.record_kinds import ABLATION, LOADING
from steptime.results.records import Launch
from steptime.results.store import Store
from steptime.results.stored_record import TrialLaunch
from steptime.runner.block_runner import START_S, AbstractRuns, Schedule, StoppingRule
from steptime.runner.further_launches import open_trials
from steptime.statistics.stopping_rule import suffices
from steptime.study.study import Study
from steptime.study.trial import Trial
from steptime.units import format_count
from steptime.validity.missing_evidence import can_pause
from steptime.validity.steps_alone import can_repeat

TrialRecord = TypeVar("TrialRecord", bound=TrialLaunch)


@dataclass(frozen=True)
class TrialInputs:
    """What the launches of a study's trials have in common."""

    results: Path
    """The results folder."""
    workloads: Mapping[str, Workload]
    loaders: Mapping[str, Mapping[str, Any]]
    """The job's ``loader`` object; both mappings are by trial id."""


@dataclass(frozen=True)
class TrialRuns(AbstractRuns[Trial, TrialRecord], Generic[TrialRecord]):
    """The launches of one kind; ``timed_runs`` and ``ablation_runs`` make them."""

    title: str
    kind: Literal["launch", "ablation", "loader"]
    """The beginning of the names of its run folders."""
    results: Path
    guess_s: float
    make_job: Callable[[Trial], dict[str, Any]]
    make_record: Callable[[Trial, int, LaunchResult, dict[str, Any]], TrialRecord]
    read_later: Callable[[Trial], bool] = lambda _: False
    """Whether a step of a trial's launches is repeated later from the weights in their run folders."""

    def keeps_folder(self, configuration: Trial) -> bool:
        return self.read_later(configuration)

    def job(self, configuration: Trial, number: int) -> dict[str, Any]:  # noqa: ARG002 - all launches do the same
        return self.make_job(configuration)

    def folder(self, configuration: Trial, number: int) -> Path:
        return trial_run_folder(self.results, configuration, self.kind, number)

    def record(self, configuration: Trial, number: int, result: LaunchResult, fields: dict[str, Any]) -> TrialRecord:
        return self.make_record(configuration, number, result, fields)

    def describe(self, configuration: Trial, number: int) -> str:
        return f"{configuration.in_words}, launch {number + 1}"


def block_on_site(schedule: Schedule[Trial, Launch], number: int, site: Sequence[str] | None) -> int:
    """Return the block of a timed launch ``number`` on ``site``: one that holds no launch of another site.

    Blocks are numbered as the launches of their trials until a run goes on on another site. There the block that was
    begun elsewhere is begun anew, under the first number that is free.
    """
    known = [launch for records in schedule.records.values() for launch in records]
    last = max((launch.block for launch in known if launch.site != site), default=-1)
    here = [launch.block - launch.launch for launch in known if launch.site == site and launch.block > last]
    if here:
        block = max(here) + number
        # One that takes the place of a launch elsewhere belongs to no block that there is.
        return block if block > last else 1 + max(launch.block for launch in known)
    if last < 0:
        return number
    return last + 1 + number - min([number, *map(schedule.next_number, schedule.unfinished())])


def timed_runs(
    inputs: TrialInputs, timing: TimingSchedule, schedule: Schedule[Trial, Launch], *, repeated: bool = False
) -> TrialRuns[Launch]:
    """Return the timed launches of ``schedule``, some of whose steps are ``repeated`` later."""

    def job(trial: Trial) -> dict[str, Any]:
        # Drawn anew for each launch: what is wrong in a part of the timed steps is met as often as its part is large.
        pause = random.SystemRandom().random() if repeated and can_pause(trial) else None
        return timing_job(trial, inputs.workloads[trial.id], inputs.loaders[trial.id], timing, pause)

    def record(trial: Trial, number: int, result: LaunchResult, fields: dict[str, Any]) -> Launch:
        workers = [] if result.reason else worker_steps(result.collected, trial.workers)
        commands = result.outcome.commands
        fields = {**fields, "trial": trial.id, "schedule": timing.to_json(), "commands": commands}
        block = block_on_site(schedule, number, fields["site"])
        return Launch(**fields, launch=number, block=block, workers=workers, shared_import=result.shared_import)

    return TrialRuns(
        title="Racing",
        kind="launch",
        results=inputs.results,
        read_later=lambda trial: repeated and can_repeat(trial),
        guess_s=START_S + timing.seconds,
        make_job=job,
        make_record=record,
    )


def ablation_runs(inputs: TrialInputs, schedule: AblationSchedule) -> TrialRuns[AblationLaunch]:
    """Return the launches that break a step down."""

    def record(trial: Trial, number: int, result: LaunchResult, fields: dict[str, Any]) -> AblationLaunch:
        workers = [] if result.reason else worker_ablations(result.collected, trial.workers)
        return AblationLaunch(**fields, trial=trial.id, launch=number, schedule=asdict(schedule), workers=workers)

    return TrialRuns(
        title="Breaking steps down",
        kind="ablation",
        results=inputs.results,
        guess_s=START_S + schedule.seconds,
        make_job=lambda trial: ablation_job(trial, inputs.workloads[trial.id], inputs.loaders[trial.id], schedule),
        make_record=record,
    )


def loader_runs(inputs: TrialInputs, seconds: float, hosts: LivingHosts | None = None) -> TrialRuns[LoaderLaunch]:
    """Return the launches that take batches and train on none.

    Before each, the dataset leaves the page cache of this host, or of those of ``hosts`` that the launch uses.
    """
    found: dict[str, PageCache | None] = {}

    def job(trial: Trial) -> dict[str, Any]:
        loader = inputs.loaders[trial.id]
        if hosts is not None and trial.cluster is not None and trial.cluster.kind == "found":
            site = hosts.current()
            found[trial.id] = drop_on_hosts(site.first(len(trial.cluster.hosts)), site.reach, loader)
        else:
            found[trial.id] = drop_page_cache(dataset_files(loader))
        return loader_job(trial, inputs.workloads[trial.id], inputs.loaders[trial.id], seconds)

    def record(trial: Trial, number: int, result: LaunchResult, fields: dict[str, Any]) -> LoaderLaunch:
        workers = [] if result.reason else worker_loadings(result.collected, trial.workers)
        cache, schedule = found.get(trial.id), {"seconds": seconds}
        return LoaderLaunch(
            **fields, trial=trial.id, launch=number, schedule=schedule, workers=workers, page_cache=cache
        )

    return TrialRuns(
        title="Loading alone",
        kind="loader",
        results=inputs.results,
        guess_s=START_S + 2 * seconds,
        make_job=job,
        make_record=record,
    )


def timing_of(study: Study) -> TimingSchedule:
    """Return how many steps each timed launch of a study runs."""
    return TimingSchedule(study.steps.warmup, study.seconds_per_launch, study.steps.min, study.steps.max)


def timed_schedule(study: Study, trials: Sequence[Trial], store: Store) -> Schedule[Trial, Launch]:
    """Return the timed launches that ``trials`` still need until their intervals are as narrow as the study asks."""
    rule = StoppingRule[Trial, Launch](
        least=study.launches.min,
        most=study.launches.max,
        suffices=lambda trial, launches: suffices(trial, list(launches), study.target),
        failures_count=True,
    )
    # What somebody killed in an earlier run would not fail again.
    records = {trial.id: [each for each in store.launches(trial.id) if not was_killed(each.reason)] for trial in trials}
    schedule = Schedule(trials, rule, seed=str(study.seed), records=records, part=lambda trial: trial.workload)
    if study.budget is not None:
        schedule.open_ids = partial(open_trials, schedule)
    return schedule


def ablation_schedule(
    study: Study, trials: Sequence[Trial], store: Store, timed: Mapping[str, Sequence[Launch]], seconds: float
) -> Schedule[Trial, AblationLaunch]:
    """Return the ablation launches that are still needed of those ``trials`` that have ``timed`` ones, by trial id.

    ``seconds`` is the time that each of them breaks steps down.
    """
    launches = study.breakdown.launches if study.breakdown else 0
    measured = [trial for trial in trials if timed.get(trial.id)]
    good = {trial.id: [each for each in store.records(ABLATION, trial.id) if each.status == "ok"] for trial in measured}
    return Schedule(
        measured,
        StoppingRule(least=launches, most=launches),
        seed=f"{study.seed}/ablation",
        records=good,
        prior_s=lambda trial: expected_ablation_s(timed[trial.id], study.seconds_per_launch, seconds),
    )


def loader_schedule(
    study: Study, trials: Sequence[Trial], store: Store, timed: Mapping[str, Sequence[Launch]]
) -> Schedule[Trial, LoaderLaunch]:
    """Return the loader launches that are still needed of those ``trials`` that read data and have ``timed`` ones."""
    chosen = study.loader_alone
    launches = chosen.launches if chosen else 0
    reading = [trial for trial in trials if trial.loader != SYNTHETIC.name and timed.get(trial.id)]
    good = {trial.id: [each for each in store.records(LOADING, trial.id) if each.status == "ok"] for trial in reading}
    return Schedule(reading, StoppingRule(least=launches, most=launches), seed=f"{study.seed}/loader", records=good)


def expected_ablation_s(timed: Sequence[Launch], timed_s: float, seconds: float) -> float:
    """Return how long a trial's first ablation launch will take, of which ``seconds`` are spent on breaking steps down.

    Its start and end take as long as those of the trial's ``timed`` launches, each of which timed steps for
    ``timed_s`` seconds.
    """
    return max(0.0, statistics.median(launch.wall_s for launch in timed) - timed_s) + seconds


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
        launches = format_count(self.launches, "short launch", "short launches")
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
