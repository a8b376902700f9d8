"""Real training that is wrong in the middle of its timed steps and right at both ends: a pause there shows it."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from launching import interpreter_for, library_workload, trial_of
from preloading import PRELOADING

from steptime.catalog.manifest import load_manifests
from steptime.equivalence.replay import Replays
from steptime.execution.executor import Executor, Launchable, LaunchResult
from steptime.execution.host import usable_cores
from steptime.execution.jobs import TimingSchedule
from steptime.execution.progress import Silent
from steptime.results.records import Launch, Replay
from steptime.runner.block_runner import BlockRunner, Schedule, StoppingRule
from steptime.runner.preparation import environment_spec, prepare_environments
from steptime.runner.trial_runs import TrialInputs, timed_runs
from steptime.validity.training_evidence import mistake

PLANT = (Path(__file__).parent / "middle_adapter.py").read_text()
TIMING = TimingSchedule(warmup_steps=5, seconds=0.0, min_steps=70, max_steps=70)
IN_THE_MIDDLE = 0.25
"""Of the timed steps: the first worker pauses behind step 5 + 1 + 18, and is wrong from 12 to 40."""


class Preloaded(Executor):
    """Its timed launches start with the framework imported too: what they compute is tested, not how long it takes."""

    def launch(self, configuration: Launchable, job: Mapping[str, Any], folder: Path, **how: Any) -> LaunchResult:
        """See Executor."""
        return super().launch(configuration, job, folder, **{**how, "pinned": False})


@dataclass(frozen=True)
class Seen:
    """What one timed launch and its replays show."""

    launch: Launch
    found: str | None


def seen(folder: Path, strategy: str, fault: str, monkeypatch: pytest.MonkeyPatch, pause: float | None) -> Seen:
    """Time one launch with a fault planted, which pauses behind a part of its steps, and repeat what it showed."""
    interpreter_for("pytorch")
    monkeypatch.setattr("random.SystemRandom.random", lambda _: pause)
    if pause is None:
        monkeypatch.setattr("steptime.runner.trial_runs.can_pause", lambda _: False)
    manifest = load_manifests()["pytorch"]
    copied = folder / "pytorch"
    shutil.copytree(manifest.folder, copied)
    (copied / "adapter.py").rename(copied / "trained.py")
    (copied / "adapter.py").write_text(PLANT)
    (copied / "plant.json").write_text(json.dumps({"cause": fault}))
    manifest = manifest.model_copy(update={"folder": copied})
    prepared = prepare_environments([environment_spec(manifest)], Silent())
    built = library_workload("lenet5")
    trial = trial_of("pytorch", strategy, built, batch=16, workers=2)
    trial = trial.model_copy(update={"servers": int(strategy == "ps_async")})
    executor = Preloaded({"pytorch": manifest}, prepared.environments, usable_cores(), 200.0, preloading=PRELOADING)
    inputs = TrialInputs(folder, {trial.id: built}, {trial.id: {"kind": "synthetic", "distinct_batches": 4}})
    launches: list[Launch] = []
    schedule = Schedule([trial], StoppingRule(1, 1), "0")
    BlockRunner(executor, timed_runs(inputs, TIMING, schedule, repeated=True), launches.append, Silent()).run(schedule)
    assert [each.reason for each in launches] == [None]
    replays: list[Replay] = []
    repeating = Replays(executor, folder / "equivalence", replays.append, Silent())
    repeating.run([trial], inputs.workloads, inputs.loaders, {trial.id: launches}, lambda _: [])
    assert [each.reason for each in replays] == [None] * len(replays)
    return Seen(launches[0], mistake(trial, launches, replays))


@pytest.mark.sampled
@pytest.mark.parametrize("fault", ["a quarter of the batch", "an old gradient", "every second push left out"])
def test_a_worker_that_is_wrong_in_the_middle_is_named(tmp_path, monkeypatch, fault):
    found = seen(tmp_path, "ps_async", fault, monkeypatch, IN_THE_MIDDLE).found

    counted = fault == "every second push left out" and "the servers counted" in (found or "")
    assert counted or "in the pause of the timed steps" in (found or "")


def test_an_array_that_is_kept_back_in_the_middle_is_named(tmp_path, monkeypatch):
    found = seen(tmp_path, "allreduce", "an array kept back", monkeypatch, IN_THE_MIDDLE).found

    assert "after 24 steps their weights are" in (found or "")


def test_right_steps_show_nothing_in_a_pause(tmp_path, monkeypatch):
    right = seen(tmp_path, "ps_async", "none", monkeypatch, IN_THE_MIDDLE)

    assert right.found is None
    assert all(worker.pause is not None and worker.clock_mistake() is None for worker in right.launch.workers)
