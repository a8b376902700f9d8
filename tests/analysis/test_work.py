"""Tokens, FLOP/s and MFU: known rates, known peaks, and null where a denominator is missing."""

from dataclasses import fields, replace

import numpy as np
import pytest
from simulated import a_launch, a_store, a_trial, a_worker

from steptime.analysis.resources import COUNTER_S, resources_of
from steptime.analysis.summary import summarise
from steptime.analysis.work import work_of
from steptime.catalog.accelerators import data_sheet_flop_per_s
from steptime.catalog.workloads.costs import costs
from steptime.catalog.workloads.table import build_workload
from steptime.document.number_format import UNKNOWN, scaled
from steptime.exports.export import trials_table
from steptime.report.ranking import resource_section, work_section
from steptime.report.trial_names import Names
from steptime.results.gpus import SAMPLED_EVERY_S, GpuSamples, GpuState
from steptime.results.json_form import IntervalOverLaunches
from steptime.results.peaks import PEAKS, Peak, StoredPeaks

RATE = IntervalOverLaunches(100.0, 90.0, 110.0, 80.0, 120.0)
NO_PEAKS = StoredPeaks()


def peak(*rounds, device="cpu", precision="fp32", threads=1):
    return Peak(
        device=device,
        precision=precision,
        threads=threads,
        library="numpy",
        version="2",
        size=1024,
        flop_per_s=list(rounds),
    )


def on_gpu(**changes):
    return a_trial(device="cuda", **changes)


def test_a_step_is_three_times_the_products_of_the_forward_pass():
    workload = build_workload("lenet5")
    assert costs(workload).model_flops == 3 * 2 * costs(workload).multiply_accumulates


def test_gpt2_computes_about_six_flops_for_each_weight_and_token():
    """Beside attention, 12 layers x 2 x 2 x context x width, by J. Kaplan et al., and with the head's."""
    workload = build_workload("gpt2")
    (tokens,) = workload.input_shape
    products = 124_439_808 - tokens * 768  # the table of positions multiplies nothing
    attention = 12 * 2 * tokens * 768
    assert costs(workload).model_flops == pytest.approx(6 * tokens * (products + attention), rel=0.01)


def test_every_device_has_its_part_of_the_work():
    found = work_of(a_trial(workers=4), RATE, {}, NO_PEAKS)
    assert found.flop_per_sample is not None
    assert found.flop_per_s_per_device.value == pytest.approx(25.0 * found.flop_per_sample)


def test_only_workloads_of_tokens_have_tokens():
    assert work_of(a_trial(), RATE, {}, NO_PEAKS).tokens_per_s.value is None
    found = work_of(a_trial(workload="gpt2_tiny", input_shape=(64,)), RATE, {}, NO_PEAKS)
    assert (found.tokens_per_s.value, found.tokens_per_s.low) == (6400.0, 5760.0)


def test_no_peak_is_no_mfu():
    found = work_of(a_trial(), RATE, {}, NO_PEAKS)
    assert found.peak_source is None
    assert found.mfu.value is None


def test_a_measured_peak_comes_before_the_data_sheet_and_its_rounds_widen_the_interval():
    machine = {"gpus": [{"name": "NVIDIA A100-SXM4-40GB"}]}
    trial = on_gpu(precision="bf16")
    sheet = work_of(trial, RATE, machine, NO_PEAKS)
    assert (sheet.peak_source, sheet.peak_flop_per_s.value) == ("data sheet", 312e12)
    rounds = peak(200e12, 250e12, 300e12, device="cuda", precision="bf16", threads=0)
    measured = work_of(trial, RATE, machine, StoredPeaks(peaks=[rounds]))
    assert (measured.peak_source, measured.peak_flop_per_s.value) == ("measured", 250e12)
    flops = measured.flop_per_sample
    assert measured.mfu.value == pytest.approx(100.0 * flops / 250e12)
    assert measured.mfu.low == pytest.approx(90.0 * flops / 300e12)
    assert measured.mfu.high == pytest.approx(110.0 * flops / 200e12)


@pytest.mark.parametrize("other", [{"threads": 2}, {"precision": "bf16"}, {"device": "cuda", "threads": 0}])
def test_a_peak_of_another_setting_is_none_of_the_trial(other):
    assert work_of(a_trial(), RATE, {}, StoredPeaks(peaks=[peak(1e10, **other)])).mfu.value is None


def test_devices_that_differ_have_no_common_sheet():
    machine = {"gpus": [{"name": "NVIDIA A100-SXM4-40GB"}, {"name": "Tesla T4"}]}
    assert work_of(on_gpu(), RATE, machine, NO_PEAKS).mfu.value is None


@pytest.mark.parametrize(
    ("name", "precision", "flop_per_s"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16", 989.5e12),
        ("NVIDIA H100 PCIe", "bf16", 756e12),
        ("Tesla V100-SXM2-16GB", "fp16", 125e12),
        ("Tesla V100-SXM2-16GB", "bf16", None),
        ("NVIDIA L40S", "tf32", 183e12),
        ("NVIDIA L4", "fp32", 30.3e12),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "bf16", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "fp32", None),
        ("Tensor Machine 9000", "fp32", None),
    ],
)
def test_names_as_drivers_give_them_find_their_sheet(name, precision, flop_per_s):
    assert data_sheet_flop_per_s(name, precision) == flop_per_s


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "0.500 FLOP/s"), (1.5e3, "1.50 kFLOP/s"), (9.61e9, "9.61 GFLOP/s"), (1.2e15, "1.20 PFLOP/s")],
)
def test_a_rate_has_the_prefix_that_suits_it(value, text):
    assert scaled(IntervalOverLaunches(value), "FLOP/s").text == text


def launches_of(trial, memory, watts=(None, None), samples=41):
    """Return launches with the most memory of each worker, and the power of their devices."""
    found = []
    for number, (most, power) in enumerate(zip(memory, watts, strict=True)):
        workers = [a_worker([0.1, 0.2], rank, host=host) for rank, (host, _) in enumerate(most)]
        workers = [
            replace(each, usage={"max_rss_bytes": value}) for each, (_, value) in zip(workers, most, strict=True)
        ]
        noise = {"gpu_counted_w": power, "gpu_memory_used_bytes": None if power is None else 1e9 + number}
        noise["gpu_samples"] = float(samples)
        found.append(a_launch(trial, number, workers=workers, noise=noise))
    return found


def test_memory_is_the_most_of_any_launch_of_a_worker_and_summed_over_a_host():
    memory = [[("a", 10.0), ("a", 20.0), ("b", 25.0)], [("a", 12.0), ("a", 11.0), ("b", 5.0)]]
    found = resources_of(a_trial(workers=3), launches_of(a_trial(workers=3), memory), RATE)
    assert (found.worker_memory_bytes, found.host_memory_bytes, found.device_memory_bytes) == (25.0, 30.0, None)
    assert found.joules_per_sample.value is None
    assert "processors" in found.not_read


def test_joules_are_the_counted_power_over_throughput():
    memory = [[("a", 10.0)]] * 2
    found = resources_of(on_gpu(), launches_of(on_gpu(), memory, (300.0, 400.0)), RATE)
    joules = found.joules_per_sample
    share = COUNTER_S / 10.0  # 41 looks in 10 s
    assert joules.value == 3.5
    assert joules.low == pytest.approx(300.0 * (1 - share) / 110.0)
    assert joules.high == pytest.approx(400.0 * (1 + share) / 90.0)
    assert (found.device_memory_bytes, found.not_read) == (1e9 + 1, None)


@pytest.mark.parametrize("samples", [1, 2, 5])
def test_a_launch_that_is_short_beside_the_steps_of_the_counter_has_no_joules(samples):
    found = resources_of(on_gpu(), launches_of(on_gpu(), [[("a", 10.0)]] * 2, (300.0, 400.0), samples), RATE)
    assert found.joules_per_sample.value is None
    assert found.not_read == (
        "the counter of energy moves every 0.121 s only: it takes 1.21 s of timed steps (seconds_per_launch)"
    )


@pytest.mark.parametrize("seconds", [1.5, 2.0, 5.0])
@pytest.mark.parametrize("begin", [0.0, 0.03, 0.09])
def test_the_joules_of_a_counter_that_moves_in_steps_hold_the_true_ones(seconds, begin):
    every, watts = 0.1, 500.0

    def state(at_s: float) -> list[GpuState]:
        unknown = dict.fromkeys([each.name for each in fields(GpuState)])
        return [GpuState(**{**unknown, "energy_j": watts * (at_s // every) * every})]

    samples = GpuSamples(states=list)
    looks = int(seconds / SAMPLED_EVERY_S) + 1
    samples._found = [(begin + k * SAMPLED_EVERY_S, state(begin + k * SAMPLED_EVERY_S)) for k in range(looks)]
    noise = samples.noise(begin, begin + seconds, 1)
    launch = a_launch(on_gpu(), 0, workers=[a_worker([0.1, 0.2], 0)], noise=noise)
    joules = resources_of(on_gpu(), [launch], RATE).joules_per_sample
    assert joules.low * RATE.high <= watts <= joules.high * RATE.low


@pytest.mark.parametrize(
    ("hosts", "watts", "why"), [(2, 300.0, "the GPUs of other hosts"), (1, None, "the driver of the GPUs")]
)
def test_energy_that_was_not_counted_is_null_with_the_reason(hosts, watts, why):
    trial = on_gpu(hosts=hosts)
    found = resources_of(trial, launches_of(trial, [[("a", 10.0)]] * 2, (watts, watts)), RATE)
    assert found.joules_per_sample.value is None
    assert found.not_read.startswith(why)


def test_records_without_memory_are_null_and_not_shown(tmp_path):
    store = a_store(tmp_path / "results")
    store.add_trial(a_trial())
    store.append(a_launch(a_trial(), 0))
    found = summarise(store).trials
    assert found[0].resources.worker_memory_bytes is None
    assert resource_section(found, Names(found)) is None


def test_memory_and_energy_are_in_the_report_and_in_the_export(tmp_path):
    store = a_store(tmp_path / "results")
    store.add_trial(a_trial())
    for launch in launches_of(a_trial(), [[("a", 2.0**30)]] * 2):
        store.append(launch)
    summary = summarise(store)
    (row,) = resource_section(summary.trials, Names(summary.trials)).parts[0].rows
    assert [cell.text for cell in row.cells] == ["1 GiB", "1 GiB", UNKNOWN, UNKNOWN]
    (exported,) = trials_table(summary).to_dicts()
    assert (exported["worker_memory_bytes"], exported["joules_per_sample_value"]) == (2.0**30, None)


def test_the_report_shows_mfu_beside_the_peak_that_it_is_relative_to(tmp_path):
    store = a_store(tmp_path / "results")
    trial = a_trial()
    store.add_trial(trial)
    for number in range(3):
        ends = np.cumsum(np.full(60, 0.1)).tolist()
        store.append(a_launch(trial, number, workers=[a_worker(ends)]))
    without = summarise(store)
    assert work_section(without.trials, Names(without.trials)) is None
    store.put(PEAKS, StoredPeaks(peaks=[peak(9e9, 1e10, threads=trial.threads)]).model_dump(mode="json"))
    found = summarise(store)
    section = work_section(found.trials, Names(found.trials))
    (row,) = section.parts[0].rows
    assert "MFU" in row.sentence
    assert "9.50 GFLOP/s, measured" in row.sentence
