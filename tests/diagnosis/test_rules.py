"""Every rule fires on its planted cause, says how to remove it, and is silent on a clean step."""

from dataclasses import replace

import pytest
from launch_phases import STAGES, launch_of
from simulated import a_launch, a_trial, a_worker
from summaries import trial as summary_of

from steptime.analysis.ablation.breakdown import break_down
from steptime.analysis.ablation.form import Overlap, Phase
from steptime.analysis.message_times import Fit, NetRow
from steptime.analysis.work import WorkRates
from steptime.catalog.manifest import load_manifests
from steptime.diagnosis.diagnosed_trial import DiagnosedTrial, Exchanged
from steptime.diagnosis.own_script import ScriptRule
from steptime.diagnosis.rules import RULES, counted_buckets, diagnosis_of
from steptime.results.json_form import NOT_MEASURED, Interval, IntervalOverLaunches

CLEAN = {"forward": 0.010, "backward": 0.020, "local": 0.0005, "exchange": 0.0005, "step": 0.0002}
COPIED = {**{name: added for name, added in CLEAN.items() if name != "step"}, "h2d": 0.020}
"""Stages up to the copy to a device, which the whole step holds."""
"""Stages of a step that computes nearly all the time, at what a usual core computes."""


def a_summary(trial, breakdown, noise=None, width=0.02):
    """A trial as a summary has it, with what the rules read of it."""
    found = summary_of(
        trial.framework, trial.strategy, workers=trial.workers, batch=trial.batch_per_worker, width=width
    )
    changes = {"id": trial.id, "breakdown": breakdown, "imbalance": breakdown and breakdown.imbalance}
    return found.model_copy(update={**changes, "noise": noise or {}})


def looked_at(  # noqa: PLR0913 - what a cause may be planted in
    stages=CLEAN, *, machine=None, noise=None, width=0.02, launch=None, around=None, **trial
):
    """A trial with made-up launches, on a machine with a core for each worker."""
    fields = {"framework": "pytorch", "strategy": "allreduce", "workers": 2, "workload": "lenet5", **trial}
    fields = {"input_shape": (1, 28, 28), "batch_per_worker": 4096, **fields}
    manifest = load_manifests()[fields["framework"]]
    options = manifest.tier_options("documented", fields["strategy"], fields.get("device", "cpu"))
    of = a_trial(**{**fields, "options": {**options, **trial.get("options", {})}})
    launches = [launch_of(seed, of.workers, stages, **(launch or {})) for seed in range(3)]
    breakdown = break_down(of, launches, [])
    summary = a_summary(of, breakdown, noise, width)
    machine = {"cores": of.workers * of.threads + of.servers, **(machine or {})}
    return DiagnosedTrial(of, summary, machine, manifest, **(around or {}))


def a_link(bytes_per_s, workers=2):
    """A row of the network benchmark."""
    fit = Fit(
        start_s=Interval(1e-4, None, None),
        latencies_per_step=NOT_MEASURED,
        bandwidth_bytes_per_s=Interval(bytes_per_s, None, None),
        worst_error=0.0,
        worst_bytes=1,
    )
    return NetRow.model_construct(workers=workers, fit=fit, volume=1.0)


def exchanging(seconds):
    """A step whose exchange takes so long."""
    return {**CLEAN, "exchange": seconds}


def on_gpu(stages=CLEAN, **changes):
    return looked_at({**stages, "h2d": 0.0005, "step": 0.0002}, device="cuda", **changes)


def with_overlap(at, communication_s):
    """The same with a known time of communication."""
    phase = Phase(value_s=communication_s, low_s=None, high_s=None, how="direct")
    overlap = Overlap(ratio=0.0, communication_s=phase, comm_hidden_s=phase)
    breakdown = at.breakdown.model_copy(update={"overlap": overlap})
    return replace(at, summary=at.summary.model_copy(update={"breakdown": breakdown}))


SERVED = {"framework": "mxnet", "strategy": "ps_sync", "servers": 1}
PHOTOS = {"framework": "mxnet", "strategy": "single", "workers": 1, "dataset": "photos", "loader": "native"}
PLANTED = {
    "exposed_communication": lambda: looked_at(exchanging(0.020)),
    "latency_bound": lambda: looked_at(
        exchanging(0.020), options={"bucket_mb": 0.01}, around={"exchanged": Exchanged(20, 20 * 2**14)}
    ),
    "bandwidth_bound": lambda: with_overlap(
        looked_at(exchanging(0.020), around={"exchanged": Exchanged(1, 2e7), "links": [a_link(1e9)]}), 0.020
    ),
    "server_saturation": lambda: looked_at(exchanging(0.020), **SERVED),
    "straggler": lambda: looked_at(launch={"slow": {1: 1.5}}),
    "transient_stragglers": lambda: looked_at(launch={"pauses": (0.2, 0.030), "blocks": 60}),
    "oversubscribed_cores": lambda: looked_at(threads=2, machine={"cores": 2}),
    "idle_devices": lambda: looked_at(machine={"cores": 8}),
    "input_bound": lambda: looked_at({**CLEAN, "step": 0.020}, **PHOTOS),
    "device_copies": lambda: looked_at({**COPIED, "step": CLEAN["step"]}, device="cuda"),
    "update_bound": lambda: looked_at({**CLEAN, "local": 0.020}),
    "small_batch": lambda: looked_at(batch_per_worker=2),
    "framework_overhead": lambda: looked_at(framework="mxnet", strategy="ps_sync", servers=1, batch_per_worker=2),
    "host_bound": lambda: on_gpu(noise={"gpu_busy_share": 1.09 / 10.3}),
    "precision_unused": on_gpu,
    "throttled": lambda: looked_at(noise={"cgroup_throttled_share": 0.2}),
    "memory_nearly_full": lambda: looked_at(noise={"memory_available_share": 0.01}),
    "noise": lambda: looked_at(noise={"foreign_cpu_cores": 1.5}, width=0.8),
}
"""By rule, a trial with its cause."""


def said_of(at):
    return {each.rule: each for each in diagnosis_of([at]).findings}


@pytest.mark.parametrize(
    ("cores", "change"), [(2, "put the servers on"), (3, "put the servers on"), (4, "share the w")]
)
def test_no_server_is_added_to_a_machine_without_a_core_for_it(cores, change):
    found = said_of(looked_at(exchanging(0.020), machine={"cores": cores}, **SERVED))
    assert found["server_saturation"].change.startswith(change)


def test_every_rule_has_a_planted_cause():
    assert set(PLANTED) == {rule.name for rule in RULES if not isinstance(rule, ScriptRule)}


@pytest.mark.parametrize("rule", PLANTED)
def test_a_rule_fires_on_its_planted_cause(rule):
    assert rule in said_of(PLANTED[rule]())


@pytest.mark.parametrize("framework", ["pytorch", "chainer", "tensorflow", "jax", "horovod_pytorch", "paddle"])
def test_every_rule_is_silent_on_a_clean_step(framework):
    found = diagnosis_of([looked_at(framework=framework)])

    assert (found.findings, found.unsettled) == ([], [])


@pytest.mark.parametrize("rule", [name for name in PLANTED if name != "noise"])
def test_a_rule_is_silent_where_its_cause_is_planted_in_noise(rule):
    at = PLANTED[rule]()
    wide = a_summary(at.trial, at.breakdown, {**at.summary.noise, "foreign_cpu_cores": 1.5}, width=0.8)

    assert list(said_of(replace(at, summary=wide))) == ["noise"]


@pytest.mark.parametrize("rule", PLANTED)
def test_a_predicted_gain_has_an_interval_around_it(rule):
    gain = said_of(PLANTED[rule]())[rule].gain

    assert gain.value is None or gain.low <= gain.value <= gain.high


def test_a_number_that_is_large_by_chance_is_unsettled():
    at = looked_at({**CLEAN, "local": 0.0052}, launch={"noise": 0.4, "blocks": 4})
    found = diagnosis_of([at])

    assert "update_bound" not in {each.rule for each in found.findings}
    assert "more launches would tell" in next(each.reason for each in found.unsettled if each.rule == "update_bound")


@pytest.mark.parametrize(
    ("rule", "change", "trial"),
    [
        ("framework_overhead", "options.jax.windows=hand_written", {"framework": "jax"}),
        ("framework_overhead", "options.mxnet.bulk_nodes=1000", {"framework": "mxnet"}),
        ("framework_overhead", "options.chainer.ideep=auto", {"framework": "chainer"}),
        ("small_batch", "batch_per_worker=256", {"framework": "pytorch"}),
    ],
    ids=["jax", "mxnet", "chainer", "batch"],
)
def test_what_a_belief_about_cores_leaves_open_a_trial_of_the_change_would_tell(rule, change, trial):
    at = looked_at(strategy="single", workers=1, batch_per_worker=64, **trial)
    reason = next(each.reason for each in diagnosis_of([at]).unsettled if each.rule == rule)

    assert reason.endswith(f"; a trial with {change} would tell")


def a_launch_with(trial, **facts):
    return a_launch(trial, workers=[replace(a_worker([0.1]), facts=facts)])


@pytest.mark.parametrize(
    ("facts", "pieces"),
    [({"buckets": 5}, 5.0), ({"buckets": 1}, 1.0), ({}, None), ({"buckets": "many"}, None)],
    ids=["five", "one", "not counted", "no number"],
)
def test_buckets_that_a_framework_counts_are_its_messages(facts, pieces):
    trial = a_trial(workload="lenet5", input_shape=(1, 28, 28))
    counted = counted_buckets(trial, [a_launch_with(trial, **facts)])

    assert counted == (None if pieces is None else Exchanged(pieces, 4 * 61_706))


@pytest.mark.parametrize(("pieces", "speaks"), [(9, True), (1, False)], ids=["nine", "one"])
def test_small_buckets_of_a_framework_that_counts_them_are_found(pieces, speaks):
    at = looked_at(
        exchanging(0.020), framework="paddle", options={"bucket_mb": 0.01}, around={"exchanged": Exchanged(pieces, 2e5)}
    )
    assert ("latency_bound" in said_of(at)) is speaks


@pytest.mark.parametrize(
    ("rule", "options"),
    [
        ("update_bound", {"update": "fused"}),
        ("exposed_communication", {"gradients": "batched_copy", "static_graph": True}),
    ],
)
def test_a_rule_never_advises_what_is_on(rule, options):
    at = PLANTED[rule]()
    on = at.trial.model_copy(update={"options": {**at.trial.options, **options}})
    found = said_of(replace(at, trial=on)).get(rule)

    assert found is None or found.overrides == []


def test_a_host_that_keeps_a_gpu_waiting_is_advised_to_replay_graphs():
    """Of gpt2_tiny on an H100: kernels took 1.09 of 10.3 ms, and steps that were replayed took 3.2 times less."""
    found = said_of(PLANTED["host_bound"]())["host_bound"]

    assert found.overrides == ["options.pytorch.compile=yes", "options.pytorch.compile_mode=cuda_graphs"]
    assert found.gain.low < 3.2 < found.gain.high


def test_a_step_that_is_replayed_is_advised_a_larger_batch():
    at = PLANTED["host_bound"]()
    on = {**at.trial.options, "compile": "yes", "compile_mode": "cuda_graphs"}
    found = said_of(replace(at, trial=at.trial.model_copy(update={"options": on})))["host_bound"]

    assert found.overrides == ["batch_per_worker=16384"]


@pytest.mark.parametrize(("busy", "input_s"), [(0.97, 0.0), (0.35, 0.050)])
def test_a_busy_gpu_and_one_that_waits_for_input_are_not_blamed_on_the_host(busy, input_s):
    stages = {**COPIED, "h2d": 0.0005, "step": input_s}
    at = looked_at(stages, device="cuda", noise={"gpu_busy_share": busy}, **PHOTOS)

    assert "host_bound" not in said_of(at)


def test_an_option_that_somebody_chose_is_left_alone():
    at = PLANTED["update_bound"]()
    chosen = at.trial.model_copy(update={"options": {**at.trial.options, "update": "foreach"}})

    assert "update_bound" not in said_of(replace(at, trial=chosen))


@pytest.mark.parametrize("rule", ["oversubscribed_cores", "idle_devices"])
def test_nothing_follows_from_a_count_of_cores_that_others_use(rule):
    at = PLANTED[rule]()
    busy = at.summary.model_copy(update={"noise": {"foreign_cpu_cores": 1.5}})
    found = diagnosis_of([replace(at, summary=busy)])

    assert rule not in {each.rule for each in found.findings}
    assert "other programs kept 1.5 cores busy" in next(each.reason for each in found.unsettled if each.rule == rule)


@pytest.mark.parametrize("workers", [2, 4])
def test_a_step_without_its_straggler_takes_as_long_as_the_others(workers):
    """Worker 1 computes half as long again, so that a step without it is 1.5 times as quick, however many wait."""
    found = said_of(looked_at(launch={"slow": {1: 1.5}}, workers=workers))["straggler"].rule_gain
    assert 1.35 < found.high < 1.55


def test_a_straggler_is_named():
    assert "worker 1" in said_of(PLANTED["straggler"]())["straggler"].claim


def test_a_larger_batch_gains_at_most_its_factor():
    gain = said_of(PLANTED["small_batch"]())["small_batch"].rule_gain

    assert 1.0 < gain.value < gain.high <= 4.0


@pytest.mark.parametrize("name", ["update_bound", "device_copies", "idle_devices"])
def test_a_change_of_which_only_its_place_is_known_may_gain_nothing(name):
    gain = said_of(PLANTED[name]())[name].gain
    assert gain.low < 1.0 < gain.value < gain.high


def with_peak(at, flop_per_s, source="measured"):
    """The same with what its threads multiply per second at most."""
    work = WorkRates(
        tokens_per_s=IntervalOverLaunches(None),
        flop_per_sample=None,
        flop_per_s_per_device=IntervalOverLaunches(None),
        peak_flop_per_s=Interval(flop_per_s, None, None),
        peak_source=source,
        mfu=NOT_MEASURED,
    )
    return replace(at, summary=at.summary.model_copy(update={"work": work}))


@pytest.mark.parametrize("threads", [1, 4])
def test_arithmetic_takes_at_least_what_the_measured_peak_of_the_threads_leaves(threads):
    at = looked_at(threads=threads)
    least, most = at.computing_s
    for rate in (2e10, 2.4e11):
        assert with_peak(at, rate).computing_s == pytest.approx((least * 6e10 * threads / rate, most))


def test_a_peak_that_was_not_measured_here_changes_nothing():
    at = looked_at()
    assert with_peak(at, 1e12, "data sheet").computing_s == at.computing_s


def test_a_quicker_thread_leaves_more_of_a_step_that_does_not_grow_with_the_batch():
    at = PLANTED["small_batch"]()
    believed, measured = (said_of(one)["small_batch"].gain for one in (at, with_peak(at, 2.4e11)))
    assert measured.high >= believed.high


def test_stages_of_a_clean_step_are_those_of_launches():
    assert CLEAN.keys() == STAGES.keys()
