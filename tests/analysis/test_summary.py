import json
from dataclasses import replace

import numpy as np
import pytest
from simulated import a_check, a_failure, a_launch, a_store, a_trial, a_worker

from steptime.analysis.summary import summarise
from steptime.catalog.cluster import cluster_for
from steptime.results.clock_marks import StoredMarks

CONTRACT = {
    "id",
    "framework",
    "framework_version",
    "strategy",
    "workload",
    "loader",
    "device",
    "precision",
    "workers",
    "hosts",
    "batch_per_worker",
    "launches",
    "steps",
    "step_time_s",
    "throughput_samples_per_s",
    "efficiency",
    "status",
    "reason",
    "flags",
}


@pytest.fixture
def store(tmp_path):
    return a_store(tmp_path / "results")


def measured(store, time_s, launches=3, steps=60, **changes):
    """Add a trial whose steps take about ``time_s``; return it."""
    trial = a_trial(**changes)
    rng = np.random.default_rng([round(1e6 * time_s), launches, trial.workers])
    store.add_trial(trial)
    for number in range(launches):
        times = time_s * np.exp(rng.normal(0.0, 0.02, steps) + rng.normal(0.0, 0.002))
        origin_s = 1e4 * len(store.trials()) + 1e2 * number
        ends = (origin_s + np.cumsum(times)).tolist()
        workers = [a_worker(ends, rank, origin_s=origin_s) for rank in range(trial.workers)]
        store.append(a_launch(trial, number, workers=workers))
    return trial


def of(summary, trial):
    (found,) = [each for each in summary.trials if each.id == trial.id]
    return found


def test_the_json_has_the_keys_of_the_contract(store):
    measured(store, 0.1)
    store.append_equivalence(a_check())
    data = json.loads(json.dumps(summarise(store).to_json(), allow_nan=False))
    assert (data["schema"], data["study"]) == (2, "tried")
    (trial,) = data["trials"]
    assert trial.keys() >= CONTRACT
    assert trial["step_time_s"].keys() >= {"mean", "low", "high", "level", "median", "p90", "p99"}
    assert trial["throughput_samples_per_s"].keys() == {"value", "low", "high", "least", "most"}
    assert trial["efficiency"].keys() >= {"value", "baseline_workers"}
    (place,) = data["ranking"]
    assert place.keys() >= {"group", "rank", "trial", "ratio_to_best", "tied_with_best"}
    (check,) = data["equivalence"]
    wanted = {"framework", "workload", "parameters", "parameters_expected", "first_loss_error", "passed"}
    assert check.keys() >= wanted


def test_the_step_time_and_its_rate_are_those_of_the_records(store):
    trial = measured(store, 0.1, workers=2, strategy="allreduce")
    found = of(summarise(store), trial)
    assert found.step_time_s.mean == pytest.approx(0.1, rel=0.02)
    assert found.step_time_s.low < found.step_time_s.mean < found.step_time_s.high
    rate = found.throughput_samples_per_s
    assert rate.value == pytest.approx(2 * 8 / found.step_time_s.mean)
    assert rate.low == pytest.approx(2 * 8 / found.step_time_s.high)
    assert (found.launches, found.framework_version, found.status) == (3, "1.2", "ok")


def test_steps_are_those_after_the_warm_up_that_was_detected(store):
    trial = a_trial()
    store.add_trial(trial)
    rng = np.random.default_rng(0)
    for number in range(3):
        times = 0.1 * np.exp(rng.normal(0.0, 0.02, 200))
        times[:40] *= 3.0
        store.append(a_launch(trial, number, times.tolist()))
    found = of(summarise(store), trial)
    assert 3 * 120 <= found.steps <= 3 * 160
    assert found.step_time_s.mean == pytest.approx(0.1, rel=0.02)


def test_the_best_is_first_and_the_others_follow_with_their_ratio(store):
    slow = measured(store, 0.2, framework="chainer")
    fast = measured(store, 0.1, framework="pytorch")
    summary = summarise(store)
    assert [(place.trial, place.rank) for place in summary.ranking] == [(fast.id, 1), (slow.id, 2)]
    best, other = (place.ratio_to_best for place in summary.ranking)
    assert (best.value, best.low, best.high) == (1.0, 1.0, 1.0)
    expected = of(summary, slow).step_time_s.mean / of(summary, fast).step_time_s.mean
    assert other.value == pytest.approx(expected)
    assert 1.8 < other.low < other.value < other.high < 2.2
    assert [place.tied_with_best for place in summary.ranking] == [True, False]


def test_trials_that_cannot_be_told_apart_are_tied_and_say_how_many_launches_would_settle_it(store):
    rng = np.random.default_rng(3)
    for framework in ("chainer", "pytorch"):
        trial = a_trial(framework=framework)
        store.add_trial(trial)
        for number in range(3):
            times = 0.1 * np.exp(0.05 * rng.normal() + 0.01 * rng.normal(size=50))
            store.append(a_launch(trial, number, times.tolist()))
    second = summarise(store).ranking[1]
    assert second.tied_with_best
    assert second.ratio_to_best.low < 1.0 < second.ratio_to_best.high
    assert 1 <= second.launches_to_settle < 200


def test_trials_with_another_batch_are_not_ranked_against_each_other(store):
    measured(store, 0.1)
    measured(store, 0.2, batch_per_worker=16)
    assert [place.rank for place in summarise(store).ranking] == [1, 1]


def test_efficiency_names_its_baseline(store):
    one = measured(store, 0.1)
    two = measured(store, 0.125, workers=2, strategy="allreduce")
    summary = summarise(store)
    found = of(summary, two).efficiency
    assert found.value == pytest.approx(0.8, rel=0.02)
    assert found.low < found.value < found.high
    assert (found.baseline_workers, found.baseline_strategy) == (1, "single")
    assert of(summary, one).efficiency.value == 1.0


def test_the_same_strategy_at_as_few_workers_is_the_better_baseline(store):
    measured(store, 0.1)
    measured(store, 0.11, workers=1, strategy="allreduce")
    two = measured(store, 0.125, workers=2, strategy="allreduce")
    assert of(summarise(store), two).efficiency.baseline_strategy == "allreduce"


def test_another_batch_or_framework_is_no_baseline(store):
    measured(store, 0.1, batch_per_worker=16)
    measured(store, 0.1, framework="chainer")
    two = measured(store, 0.125, workers=2, strategy="allreduce")
    assert of(summarise(store), two).efficiency.baseline_workers == 2


@pytest.mark.parametrize(
    ("shares", "delay_s", "baseline"),
    [({}, 0.0, 1), ({0: 0.5}, 0.0, None), ({1: 0.5}, 0.0, 1), ({}, 0.01, 1)],
    ids=["alike", "a slow host", "another host is slow", "a slow link, which one worker does not use"],
)
def test_a_worker_on_a_slow_host_is_no_baseline_of_workers_on_fast_ones(store, shares, delay_s, baseline):
    slow = cluster_for(workers=1, own_servers=0, cpu_shares=shares, delay_s=delay_s)
    measured(store, 0.1, launcher="emulated", cluster=slow)
    fast = cluster_for(workers=2, own_servers=0)
    two = measured(store, 0.1, workers=2, strategy="allreduce", launcher="emulated", cluster=fast)

    found = of(summarise(store), two).efficiency
    assert found.baseline_workers == (baseline or 2)


def test_another_variable_or_another_number_of_cores_is_no_baseline(store):
    measured(store, 0.1, environment_variables={"KMP_BLOCKTIME": "1"})
    measured(store, 0.1, cores_per_worker=2)
    two = measured(store, 0.12, workers=2, strategy="allreduce")

    assert of(summarise(store), two).efficiency.baseline_workers == 2


def test_a_variable_that_some_trials_leave_unset_is_one_that_varies(store):
    plain = measured(store, 0.1)
    one = measured(store, 0.11, environment_variables={"KMP_BLOCKTIME": "1", "OMP_SCHEDULE": "auto"})
    other = measured(store, 0.12, environment_variables={"KMP_BLOCKTIME": "0", "OMP_SCHEDULE": "auto"})
    found = summarise(store)

    assert [of(found, each).varied_variables for each in (plain, one, other)] == [
        {},
        {"KMP_BLOCKTIME": "1", "OMP_SCHEDULE": "auto"},
        {"KMP_BLOCKTIME": "0", "OMP_SCHEDULE": "auto"},
    ]


def test_what_is_not_known_is_null_and_never_zero(store):
    trial = a_trial()
    store.add_trial(trial)
    found = of(summarise(store), trial)
    assert (found.status, found.reason) == ("failed", "not run yet")
    shown = found.model_dump()
    for group in (shown["step_time_s"], shown["throughput_samples_per_s"], shown["efficiency"]):
        assert {value for name, value in group.items() if name != "level"} == {None}
    assert found.framework_version is None


def test_a_trial_whose_launches_all_failed_says_why_and_has_no_rank(store):
    trial = a_trial()
    store.add_trial(trial)
    store.append(a_failure(trial))
    summary = summarise(store)
    assert (of(summary, trial).status, of(summary, trial).reason) == ("failed", "worker-0: ValueError: no")
    assert summary.ranking == []


def test_failed_launches_beside_good_ones_are_flagged(store):
    trial = measured(store, 0.1)
    store.append(a_failure(trial, 3))
    found = of(summarise(store), trial)
    assert (found.status, found.launches, found.failed_launches) == ("ok", 3, 1)
    assert "1 of 4 launches failed" in found.flags


def test_a_trial_that_is_not_equivalent_keeps_its_reason_and_has_no_rank(store):
    trial = measured(store, 0.1)
    store.put("verdicts", {trial.id: {"status": "not_equivalent", "reason": "the weights differ"}})
    summary = summarise(store)
    assert (of(summary, trial).status, of(summary, trial).reason) == ("not_equivalent", "the weights differ")
    assert summary.ranking == []


def test_a_single_launch_is_flagged(store):
    trial = measured(store, 0.1, launches=1)
    found = of(summarise(store), trial)
    assert any("single launch" in flag for flag in found.flags)
    assert found.step_time_s.low < found.step_time_s.high


def test_more_threads_than_cores_are_flagged_and_servers_count(store):
    store.set_machine({"cpu": "small", "cores": 2, "gpus": []})
    fits = measured(store, 0.1, workers=2, strategy="allreduce")
    full = measured(store, 0.1, workers=2, strategy="ps_sync", servers=1)
    summary = summarise(store)
    assert "more workers than cores" not in of(summary, fits).flags
    assert "more workers than cores" in of(summary, full).flags


@pytest.mark.parametrize(("checked", "flags"), [(4, []), (3, ["checked with 3 of 4 workers"])])
def test_a_trial_that_was_checked_with_fewer_workers_is_flagged(store, checked, flags):
    trial = measured(store, 0.1, workers=4, strategy="allreduce")
    store.append_equivalence(a_check(strategy="allreduce", workers=checked, trials=[trial.id]))
    assert [flag for flag in of(summarise(store), trial).flags if "checked" in flag] == flags


@pytest.mark.parametrize(
    ("device", "time_s", "tick_s", "share"),
    [
        ("cuda", 0.0005, 5e-6, "1 %"),
        ("cuda", 0.0005, None, "an unknown part"),
        ("cuda", 0.002, 5e-6, None),
        ("cpu", 0.0005, 5e-6, None),
    ],
)
def test_steps_of_a_device_that_are_short_beside_its_clock_are_flagged(store, device, time_s, tick_s, share):
    trial = a_trial(framework="pytorch", device=device)
    store.add_trial(trial)
    for number in range(2):
        worker = a_worker(np.cumsum([time_s] * 50).tolist())
        worker.facts["tick_s"] = tick_s
        store.append(a_launch(trial, number, workers=[worker]))
    flags = [flag for flag in of(summarise(store), trial).flags if "under 1 ms" in flag]
    assert flags == ([f"steps under 1 ms: its framework's clock takes {share} of a step"] if share else [])


@pytest.mark.parametrize("inside", [True, False, None])
def test_workers_that_compiled_no_network_have_a_flag(store, inside):
    trial = a_trial(framework="pytorch")
    store.add_trial(trial)
    for number in range(2):
        worker = a_worker((number + np.cumsum([0.01] * 50)).tolist(), origin_s=float(number))
        if inside is not None:
            worker.facts.update(network_in_graphs=inside, calls_captured=2, unique_graphs=1)
        store.append(a_launch(trial, number, workers=[worker]))
    flags = [flag for flag in of(summarise(store), trial).flags if "torch.compile" in flag]
    shown = "torch.compile left the network out (2 of 2 workers): it compiled 2 operations"
    assert flags == ([shown] if inside is False else [])


def test_noise_is_flagged_with_its_share_of_the_launches_and_its_amount(store):
    trial = a_trial()
    store.add_trial(trial)
    for number in range(3):
        marks = ["noisy: CPU used by other processes above 0.1 core"] if number else []
        noise = {"foreign_cpu_cores": (0.02, 0.31, 1.52)[number]}
        store.append(a_launch(trial, number, [0.1] * 20, flags=marks, noise=noise))
    found = of(summarise(store), trial)
    assert found.flags == ["noisy: CPU used by other processes above 0.1 core (2 of 3 launches: 0.31 to 1.5 cores)"]
    assert found.status == "ok"


def test_the_noise_of_a_trial_is_the_median_of_what_is_known(store):
    trial = measured(store, 0.1)
    found = of(summarise(store), trial)
    assert found.noise == {"steal_share": 0.0, "thermal_throttles": None}


def test_damaged_records_are_left_out_and_listed(store):
    trial = measured(store, 0.1)
    with (store.path / "trials" / trial.id / "records.jsonl").open("a") as file:
        file.write("{broken\n")
    summary = summarise(store)
    assert of(summary, trial).launches == 3
    assert len(summary.problems) == 1


def test_of_repeated_checks_the_last_counts(store):
    store.append_equivalence(a_check(passed=False, reason="the weights differ"))
    store.append_equivalence(a_check())
    (check,) = summarise(store).equivalence
    assert check.passed


def test_the_same_records_give_the_same_summary(store):
    measured(store, 0.1, launches=1)
    measured(store, 0.1, framework="chainer")
    assert summarise(store) == summarise(store)


def test_asynchronous_trials_are_counted_by_updates(store):
    """Two workers that take 0.1 s for a step each make two updates in 0.1 s, also when they take turns."""
    trial = a_trial(strategy="ps_async", workers=2, servers=1)
    store.add_trial(trial)
    ends = 0.1 * np.arange(1, 61)
    for number in range(3):
        workers = [a_worker((ends + 0.05 * rank).tolist(), rank, origin_s=0.05 * rank) for rank in range(2)]
        store.append(a_launch(trial, number, workers=workers))
    assert of(summarise(store), trial).step_time_s.mean == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        ({"hostname": "here"}, "machine.json names no machine (id), and launches ran on abc"),
        ({"hostname": "here", "id": "abc"}, None),
        ({"id": None, "cores": 64}, "names no machine (id)"),
        ({}, "names no machine (id)"),
    ],
)
def test_a_description_of_another_machine_is_named(tmp_path, machine, said):
    store = a_store(tmp_path / "r")
    store.add_trial(a_trial())
    store.append(a_launch(a_trial(), machine="abc"))
    if machine:
        store.set_machine(machine)
    problems = summarise(store).problems
    assert bool(problems) == bool(said)
    assert all(said in problem for problem in problems)


def test_a_description_of_another_host_is_named_where_machines_have_no_id(tmp_path):
    store = a_store(tmp_path / "r")
    store.add_trial(a_trial())
    store.append(a_launch(a_trial()))
    store.set_machine({"hostname": "here"})
    assert summarise(store).problems == []
    store.set_machine({"hostname": "there"})
    assert "machine.json is of there, and launches ran on here" in summarise(store).problems[0]


def test_launches_of_two_machines_do_not_mix_where_the_folder_names_none(tmp_path):
    store = a_store(tmp_path / "r")
    store.add_trial(a_trial())
    for number, machine in enumerate(["abc", "abc", "def"]):
        store.append(a_launch(a_trial(), number, machine=machine))
    assert [launch.machine for launch in store.launches(a_trial().id)] == ["abc", "abc"]
    assert "it ran on the machine def, and this folder is of abc" in store.problems[0]


def test_launches_whose_clock_nothing_was_compared_with_are_flagged(tmp_path):
    store = a_store(tmp_path / "r")
    store.add_trial(a_trial())
    for number, marks in enumerate([[], [(0, 0.0, False), (1, 0.0, True)], None]):
        worker = a_worker([0.1 + 1e-4 * number, 0.2])
        kept = None if marks is None else StoredMarks(marks and [*marks, (3, 0.2001, True), (4, 0.2002, True)], 0.2001)
        store.append(a_launch(a_trial(), number, workers=[replace(worker, kernel_marks=kept)]))
    (trial,) = summarise(store).trials
    assert "clock of steps not compared with the kernel's (1 of 3 launches)" in trial.flags
