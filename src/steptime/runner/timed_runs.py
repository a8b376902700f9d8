"""Timed runs: the launches whose step times are compared; nothing but the clock of the step is measured in them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steptime.measurements.records import Launch
from steptime.measurements.stopping_rule import suffices
from steptime.measurements.store import Store
from steptime.runner.block_runner import START_S, AbstractRuns, Schedule, StoppingRule
from steptime.runner.executor import LaunchResult
from steptime.runner.jobs import TimingSchedule, timing_job
from steptime.runner.run_folder import trial_run_folder, worker_steps
from steptime.study.study import Study
from steptime.study.trial import Trial
from steptime.workloads.layers import Workload


@dataclass(frozen=True)
class TimedRuns(AbstractRuns[Trial, Launch]):
    """The timed launches of a study's trials."""

    title = "Racing"

    results: Path
    """The results folder."""
    timing: TimingSchedule
    workloads: Mapping[str, Workload]
    loaders: Mapping[str, Mapping[str, Any]]
    """The job's ``loader`` object; both mappings are by trial id."""

    @property
    def guess_s(self) -> float:
        return START_S + self.timing.seconds

    def job(self, configuration: Trial, number: int) -> dict[str, Any]:  # noqa: ARG002 - all launches do the same
        return timing_job(configuration, self.workloads[configuration.id], self.loaders[configuration.id], self.timing)

    def folder(self, configuration: Trial, number: int) -> Path:
        return trial_run_folder(self.results, configuration, "launch", number)

    def record(self, configuration: Trial, number: int, result: LaunchResult, fields: dict[str, Any]) -> Launch:
        return Launch(
            **fields,
            trial=configuration.id,
            launch=number,
            block=number,
            commands=result.outcome.commands,
            workers=[] if result.reason else worker_steps(result.collected, configuration.workers),
        )

    def describe(self, configuration: Trial, number: int) -> str:
        return describe_launch(configuration, number)


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
    records = {trial.id: list(store.launches(trial.id)) for trial in trials}
    return Schedule(trials, rule, seed=str(study.seed), records=records)


def describe_launch(trial: Trial, number: int) -> str:
    """Return a trial's launch in a few words."""
    workers = "1 worker" if trial.workers == 1 else f"{trial.workers} workers"
    return f"{trial.framework} {trial.strategy}, {trial.workload}, {workers}, launch {number + 1}"
