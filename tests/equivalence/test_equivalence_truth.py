"""The truth of a check and what it finds, with real runs of the reference and planted faults."""

import math
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import trials

from steptime.catalog.manifest import load_manifests
from steptime.catalog.optimizer import Optimizer
from steptime.catalog.workloads.table import build_workload
from steptime.equivalence import oracle
from steptime.equivalence.check import Case, Checker, _begun_apart
from steptime.equivalence.distance import norm, relative_distance
from steptime.equivalence.oracle import Oracle, Truth, _diverges
from steptime.equivalence.probes import Probe, check_trial, probes, rounds_of
from steptime.equivalence.verdict import Findings
from steptime.execution.executor import Executor
from steptime.execution.jobs import check_job
from steptime.execution.progress import Silent
from steptime.runner.preparation import environment_spec, prepare_environments
from steptime.study.trial import Trial

WORKLOAD = build_workload("lenet5")
ROUNDS = rounds_of(5)


def trial(strategy: str = "allreduce", workers: int = 2, learning_rate: float = 0.01, **fields: Any) -> Trial:
    return trials.trial(strategy=strategy, workers=workers, optimizer=Optimizer(learning_rate=learning_rate, **fields))


def probe(which: Trial | None = None, answer: str = "mean", turns: int = 0) -> Probe:
    return Probe("as trained", which or trial(), ROUNDS if not turns else (2,), turns=turns, answer=answer)


@pytest.fixture(scope="module")
def executor() -> Executor:
    manifests = load_manifests()
    prepared = prepare_environments([environment_spec(manifests["reference"])], Silent())
    return Executor(manifests, prepared.environments, (), 60.0)


@pytest.fixture(scope="module")
def truth(executor: Executor, tmp_path_factory: pytest.TempPathFactory) -> Truth:
    found = Oracle(executor, tmp_path_factory.mktemp("truth")).truth(probe(), WORKLOAD)
    assert isinstance(found, Truth)
    return found


def found_in(executor: Executor, truth: Truth, folder: Path, which: Trial, **job: Any) -> list[str]:
    """Return the reasons against a run of ``which`` where ``trial()`` was asked for."""
    asked = check_job(which, WORKLOAD, ROUNDS)
    ran = executor.launch(which, {**asked, **job}, folder, last_record="check", pinned=False)
    found = Findings(trial(), WORKLOAD)
    found.add(probe(), ran, folder, truth)
    return found.reasons


def test_real_workers_over_sockets_pass(executor, tmp_path):
    checker = Checker(executor, tmp_path, steps=5, repeats=2)
    truth_of = partial(Oracle(executor, tmp_path).truth, workload=WORKLOAD)
    result = checker.check(trial(), WORKLOAD, truth_of, "1")
    assert result.passed, result.reason
    assert (result.repeats, result.rounds, result.steps, result.parameters) == (2, 6, 5, 61_706)
    assert result.gradient_error < 1e-5
    assert result.update_error < 1e-4


def test_rounding_is_known_and_small_in_a_shallow_workload(truth):
    assert [each.steps for each in truth.rounds] == [1, 2, 2]
    assert all(0 < each.rounding < 1e-4 for each in truth.rounds)


def test_the_right_run_has_no_reason_against_it(executor, truth, tmp_path):
    assert found_in(executor, truth, tmp_path, trial()) == []


@pytest.mark.parametrize(
    "optimizer",
    [
        {"learning_rate": 0.011},
        {"momentum": 0.0},
        {"weight_decay": 0.1},
        {"learning_rate": 0.005},
    ],
    ids=["rate 10 % off", "momentum missing", "weight decay surplus", "gradients divided twice"],
)
def test_another_optimizer_is_found(executor, truth, tmp_path, optimizer):
    assert found_in(executor, truth, tmp_path, trial(**optimizer))


def test_a_worker_that_never_exchanged_its_gradients_is_found_in_the_gradient(executor, truth, tmp_path):
    asked = check_job(trial("single", 1), WORKLOAD, ROUNDS)
    ran = executor.launch(trial("single", 1), asked, tmp_path, last_record="check", pinned=False)
    found = Findings(trial(), WORKLOAD)
    one = replace(truth, ranks=truth.ranks[:1])
    found.add(probe(), ran, tmp_path, one)
    assert any("the gradient of" in reason for reason in found.reasons)


def test_other_initial_weights_are_found_in_the_first_loss(executor, truth, tmp_path):
    reasons = found_in(executor, truth, tmp_path, trial(), seed=1)
    assert any("the first loss is" in reason for reason in reasons)


def with_another_slope(truth: Truth, share: float, *names: str, at: int = -1) -> Truth:
    """Return the truth of a network in which one update of some arrays is by a ``share`` of itself another one."""
    rounds = list(truth.rounds)
    moved = {name: share * (rounds[at].end[name] - rounds[at].start[name])[::-1] for name in names}
    end = {**rounds[at].end, **{name: rounds[at].end[name] + moved[name] for name in names}}
    rounds[at] = replace(rounds[at], end=end)
    return replace(truth, ranks=(tuple(rounds),) * len(truth.ranks))


def judged(
    executor: Executor, truth: Truth, beside: list[Truth] | dict[int, list[Truth]], folder: Path
) -> tuple[list[str], list[int]]:
    """Return the reasons against a right run, and the rounds from which on other truths were asked for.

    The others are ``beside``, of each round where it is a table.
    """
    ran = executor.launch(trial(), check_job(trial(), WORKLOAD, ROUNDS), folder, last_record="check", pinned=False)
    found, asked = Findings(trial(), WORKLOAD), []
    others = beside if isinstance(beside, dict) else dict.fromkeys(range(len(ROUNDS)), beside)
    found.add(probe(), ran, folder, truth, lambda _, place: asked.append(place) or others[place])
    return found.reasons, asked


def test_a_round_that_one_activation_at_zero_decides_may_be_either(executor, truth, tmp_path):
    other = with_another_slope(truth, 0.05, "fc1.bias", "fc2.bias")
    assert judged(executor, other, [other, truth], tmp_path) == ([], [len(ROUNDS) - 1])


def test_a_round_that_no_truth_explains_is_a_fault(executor, truth, tmp_path):
    other = with_another_slope(truth, 0.05, "fc1.bias", "fc2.bias")
    reasons, _ = judged(executor, other, [other, other], tmp_path)
    assert [f"in round {len(ROUNDS)}" in reason for reason in reasons] == [True, True]  # of both workers


@pytest.mark.parametrize("share", [0.05, 0.5], ids=["all arrays", "by half"])
def test_what_no_single_activation_does_is_held_against_one_truth_alone(executor, truth, tmp_path, share):
    names = list(truth.rounds[0].end) if share < 0.1 else ["fc2.bias"]
    reasons, asked = judged(executor, with_another_slope(truth, share, *names), [truth], tmp_path)
    assert reasons
    assert asked == []


def test_rounds_behind_an_activation_at_zero_may_be_away_by_any_distance(executor, truth, tmp_path):
    names = list(truth.rounds[0].end)
    other = with_another_slope(with_another_slope(truth, 0.05, "fc1.bias", at=1), 0.9, *names)
    assert judged(executor, other, [truth], tmp_path) == ([], [1])


def test_activations_in_two_rounds_are_explained_one_after_the_other(executor, truth, tmp_path):
    later = with_another_slope(truth, 0.05, "fc1.bias")
    both = with_another_slope(later, 0.05, "fc2.bias", at=1)
    found = {1: [both, later], 2: [truth]}
    assert judged(executor, both, found, tmp_path) == ([], [1, 2])


def test_a_truth_that_explains_no_more_does_not_take_the_place_of_the_other(executor, truth, tmp_path):
    first = with_another_slope(truth, 0.05, "fc1.bias", at=1)
    reasons, asked = judged(executor, first, [first, with_another_slope(first, 0.05, "fc2.bias", at=0)], tmp_path)
    assert all("fc1.bias in round 2" in reason for reason in reasons)
    assert asked == [1]


def test_what_is_allowed_in_one_round_and_not_in_the_next_is_explained_where_it_began(executor, truth, tmp_path):
    small = with_another_slope(truth, 0.005, "fc1.bias", at=0)
    assert judged(executor, small, [], tmp_path / "small") == ([], [])
    grown = with_another_slope(small, 0.05, "fc1.bias", at=1)
    assert judged(executor, grown, [truth], tmp_path / "grown") == ([], [0])


def test_every_array_may_be_away_behind_a_round_that_is_away_by_less_than_is_allowed(executor, truth, tmp_path):
    small = with_another_slope(truth, 0.005, "fc1.bias", at=0)
    grown = with_another_slope(small, 0.05, *truth.rounds[0].end, at=1)
    assert judged(executor, grown, [truth], tmp_path) == ([], [0])


def test_the_truth_that_explains_most_is_followed_and_not_the_first_that_explains_more(executor, truth, tmp_path):
    """The first had taken the launches of two classes on cifar_cnn to where none explained the rest."""
    first = with_another_slope(truth, 0.05, "fc1.bias", at=1)
    more = with_another_slope(truth, 0.05, *truth.rounds[0].end, at=2)
    assert judged(executor, first, [more, truth], tmp_path) == ([], [1])


def test_an_update_between_what_is_as_right_is_right(executor, truth, tmp_path):
    """Where several activations lie at zero, a launch may have a combination of them that no run of the oracle has."""
    one, other = (with_another_slope(truth, share, "fc1.bias", at=1) for share in (0.05, -0.05))
    assert judged(executor, one, [other], tmp_path) == ([], [1])


def test_an_update_that_is_half_missing_is_a_fault_whatever_is_as_right(executor, truth, tmp_path):
    small = with_another_slope(truth, 0.005, "fc1.bias", at=0)
    half = with_another_slope(small, 0.5, "fc2.bias", at=1)
    reasons, asked = judged(executor, half, [with_another_slope(half, 9.0, *truth.rounds[0].end)], tmp_path)
    assert any("fc2.bias in round 2 differs from the reference's by 0.44" in reason for reason in reasons), reasons
    assert asked == [0]


def test_two_in_a_row_of_what_is_as_right_lie_on_opposite_sides(executor, truth, tmp_path):
    one, other = (
        each.rounds[1].end for each in islice(Oracle(executor, tmp_path).beside(probe(), WORKLOAD, truth, 1), 2)
    )
    right = truth.rounds[1].end
    for name, weights in right.items():
        assert norm(one[name] + other[name] - 2 * weights) < 0.1 * norm(one[name] - weights)


def test_what_is_as_right_differs_from_the_named_round_on_and_by_little(executor, truth, tmp_path):
    other = next(Oracle(executor, tmp_path).beside(probe(), WORKLOAD, truth, 1))
    first, *later = zip(truth.rounds, other.rounds, strict=True)
    assert all((first[0].end[name] == first[1].end[name]).all() for name in first[0].end)
    for right, beside in later:
        away = relative_distance(beside.end, right.end)
        assert 0 < away < 1e-3


def test_rounds_in_which_rounding_alone_would_decide_are_left_out(executor, tmp_path, monkeypatch):
    monkeypatch.setattr(oracle, "_LARGEST_ROUNDING", {"fp32": 1e-7})
    found = Oracle(executor, tmp_path).truth(probe(), WORKLOAD)
    assert isinstance(found, Truth)
    assert len(found.rounds) < len(ROUNDS)


def test_where_training_diverges_the_learning_rate_is_a_tenth_until_it_does_not(executor, tmp_path):
    found = Oracle(executor, tmp_path / "truth").truth(probe(trial(learning_rate=3.0)), WORKLOAD)
    assert isinstance(found, Truth)
    assert found.learning_rate < 3.0
    losses = [each.loss for each in found.rounds]
    assert max(losses) <= 2 * losses[0]


@pytest.mark.parametrize("losses", [[2.0, 4.1], [2.0, math.nan], [2.0, math.inf, 1.0], [math.nan]])
def test_a_loss_that_doubles_or_is_no_number_diverges(losses):
    assert _diverges(losses)


def test_a_loss_that_rises_by_less_does_not_diverge():
    assert not _diverges([2.0, 3.9, 1.0])


def test_a_reference_that_fails_is_a_reason_and_no_crash(executor, tmp_path):
    checker = Checker(executor, tmp_path, steps=5, repeats=1)
    result = checker.check(trial(), WORKLOAD, lambda _: "the reference failed: why", "1")
    assert not result.passed
    assert result.reason == "the reference failed: why"


def test_pushes_in_turn_and_at_frozen_weights_differ_little_where_the_order_does_not_matter(executor, tmp_path):
    found = Oracle(executor, tmp_path).truth(probe(trial("ps_async", momentum=0.0), "any_order", turns=2), WORKLOAD)
    assert isinstance(found, Truth)
    assert len(found.ranks) == 2
    for (each,) in found.ranks:
        assert each.steps == 4
        assert each.rounding < 0.01


def test_an_asynchronous_strategy_is_checked_alone_and_with_all_workers():
    found = list(probes(trial("ps_async", 3), WORKLOAD, 5, 2))
    assert [(each.answer, each.trial.workers) for each in found] == [("mean", 1), ("any_order", 3), ("any_order", 3)]
    assert found[0].trial.optimizer.weight_decay > 0
    assert found[1].trial.optimizer.momentum == 0


def test_a_synchronous_strategy_is_checked_as_trained_and_with_all_terms():
    found = list(probes(trial("allreduce", 3), WORKLOAD, 5, 3))
    assert [each.trial.optimizer.weight_decay > 0 for each in found] == [False, True, False]
    assert {each.trial.workers for each in found} == {3}


@pytest.mark.parametrize(("timed", "checked"), [(1, 1), (4, 4), (8, 8), (64, 8)])
def test_as_many_workers_are_checked_as_are_timed_up_to_eight(timed, checked):
    assert check_trial(trial(workers=timed), load_manifests()["pytorch"]).workers == checked


def test_a_large_workload_takes_fewer_steps():
    (first, *_) = probes(trial(), build_workload("resnet50", (3, 64, 64), 10), 19, 2)
    assert 3 <= sum(first.rounds) < 19


@pytest.mark.parametrize(("workload", "tries"), [("lenet5", 64), ("cifar_cnn", 64), ("resnet50", 16)])
def test_small_runs_have_more_tries_to_meet_a_combination_of_activations_at_zero(
    executor, tmp_path, monkeypatch, workload, tries
):
    """With 16 of them the right runs of three frameworks were refused on cifar_cnn with three workers."""
    monkeypatch.setattr(Oracle, "_ask", lambda *_, **__: None)
    shapes = {"lenet5": (1, 28, 28), "cifar_cnn": (3, 32, 32), "resnet50": (3, 64, 64)}
    built = build_workload(workload, shapes[workload], 10)
    (first, *_) = probes(trial(workers=3), built, 19, 2)
    beside = list(Oracle(executor, tmp_path).beside(first, built, Truth(0.01, ((),), 0), 1))
    assert (len(beside), len({each.nudges for each in beside})) == (tries, tries)


def test_a_probe_of_clipped_gradients_halves_the_first_one(executor, tmp_path):
    """However long the study lets gradients be, a check must see them shortened."""
    which = trial(clip_norm=1e6)
    found = Oracle(executor, tmp_path).clipping(probe(which), WORKLOAD).trial.optimizer.clip_norm
    (unclipped,) = Oracle(executor, tmp_path).truth(replace(probe(trial(momentum=0.0)), rounds=(1,)), WORKLOAD).rounds
    length = math.hypot(*(norm(unclipped.end[name] - unclipped.start[name]) for name in unclipped.end)) / 0.01
    assert found == pytest.approx(length / 2, rel=1e-6)


def test_a_matrix_decays_visibly_where_biases_do_not():
    which = trial(weight_decay=0.1, decayed="matrices")
    _, with_decay = islice(probes(which, WORKLOAD, 5, 2), 2)
    assert with_decay.trial.optimizer.weight_decay * with_decay.trial.optimizer.learning_rate == pytest.approx(0.05)


@pytest.mark.parametrize(("parts", "batch"), [(1, 8), (2, 8), (3, 9), (8, 8), (64, 8)])
def test_a_check_has_as_many_micro_batches_but_one_per_sample_at_most(parts, batch):
    small = check_trial(trials.trial(accumulation=parts, batch_per_worker=192), load_manifests()["reference"])
    assert (small.accumulation, small.batch_per_worker) == (min(parts, 8), batch)


def test_the_first_check_of_each_truth_is_begun_before_others_that_would_wait_for_it():
    pairs = [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("c", 2)]
    cases = [Case(trials.trial(name, workers=workers), (f"{name}{workers}",)) for name, workers in pairs]

    assert [case.stands_for[0] for case in _begun_apart(cases)] == ["a1", "a2", "b1", "b2", "c2"]
