"""The kinds of launches of a study, a row each, in the order in which a run makes them.

A plan, a run and its budget loop over the rows; another kind of launch is another row, beside its record
(results/record_kinds.py) and its job.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from steptime.catalog.choices import SYNTHETIC
from steptime.datasets.validation import Split
from steptime.equivalence.replay import Replays
from steptime.execution.jobs import AblationSchedule, warm_up_s
from steptime.execution.living_hosts import LivingHosts
from steptime.results.ablation_records import AblationLaunch
from steptime.results.accuracy_records import TrainingRun
from steptime.results.loader_records import LoaderLaunch
from steptime.results.record_kinds import ABLATION, LOADING, TIMING, TRAINING, RecordKind
from steptime.results.records import Launch
from steptime.results.store import Store
from steptime.results.stored_record import TrialLaunch
from steptime.runner.block_runner import START_S, AbstractRuns, Schedule
from steptime.runner.durations import KeptDurations, Work, search_s
from steptime.runner.training_replay import TrainingReplays
from steptime.runner.training_runs import GUESS_S, TrainingRuns, training_schedule
from steptime.runner.trial_runs import (
    TrialInputs,
    ablation_runs,
    ablation_schedule,
    loader_runs,
    loader_schedule,
    timed_runs,
    timed_schedule,
    timing_of,
)
from steptime.study.study import Study
from steptime.study.trial import Trial

TrialRecord = TypeVar("TrialRecord", bound=TrialLaunch)
Launches = tuple[AbstractRuns[Trial, TrialRecord], Schedule[Trial, TrialRecord]]


@dataclass
class RunInputs:
    """What the launches of a run are made from."""

    study: Study
    store: Store
    inputs: TrialInputs
    splits: Mapping[str, Split]
    """The samples that are trained on and validated with, by trial id."""
    hosts: LivingHosts | None = None
    durations: KeptDurations = field(default_factory=KeptDurations)
    """Of earlier launches."""
    replay_s: Callable[[Trial], float] = lambda _: 0.0
    """What the replay of a trial's timed launches takes."""
    timed: Mapping[str, Sequence[Launch]] = field(default_factory=dict)
    """Timed launches by trial id, which launches of later rows explain; empty before the first row was run."""


@dataclass(frozen=True)
class RunKind(Generic[TrialRecord]):
    """One kind of launches of a study's trials."""

    name: str
    records: RecordKind[TrialRecord]
    purpose: str
    """What its launches do, behind "launches that"."""
    share: float
    """The part of a budget that is kept for it where rows before it are launched too, of what later rows leave."""
    launches: Callable[[Study, Trial], int]
    """How many a study wants of a trial at least; 0 where it wants none."""
    each_s: Callable[[Study, Trial], float]
    """A guess of the seconds of one launch of a trial."""
    work: Work
    """Under which durations of its launches are kept."""
    make: Callable[[RunInputs, Sequence[Trial]], Launches[TrialRecord]]
    """Return the launches of trials and their schedule."""
    time_limit_s: Callable[[Study], float] = lambda study: study.time_limit
    is_result: bool = False
    """Whether a trial has no result without it."""
    repeat: Callable[[Replays, RunInputs, Sequence[Trial]], None] | None = None
    """Repeats steps of its launches of trials without timers, for the comparison; None of kinds that repeat none."""

    def trials(self, study: Study, trials: Sequence[Trial]) -> list[Trial]:
        """Return the trials of which a study wants such launches."""
        return [trial for trial in trials if self.launches(study, trial)]

    def count(self, study: Study, trials: Sequence[Trial]) -> int:
        """Return how many launches a study wants at least, over all trials."""
        return sum(self.launches(study, trial) for trial in trials)


def _timing(run: RunInputs, trials: Sequence[Trial]) -> Launches[Launch]:
    schedule = timed_schedule(run.study, trials, run.store)
    schedule.prior_s, schedule.follow_up_s = partial(run.durations.expected_s, "launch"), run.replay_s
    return timed_runs(run.inputs, timing_of(run.study), schedule, repeated=run.study.equivalence.enabled), schedule


def _repeat_timed(replays: Replays, run: RunInputs, trials: Sequence[Trial]) -> None:
    replays.run(trials, run.inputs.workloads, run.inputs.loaders, run.timed, run.store.replays)


def _ablation(run: RunInputs, trials: Sequence[Trial]) -> Launches[AblationLaunch]:
    seconds = run.study.breakdown.seconds if run.study.breakdown else 0.0
    stages = AblationSchedule(run.study.steps.warmup, seconds)
    return ablation_runs(run.inputs, stages), ablation_schedule(run.study, trials, run.store, run.timed, seconds)


def _loading(run: RunInputs, trials: Sequence[Trial]) -> Launches[LoaderLaunch]:
    seconds = run.study.loader_alone.seconds if run.study.loader_alone else 0.0
    return loader_runs(run.inputs, seconds, run.hosts), loader_schedule(run.study, trials, run.store, run.timed)


def _training(run: RunInputs, trials: Sequence[Trial]) -> Launches[TrainingRun]:
    runs = TrainingRuns(run.inputs, run.splits)
    return runs, training_schedule(run.study, trials, run.store, runs)


def _repeat_trainings(replays: Replays, run: RunInputs, trials: Sequence[Trial]) -> None:
    trained = {trial.id: run.store.records(TRAINING, trial.id) for trial in trials}
    TrainingReplays(replays, TrainingRuns(run.inputs, run.splits), run.store.replays).run(trials, trained)


def _breaks_down(study: Study, trial: Trial) -> int:
    if study.breakdown is None or trial.training or trial.accumulation > 1:
        return 0
    return study.breakdown.launches


def without_breakdown(study: Study, trials: Sequence[Trial]) -> list[str]:
    """Return a line where a study has steps broken down, and some of its ``trials`` cannot be."""
    several = [trial for trial in trials if trial.accumulation > 1 and not trial.training]
    if study.breakdown is None or not several:
        return []
    return [
        f"no breakdown of {len(several)} trials with accumulation: the stages of a step take its batch in one piece"
    ]


def _loads(study: Study, trial: Trial) -> int:
    if study.loader_alone is None or trial.training or trial.loader == SYNTHETIC.name:
        return 0
    return study.loader_alone.launches


TIMED = RunKind(
    "timed",
    TIMING,
    purpose="time steps",
    share=0.0,
    launches=lambda study, trial: 0 if trial.training else study.launches.min,
    each_s=lambda study, trial: START_S + warm_up_s(trial) + search_s(trial) + study.seconds_per_launch,
    work="launch",
    make=_timing,
    is_result=True,
    repeat=_repeat_timed,
)
BREAKDOWNS = RunKind(
    "ablation",
    ABLATION,
    purpose="break steps down",
    share=0.4,
    launches=_breaks_down,
    each_s=lambda study, trial: (
        START_S + warm_up_s(trial) + search_s(trial) + study.breakdown.seconds if study.breakdown else 0.0
    ),
    work="ablation",
    make=_ablation,
)
LOADERS = RunKind(
    "loader",
    LOADING,
    purpose="take batches from a loader alone",
    share=0.2,
    launches=_loads,
    each_s=lambda study, _: START_S + 2 * study.loader_alone.seconds if study.loader_alone else 0.0,
    work="loader",
    make=_loading,
)
TRAININGS = RunKind(
    "training",
    TRAINING,
    purpose="train until the end",
    share=0.3,
    launches=lambda study, trial: study.training.seeds if study.training and trial.training else 0,
    each_s=lambda _, trial: GUESS_S + search_s(trial),
    work="training",
    make=_training,
    time_limit_s=lambda study: study.training.time_limit if study.training else study.time_limit,
    is_result=True,
    repeat=_repeat_trainings,
)

RUN_KINDS: tuple[RunKind[Any], ...] = (TIMED, BREAKDOWNS, LOADERS, TRAININGS)


def deadlines(
    study: Study, trials: Sequence[Trial], budget_s: float | None, now: float, durations: KeptDurations | None = None
) -> list[float | None]:
    """Return when the launches of each row must end, on the clock of ``now``; None without a budget.

    A row gets its share, or less where its launches do not take as long, by the ``durations`` of earlier ones.
    """
    if budget_s is None:
        return [None] * len(RUN_KINDS)
    wanted = [bool(kind.trials(study, trials)) for kind in RUN_KINDS]
    seen = durations or KeptDurations()
    found: list[float | None] = []
    for number, kind in reversed([*enumerate(RUN_KINDS)]):
        found.insert(0, now + budget_s)
        if wanted[number] and any(wanted[:number]):
            needed_s = sum(
                kind.launches(study, each) * (seen.expected_s(kind.work, each) or kind.each_s(study, each))
                for each in trials
            )
            budget_s -= min(kind.share * budget_s, needed_s)
    return found
