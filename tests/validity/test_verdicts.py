"""Which trials have no rank is derived from the records of their checks, whatever verdicts.json says."""

import pytest
from simulated import a_check, a_launch, a_store, a_trial

from steptime.analysis.summary import summarise
from steptime.analysis.trial_progress import progress_of_trials

FAILED = {"passed": False, "reason": "the weights differ"}
REASON = "did not pass the equivalence check: the weights differ"


@pytest.fixture
def store(tmp_path):
    return a_store(tmp_path / "results", equivalence={"enabled": True})


def a_measured(store, **changes):
    """Add a trial with three launches; return it."""
    trial = a_trial(**changes)
    store.add_trial(trial)
    for number in range(3):
        store.append(a_launch(trial, number, [0.1] * 20))
    return trial


def a_check_of(*trials, **changes):
    """Return a check that stands for ``trials``, with what an older record has of them."""
    one = trials[0]
    fields = {name: getattr(one, name) for name in ("framework", "strategy", "workload", "workers", "options")}
    fields |= {"input_shape": list(one.input_shape), "trials": [trial.id for trial in trials]}
    return a_check(**{**fields, **changes})


def found(store, trial):
    """Return the status, the reason and whether the trial is ranked."""
    summary = summarise(store)
    (own,) = [each for each in summary.trials if each.id == trial.id]
    return own.status, own.reason, trial.id in {place.trial for place in summary.ranking}


def test_a_failed_check_counts_where_the_verdicts_are_lost(store):
    trial = a_measured(store)
    store.append_equivalence(a_check_of(trial, **FAILED))

    assert found(store, trial) == ("not_equivalent", REASON, False)
    assert [row["reason"] for row in progress_of_trials(store)] == [REASON]


@pytest.mark.parametrize(
    "kept",
    [{}, {"status": "unranked", "reason": "passed"}, {"status": "failed", "reason": "passed"}],
    ids=["no verdict", "unranked", "failed"],
)
def test_a_failed_check_counts_whatever_the_verdicts_say(store, kept):
    trial = a_measured(store)
    store.append_equivalence(a_check_of(trial, **FAILED))
    store.put("verdicts", {trial.id: kept} if kept else {})

    assert found(store, trial) == ("not_equivalent", REASON, False)


def test_a_check_counts_that_is_newer_than_the_verdicts(store):
    trial = a_measured(store)
    store.append_equivalence(a_check_of(trial))
    store.put("verdicts", {})
    store.append_equivalence(a_check_of(trial, **FAILED))
    assert found(store, trial)[0] == "not_equivalent"

    store.put("verdicts", {trial.id: {"status": "not_equivalent", "reason": REASON}})
    store.append_equivalence(a_check_of(trial))
    assert found(store, trial) == ("ok", None, True)


def test_a_passed_check_of_the_loader_does_not_undo_a_failed_one_of_the_training(store):
    trial = a_measured(store)
    store.append_equivalence(a_check_of(trial, **FAILED))
    store.append_equivalence(a_check_of(trial, workload="the native loader of digits"))

    assert found(store, trial)[0] == "not_equivalent"


def test_an_older_record_counts_for_the_trials_that_compute_as_it_says(store):
    trial, larger = a_measured(store), a_measured(store, batch_per_worker=64)
    other = a_measured(store, framework="mxnet")
    store.append_equivalence(a_check_of(trial, trials=None, **FAILED))
    store.append_equivalence(a_check_of(other, trials=None))

    assert [found(store, each)[2] for each in (trial, larger, other)] == [False, False, True]


def test_an_older_record_of_a_loader_counts_for_all_trials_that_it_feeds(store):
    trial = a_measured(store, dataset="digits", loader="native", loader_processes=2)
    of_loader = {"workload": "the native loader of digits with 2 helpers", "strategy": "allreduce", "workers": 3}
    store.append_equivalence(a_check_of(trial, trials=None))
    store.append_equivalence(a_check_of(trial, trials=None, **of_loader, **FAILED))

    assert found(store, trial) == ("not_equivalent", REASON, False)


def test_an_older_record_of_one_of_two_precisions_counts_against_both_where_nothing_says_which(store):
    exact, half = a_measured(store), a_measured(store, precision="bf16")
    store.append_equivalence(a_check_of(half, trials=None, **FAILED))
    store.append_equivalence(a_check_of(exact, trials=None))
    assert [found(store, each)[2] for each in (exact, half)] == [False, False]

    store.put("verdicts", {half.id: {"status": "not_equivalent", "reason": REASON}})
    assert [found(store, each)[2] for each in (exact, half)] == [True, False]


def test_a_verdict_stands_where_no_check_says_anything_of_its_trial(store):
    trial = a_measured(store)
    store.put("verdicts", {trial.id: {"status": "not_equivalent", "reason": "the weights differ"}})

    assert found(store, trial) == ("not_equivalent", "the weights differ", False)


def test_options_that_round_gradients_have_no_rank_where_the_verdicts_are_lost(store):
    trial = a_measured(store)
    store.append_equivalence(a_check_of(trial, unranked="compression: fp16 changes what is computed"))

    assert found(store, trial) == ("unranked", "compression: fp16 changes what is computed", False)


def test_a_trial_without_a_check_has_no_rank_in_a_study_with_the_check(store):
    checked, unchecked = a_measured(store), a_measured(store, framework="mxnet")
    store.append_equivalence(a_check_of(checked))

    assert found(store, checked) == ("ok", None, True)
    assert found(store, unchecked) == ("unranked", "equivalence.jsonl holds no check of this trial", False)


def test_a_study_without_the_check_ranks_all_that_it_measured(tmp_path):
    store = a_store(tmp_path / "other", equivalence={"enabled": False})
    checked, unchecked = a_measured(store), a_measured(store, framework="mxnet")
    store.append_equivalence(a_check_of(checked))

    assert [found(store, each)[2] for each in (checked, unchecked)] == [True, True]


def test_the_checks_of_two_precisions_are_both_shown(store):
    exact, half = a_measured(store), a_measured(store, precision="bf16")
    store.append_equivalence(a_check_of(half, **FAILED))
    store.append_equivalence(a_check_of(exact))

    assert [check.passed for check in summarise(store).equivalence] == [False, True]
