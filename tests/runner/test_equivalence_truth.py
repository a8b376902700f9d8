"""The gate's truth and what it finds, with real runs of the reference and planted faults."""

import math
from pathlib import Path

import numpy as np
import pytest
import trials

from steptime.frameworks.manifest import load_manifests
from steptime.runner.equivalence.check import Checker
from steptime.runner.equivalence.oracle import Oracle, Truth, _diverges, read_weights, weights_path
from steptime.runner.equivalence.verdict import Findings
from steptime.runner.executor import Executor
from steptime.runner.jobs import check_job
from steptime.runner.preparation import environment_spec, prepare_environments
from steptime.runner.progress import Silent
from steptime.study.trial import Optimizer, Trial
from steptime.workloads.table import build_workload

WORKLOAD = build_workload("lenet5")


def trial(strategy: str = "allreduce", workers: int = 2, learning_rate: float = 0.01) -> Trial:
    return trials.trial(strategy=strategy, workers=workers, optimizer=Optimizer(learning_rate=learning_rate))


@pytest.fixture(scope="module")
def executor() -> Executor:
    manifests = load_manifests()
    prepared = prepare_environments([environment_spec(manifests["reference"])], Silent())
    return Executor(manifests, prepared.environments, (), 60.0)


@pytest.fixture(scope="module")
def truth(executor: Executor, tmp_path_factory: pytest.TempPathFactory) -> Truth:
    found = Oracle(executor, tmp_path_factory.mktemp("truth")).truth(trial(), WORKLOAD, 5)
    assert isinstance(found, Truth)
    return found


def run(executor: Executor, which: Trial, folder: Path, seed: int = 0):
    job = check_job(which.model_copy(update={"seed": seed}), WORKLOAD, steps=5, save_weights=True)
    return executor.launch(which, job, folder, last_record="check", pinned=False)


def test_real_workers_over_sockets_pass(executor, truth, tmp_path):
    result = Checker(executor, tmp_path, steps=5, repeats=3).check(trial(), WORKLOAD, truth, "1")
    assert result.passed, result.reason
    assert (result.repeats, result.steps, result.parameters) == (3, 5, 61_706)
    assert result.weight_error < 1e-5


def test_rounding_is_known_and_small_in_a_shallow_workload(truth):
    assert truth.steps == 5
    assert 0 < truth.rounding.update < 1e-4


def test_a_worker_that_never_exchanged_its_gradients_does_not_pass(executor, truth, tmp_path):
    alone = run(executor, trial("single", 1), tmp_path / "run")
    found = Findings(trial(), WORKLOAD, exact=True)
    found.add(alone, tmp_path / "run", truth)
    assert any("the update of" in reason for reason in found.reasons)


def test_one_small_array_that_was_never_exchanged_is_found_and_named(executor, truth, tmp_path):
    folder = tmp_path / "run"
    ran = run(executor, trial(), folder)
    alone_folder = tmp_path / "alone"
    run(executor, trial("single", 1), alone_folder)
    weights = {**read_weights(folder, 1), "fc3.bias": read_weights(alone_folder, 0)["fc3.bias"]}
    np.savez(weights_path(folder, 1), **weights)
    found = Findings(trial(), WORKLOAD, exact=True)
    found.add(ran, folder, truth)
    assert found.reasons
    assert all("worker 1" in reason and "fc3.bias" in reason for reason in found.reasons)


def test_other_initial_weights_are_found_in_the_first_loss(executor, truth, tmp_path):
    ran = run(executor, trial(), tmp_path / "run", seed=1)
    found = Findings(trial(), WORKLOAD, exact=True)
    found.add(ran, tmp_path / "run", truth)
    assert any(reason.startswith("first loss") for reason in found.reasons)


def test_where_rounding_alone_would_decide_fewer_steps_are_compared(executor, tmp_path, monkeypatch):
    monkeypatch.setattr("steptime.runner.equivalence.oracle._LARGEST_ROUNDING", 1e-7)
    found = Oracle(executor, tmp_path).truth(trial(), WORKLOAD, 8)
    assert isinstance(found, Truth)
    assert found.steps < 8
    assert len(found.losses) == found.steps


def test_where_training_diverges_the_learning_rate_is_a_tenth_until_it_does_not(executor, tmp_path):
    diverging = trial(learning_rate=3.0)
    found = Oracle(executor, tmp_path / "truth").truth(diverging, WORKLOAD, 5)
    assert isinstance(found, Truth)
    assert found.learning_rate < 3.0
    assert max(found.losses) <= 2 * found.losses[0]
    result = Checker(executor, tmp_path / "check", steps=5, repeats=1).check(diverging, WORKLOAD, found, "1")
    assert result.passed, result.reason
    assert result.learning_rate == found.learning_rate


@pytest.mark.parametrize("losses", [[2.0, 4.1], [2.0, math.nan], [2.0, math.inf, 1.0], [math.nan]])
def test_a_loss_that_doubles_or_is_no_number_diverges(losses):
    assert _diverges(losses)


def test_a_loss_that_rises_by_less_does_not_diverge():
    assert not _diverges([2.0, 3.9, 1.0])


def test_a_reference_that_fails_is_a_reason_and_no_crash(executor, tmp_path):
    result = Checker(executor, tmp_path, steps=5, repeats=1).check(trial(), WORKLOAD, "the reference failed: why", "1")
    assert not result.passed
    assert result.reason == "the reference failed: why"
