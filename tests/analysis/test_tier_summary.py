"""Tiers in a summary: what ``tuned`` changed and gained, who stands in which race, and what a baseline may be."""

import numpy as np
import pytest
from simulated import a_launch, a_store, a_trial, a_worker

from steptime.analysis.published import merged_tiers
from steptime.analysis.summary import summarise

CHANGED = {"options": {"compile": True, "layout": "x"}, "documented_options": {"compile": False}, "tuning": "tuned"}
PLAIN = {"options": {"compile": False, "layout": "x"}}


@pytest.fixture
def store(tmp_path):
    return a_store(tmp_path / "results")


def measured(store, time_s, launches=4, **changes):
    """Add a trial whose steps take about ``time_s``, in blocks that the machine slows alike; return it."""
    trial = a_trial(**changes)
    store.add_trial(trial)
    for number in range(launches):
        rng = np.random.default_rng([number, round(1e6 * time_s)])
        times = time_s * (1.0 + 0.3 * number) * np.exp(rng.normal(0.0, 0.005, 60))
        ends = np.cumsum(times).tolist()
        store.append(a_launch(trial, number, workers=[a_worker(ends, rank) for rank in range(trial.workers)]))
    return trial


def of(summary, trial):
    (found,) = [each for each in summary.trials if each.id == trial.id]
    return found


def test_what_tuned_changed_is_listed_by_option_and_value(store):
    documented, tuned = measured(store, 0.12, **PLAIN), measured(store, 0.1, **CHANGED)
    (found,) = summarise(store).tuned
    assert (found.documented_trial, found.trial) == (documented.id, tuned.id)
    assert {name: (each.documented, each.tuned) for name, each in found.changed.items()} == {"compile": (False, True)}


def test_the_gain_of_tuned_is_paired_by_blocks_so_that_drift_does_not_widen_its_interval(store):
    measured(store, 0.12, **PLAIN)
    measured(store, 0.1, **CHANGED)
    speedup = summarise(store).tuned[0].speedup
    assert speedup.low < 1.2 < speedup.high
    assert speedup.high - speedup.low < 0.1  # the machine drifts by 90 % from the first block to the last


def test_a_tuned_trial_without_a_documented_counterpart_has_no_gain(store):
    measured(store, 0.12, options={"compile": False, "layout": "y"})
    measured(store, 0.1, **CHANGED)
    (found,) = summarise(store).tuned
    assert (found.documented_trial, found.speedup) == (None, None)


def test_the_counterpart_may_need_another_launcher(store):
    documented = measured(store, 0.12, **PLAIN, launcher="mpi")
    measured(store, 0.1, **CHANGED)
    assert summarise(store).tuned[0].documented_trial == documented.id


def test_each_tier_has_a_ranking_of_its_own_and_what_is_the_same_stands_in_both(store):
    documented, tuned = measured(store, 0.2, **PLAIN), measured(store, 0.1, **CHANGED)
    same = measured(store, 0.15, framework="other")
    store.put("tiers", {same.id: ["documented", "tuned"]})
    summary = summarise(store)
    assert [place.trial for place in summary.ranking] == [tuned.id, same.id, documented.id]
    orders = {tier: [place.trial for place in places] for tier, places in summary.tier_ranking.items()}
    assert orders == {"documented": [same.id, documented.id], "tuned": [tuned.id, same.id]}


def test_the_best_of_a_tier_is_what_its_ratios_are_relative_to(store):
    measured(store, 0.2, **PLAIN)
    measured(store, 0.05, **CHANGED)
    measured(store, 0.4, framework="other")
    _, second = summarise(store).tier_ranking["documented"]
    assert second.ratio_to_best.value == pytest.approx(2.0, rel=0.05)


def test_a_study_of_one_tier_has_no_rankings_by_tier(store):
    measured(store, 0.2, **PLAIN)
    summary = summarise(store)
    assert (summary.tier_ranking, summary.tuned) == ({}, [])


def test_a_trial_says_its_tier_and_the_tiers_in_whose_races_it_stands(store):
    tuned, same = measured(store, 0.1, **CHANGED), measured(store, 0.15, framework="other")
    store.put("tiers", {same.id: ["documented", "tuned"]})
    summary = summarise(store)
    assert (of(summary, tuned).tuning, of(summary, tuned).tiers) == ("tuned", ("tuned",))
    assert (of(summary, same).tuning, of(summary, same).tiers) == ("documented", ("documented", "tuned"))


@pytest.mark.parametrize("kept", ["tuned", ["fast"], [["tuned"]], None, {"tuned": 1}])
def test_what_somebody_else_wrote_about_tiers_is_not_believed(store, kept):
    trial = measured(store, 0.1)
    store.put("tiers", {trial.id: kept})
    assert of(summarise(store), trial).tiers == ("documented",)


def test_options_that_a_tier_changes_are_no_options_that_the_study_varies(store):
    tuned = measured(store, 0.1, **CHANGED)
    measured(store, 0.2, **PLAIN)
    assert of(summarise(store), tuned).varied_options == {}


def test_the_baseline_of_a_tuned_trial_is_the_tuned_single_worker(store):
    measured(store, 0.2, **PLAIN)
    measured(store, 0.1, **CHANGED)
    two = measured(store, 0.1, strategy="allreduce", workers=2, **CHANGED)
    assert of(summarise(store), two).efficiency.value == pytest.approx(1.0, rel=0.05)


def test_a_tuned_trial_is_not_compared_with_a_documented_worker_that_computes_otherwise(store):
    measured(store, 0.2, **PLAIN)
    two = measured(store, 0.1, strategy="allreduce", workers=2, **CHANGED)
    assert of(summarise(store), two).efficiency.baseline_workers == 2


def test_a_tuned_exchange_is_compared_with_the_documented_worker_that_computes_alike(store):
    measured(store, 0.1, options={"layout": "x"})
    exchange = {"options": {"layout": "x", "bucket": 9}, "documented_options": {"bucket": 1}, "tuning": "tuned"}
    two = measured(store, 0.1, strategy="allreduce", workers=2, **exchange)
    assert of(summarise(store), two).efficiency.baseline_strategy == "single"


def test_runs_of_both_tiers_keep_what_earlier_runs_knew():
    assert merged_tiers({"a": ["documented"], "b": ["tuned"]}, {"a": ("tuned",), "c": ("documented",)}) == {
        "a": ["documented", "tuned"],
        "b": ["tuned"],
        "c": ["documented"],
    }


CLAIM = {
    "claim": "slow is slow",
    "source": "a paper",
    "ratio": 2.0,
    "slower": {"frameworks": ["slow"]},
    "faster": {"frameworks": ["fast"]},
}


def test_a_strategy_that_steptime_implements_is_marked(store):
    trial = measured(store, 0.1)
    store.put("implementations", {trial.framework: {trial.strategy: "steptime's exchange over MPI"}})
    assert of(summarise(store), trial).implementation == "steptime's exchange over MPI"


def test_a_strategy_of_the_framework_itself_has_no_mark(store):
    trial = measured(store, 0.1)
    assert of(summarise(store), trial).implementation is None


def test_a_strategy_that_steptime_implements_takes_no_part_in_published_claims(tmp_path):
    store = a_store(tmp_path / "results", published=[CLAIM])
    slow = measured(store, 0.2, framework="slow")
    measured(store, 0.1, framework="fast")
    assert summarise(store).published[0].pairs == 1
    store.put("implementations", {"slow": {slow.strategy: "steptime's exchange over MPI"}})
    assert summarise(store).published[0].pairs == 0


def test_published_claims_are_compared_within_the_documented_tier(tmp_path):
    store = a_store(tmp_path / "results", published=[CLAIM])
    measured(store, 0.2, framework="slow", **PLAIN)
    measured(store, 0.05, framework="slow", **CHANGED)
    measured(store, 0.1, framework="fast")
    found = summarise(store).published[0]
    assert found.pairs == 1
    assert found.measured.value == pytest.approx(2.0, rel=0.05)
