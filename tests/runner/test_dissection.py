"""Which trial is taken apart next, and how often one that fails."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trials import trial

from steptime.measurements.ablation.records import AblationLaunch
from steptime.runner.ablation_runs import AblationRuns
from steptime.runner.executor import Bench
from steptime.runner.jobs import AblationSchedule
from steptime.runner.observer import Silent
from steptime.study.trial import Trial

TRIALS = [trial(name) for name in ("a", "b", "c", "d")]


@dataclass(frozen=True)
class Scripted(AblationRuns):
    """Starts no process: whether a launch ends well is told to it."""

    ends_well: Callable[[Trial, int], bool] = lambda _trial, _attempt: True
    launched: list[tuple[int, str]] = field(default_factory=list)

    def launch(self, trial: Trial, number: int) -> AblationLaunch:
        attempt = sum(name == trial.framework for _, name in self.launched)
        self.launched.append((number, trial.framework))
        status = "ok" if self.ends_well(trial, attempt) else "failed"
        return AblationLaunch(trial.id, number, status, None, "2026-01-01T00:00:00", 1.0, {}, {})


def play(launches: int = 2, done: Sequence[int] = (0, 0, 0, 0), **fields: object) -> Scripted:
    ablation_runs = Scripted(
        bench=Bench.__new__(Bench),
        schedule=AblationSchedule(3, 1.0),
        launches=launches,
        workloads={},
        loaders={},
        folder=lambda _trial, _number: Path(),
        keep=lambda _launch: None,
        observer=Silent(),
        seed=0,
        **fields,
    )
    ablation_runs.run(TRIALS, {each.id: count for each, count in zip(TRIALS, done, strict=True)}, deadline=None)
    return ablation_runs


def test_every_trial_is_launched_once_in_every_block():
    launched = play().launched
    assert [number for number, _ in launched] == [0] * 4 + [1] * 4
    assert sorted(name for _, name in launched[:4]) == sorted(name for _, name in launched[4:]) == ["a", "b", "c", "d"]


def test_what_was_done_before_is_not_done_again():
    assert sorted(play(done=(2, 1, 0, 2)).launched) == [(0, "c"), (1, "b"), (1, "c")]


def test_a_launch_that_fails_once_is_repeated_at_the_end_of_its_block():
    launched = play(ends_well=lambda trial, attempt: trial.framework != "b" or attempt > 0).launched
    assert Counter(launched)[0, "b"] == 2
    assert launched[4] == (0, "b")
    assert Counter(launched)[1, "b"] == 1


def test_a_trial_that_fails_twice_is_given_up():
    launched = play(ends_well=lambda trial, _attempt: trial.framework != "b").launched
    assert [each for each in launched if each[1] == "b"] == [(0, "b")] * 2
