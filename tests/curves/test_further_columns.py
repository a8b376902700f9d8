"""Columns of a table about points, their times, and devices that split a layer: what each changes in a forecast."""

import json
from dataclasses import astuple, replace

import numpy as np
import pytest
from tables import COLUMNS, row, write

from steptime.curves.curve import EvidenceError, Point, error_of_mean
from steptime.curves.facts import facts_of
from steptime.curves.input_ceiling import input_path
from steptime.curves.posterior import Sampling, predict, predict_curve
from steptime.curves.shape import INDEX, expert_priors, joint_prior, relative_times
from steptime.curves.table import read_curves, read_own_curves
from steptime.scaling.forecast import forecast

FURTHER = (
    "parameters", "active_parameters", "tokens_per_sample", "tensor_parallel", "input_samples_per_s", "time_includes",
    "repetitions", "sd_percent",
)  # fmt: skip
FEW = Sampling(log_samples=11)
FLAT = {1: 0.2, 2: 0.2, 4: 0.2, 8: 0.2}
MIXED = {
    "workload": "other", "accelerator": "H100", "precision": "bf16", "batch_per_worker": "4",
    "parameters": "47000000000", "active_parameters": "13000000000", "tokens_per_sample": "4096",
    "tensor_parallel": "8",
}  # fmt: skip
"""A mixture of experts, of which eight devices split each layer."""


def of(folder, seconds=FLAT, own=None, **columns):
    """Return a curve with further columns; ``own`` has columns of single numbers of workers."""
    rows = [row(count, step, **columns, **(own or {}).get(count, {})) for count, step in seconds.items()]
    return read_curves(write(folder, rows, (*COLUMNS, *FURTHER)))[0]


@pytest.mark.parametrize("repetitions", [2, 3, 5, 30])
def test_the_error_of_a_mean_is_as_wide_as_student_s_interval(repetitions):
    quantile = {2: 6.314, 3: 2.920, 5: 2.132, 30: 1.699}[repetitions]
    assert error_of_mean(0.1, repetitions) * 1.645 == pytest.approx(0.1 / repetitions**0.5 * quantile, rel=1e-3)


def test_a_point_whose_runs_differ_much_pulls_a_forecast_less(tmp_path):
    """Its step is 30 % too long at 8 workers, the most that were measured."""
    wrong = {**FLAT, 8: 0.26}
    told = of(tmp_path, wrong, {8: {"repetitions": "5", "sd_percent": "40"}})
    untold, told = (predict(each, [(16, 0)], expert_priors(), FEW)[0] for each in (of(tmp_path, wrong), told))
    assert told.value < untold.value
    assert told.low <= 0.205


def test_a_deviation_of_runs_that_hardly_differ_changes_nothing(tmp_path):
    told = of(tmp_path, own={count: {"repetitions": "5", "sd_percent": "0.1"} for count in FLAT})
    untold, told = (predict(each, [(16, 0)], expert_priors(), FEW)[0] for each in (of(tmp_path), told))
    assert astuple(told) == pytest.approx(astuple(untold), rel=2e-3)


def test_rows_of_one_number_of_workers_show_how_far_runs_differ(tmp_path):
    steps = [(1, 0.2), (2, 0.2), (4, 0.16), (4, 0.2), (4, 0.25)]
    (found,) = read_own_curves(write(tmp_path, [row(*each) for each in steps]))
    assert [point.error for point in found.fit[:2]] == [0.0, 0.0]
    deviation = float(np.std(np.log([0.16, 0.2, 0.25]), ddof=1))
    assert found.fit[2].error == pytest.approx(error_of_mean(deviation, 3))


@pytest.mark.parametrize(
    ("included", "read"),
    [("", True), ("input", True), ("input evaluation", True), ("none", False), ("checkpoint", False)],
)
def test_input_that_is_not_in_the_time_bounds_nothing(tmp_path, included, read):
    assert input_path(of(tmp_path, data="real", time_includes=included)).read is read


@pytest.mark.parametrize("included", ["checkpoint", "evaluation", "input+checkpoint"])
@pytest.mark.parametrize("share", [0.01, 0.03, 0.1])
def test_what_an_epoch_has_once_grows_with_workers(tmp_path, included, share):
    """Each worker keeps its batch, so that eight times the workers have an eighth of the steps in an epoch."""
    seconds = {count: 0.2 * (1 - share) + 0.2 * share * count for count in (1, 2, 4)}
    told = of(tmp_path, seconds, time_includes=included)
    (found,) = predict(told, [(32, 0)], expert_priors(), FEW)
    assert found.low <= 0.2 * (1 - share) + 0.2 * share * 32 <= found.high


def test_what_an_epoch_has_once_does_not_grow_where_workers_share_a_batch(tmp_path):
    rows = [
        {"workers": count, "step_time_s": 1.6 / count, "batch_per_worker": 64 // count, "time_includes": "checkpoint"}
        for count in (1, 2, 4)
    ]
    (one,) = read_own_curves(write(tmp_path, rows, tuple(rows[0])))
    assert one.setup.one_batch
    assert not one.setup.has_work_once_an_epoch


def inside_host(one, workers=8):
    """Return what an exchange within a host adds to a step of a second, nothing else being in the way."""
    values = joint_prior(expert_priors()).mean[None].copy()
    for name in ("jump", "contention", "crowding"):
        values[0, INDEX[name]] = np.log(1e-12)
    values[0, INDEX["bus"]] = values[0, INDEX["saturation"]] = -30.0
    return float(relative_times(one, np.array([float(workers)]), np.array([np.nan]), 1.0, values)[0, 0]) - 1.0


@pytest.mark.parametrize("split", [2, 4, 8])
def test_devices_that_split_a_layer_divide_what_workers_exchange_inside_a_host(tmp_path, split):
    whole, parts = (inside_host(of(tmp_path, tensor_parallel=count)) for count in ("1", str(split)))
    assert parts == pytest.approx(whole / split, rel=1e-6)


def test_devices_that_split_a_layer_send_fewer_buckets_each(tmp_path):
    whole, parts = (
        facts_of(of(tmp_path, workload="other", parameters="1000000000", tensor_parallel=count).setup)
        for count in ("1", "8")
    )
    assert (whole.messages, parts.messages) == (125, 16)
    assert whole.gradient_bytes == parts.gradient_bytes


def test_active_values_make_the_arithmetic_and_all_of_them_the_bytes(tmp_path):
    one = of(tmp_path, {1: 4.0, 2: 4.1, 4: 4.2}, **MIXED)
    assert facts_of(one.setup).gradient_bytes == 4 * 47e9
    (found,) = forecast([one], [8])
    step, work = found.points[0].step_s, found.points[0].work
    assert work.tokens_per_s.value == pytest.approx(8 * 4 * 4096 / step.value)
    of_a_device = 6 * 13e9 * 4 * 4096 / 8
    assert work.flop_per_s_per_device.value == pytest.approx(of_a_device / step.value)
    assert work.mfu.low == pytest.approx(of_a_device / step.high / 989.5e12)


def test_a_forecast_without_tokens_has_no_work(tmp_path):
    (found,) = forecast([of(tmp_path)], [16])
    (point,) = json.loads(json.dumps(found.to_json()))["predictions"]
    assert point["tokens_per_s"] == point["mfu"] == {"value": None, "low": None, "high": None}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"sd_percent": "3", "repetitions": "1"}, r"line 2: sd_percent is 3, but repetitions is 1.*leave one of them"),
        ({"sd_percent": "-1"}, r"line 2: sd_percent is -1; it must be at least 0"),
        ({"sd_percent": "120"}, r"line 2: sd_percent is 120; runs that differ by as much show no step time"),
        ({"repetitions": "0"}, r"line 2: repetitions is 0; it must be at least 1"),
        ({"time_includes": "validation"}, r"unknown time_includes 'validation'.*evaluation"),
        ({"time_includes": "none input"}, r"time_includes is none input; write none alone"),
        (
            {"time_includes": "none", "data": "real", "input_samples_per_s": "90000"},
            r"input_samples_per_s is 90000, but time_includes has no input",
        ),
        ({"tensor_parallel": "0"}, r"tensor_parallel is 0; it must be at least 1"),
        (
            {"workload": "other", "parameters": "1000", "active_parameters": "2000"},
            r"active_parameters is 2,000, more than the 1,000 of parameters",
        ),
        (
            {"active_parameters": "99000000"},
            r"active_parameters is 99,000,000, more than the 25,\d+,\d+ of the workload",
        ),
        (
            {**MIXED, "tensor_parallel": "1"},
            r"tokens_per_sample is 4,096, with which .* times what an H100 has at bf16",
        ),
    ],
)
def test_a_column_that_contradicts_its_row_is_named(tmp_path, columns, message):
    with pytest.raises(EvidenceError, match=message):
        of(tmp_path, **columns)


def test_rows_of_a_curve_have_one_degree_of_tensor_parallelism(tmp_path):
    with pytest.raises(EvidenceError, match="its rows differ in tensor_parallel"):
        of(tmp_path, own={4: {"tensor_parallel": "2"}})


def test_a_shortest_step_that_is_uncertain_bounds_less(tmp_path):
    one = of(tmp_path, {1: 0.3, 2: 0.3, 4: 0.3})
    uncertain = replace(one, fit=tuple(replace(point, error=0.2) for point in one.fit))
    sure, unsure = (predict_curve(each, [(8, 0)])[0] for each in (one, uncertain))
    assert unsure.low < sure.low
    assert Point(1, None, 0.3).error == 0.0
