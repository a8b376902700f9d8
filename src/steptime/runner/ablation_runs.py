"""Ablation runs: the launches that take a step apart, after the timed ones and never among them."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steptime.measurements.ablation.records import AblationLaunch
from steptime.measurements.records import Launch
from steptime.measurements.store import Store
from steptime.runner.block_runner import START_S, AbstractRuns, Schedule, StoppingRule
from steptime.runner.executor import LaunchResult
from steptime.runner.jobs import AblationSchedule, ablation_job
from steptime.runner.run_folder import trial_run_folder, worker_ablations
from steptime.runner.timed_runs import describe_launch
from steptime.study.study import Study
from steptime.study.trial import Trial
from steptime.workloads.layers import Workload


@dataclass(frozen=True)
class AblationRuns(AbstractRuns[Trial, AblationLaunch]):
    """The ablation launches of a study's trials."""

    title = "Taking steps apart"

    results: Path
    """The results folder."""
    schedule: AblationSchedule
    workloads: Mapping[str, Workload]
    loaders: Mapping[str, Mapping[str, Any]]
    """The job's ``loader`` object; both mappings are by trial id."""

    @property
    def guess_s(self) -> float:
        return START_S + self.schedule.seconds

    def expected_s(self, timed: Sequence[Launch], timed_s: float) -> float:
        """Return how long a trial's first ablation launch will take.

        Its start and end take as long as those of the trial's timed launches, each of which timed steps for
        ``timed_s`` seconds.
        """
        if not timed:
            return self.guess_s
        around = statistics.median(launch.wall_s for launch in timed) - timed_s
        return max(0.0, around) + self.schedule.seconds

    def job(self, configuration: Trial, number: int) -> dict[str, Any]:  # noqa: ARG002 - all launches do the same
        return ablation_job(
            configuration, self.workloads[configuration.id], self.loaders[configuration.id], self.schedule
        )

    def folder(self, configuration: Trial, number: int) -> Path:
        return trial_run_folder(self.results, configuration, "ablation", number)

    def record(self, configuration: Trial, number: int, result: LaunchResult, fields: dict[str, Any]) -> AblationLaunch:
        return AblationLaunch(
            **fields,
            trial=configuration.id,
            launch=number,
            workers=[] if result.reason else worker_ablations(result.collected, configuration.workers),
        )

    def describe(self, configuration: Trial, number: int) -> str:
        return describe_launch(configuration, number)


def ablation_schedule(
    study: Study, trials: Sequence[Trial], store: Store, timed: Mapping[str, Sequence[Launch]], runs: AblationRuns
) -> Schedule[Trial, AblationLaunch]:
    """Return the ablation launches that are still needed of those ``trials`` that have ``timed`` ones, by trial id."""
    launches = study.breakdown.launches if study.breakdown else 0
    measured = [trial for trial in trials if timed.get(trial.id)]
    good = {trial.id: [each for each in store.ablations(trial.id) if each.status == "ok"] for trial in measured}
    return Schedule(
        measured,
        StoppingRule(least=launches, most=launches),
        seed=f"{study.seed}/ablation",
        records=good,
        prior_s=lambda trial: runs.expected_s(timed[trial.id], study.seconds_per_launch),
    )
