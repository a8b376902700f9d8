"""Curves that bend since a store gives no more samples: bounds, stated columns, and what tables leave open."""

import numpy as np
import pytest
from tables import COLUMNS, curve, row, write

from steptime.curves.curve import EvidenceError
from steptime.curves.input_ceiling import STORES, input_path
from steptime.curves.posterior import Sampling, predict
from steptime.curves.shape import expert_priors
from steptime.curves.table import read_curves, read_own_curves
from steptime.scaling.forecast import forecast

STEP_S = 0.2
"""Of computing, in which a worker needs 64 samples."""
FEW = Sampling(log_samples=11)


def under_ceiling(rate, most=32):
    """Return {workers: seconds} of steps that take 0.2 s, or as long as a store of that rate lets them."""
    return {count: max(STEP_S, 64 * count / rate) for count in (8, 16, 32, 64, 128) if count <= most}


def seen(folder, seconds, **columns):
    """Return a curve with further columns."""
    rows = [row(count, step, **columns) for count, step in seconds.items()]
    return read_curves(write(folder, rows, (*COLUMNS, "input_store", "input_samples_per_s")))[0]


@pytest.mark.parametrize("rate", [6000, 9000, 14000])
def test_a_curve_that_has_bent_goes_on_along_its_ceiling(tmp_path, rate):
    """Rates that bend it at 16, 32 and 64 workers; 128 are asked for."""
    one = seen(tmp_path, under_ceiling(rate, 64), data="real")
    (found,) = predict(one, [(128, 0)], expert_priors(), FEW)
    assert found.low <= 64 * 128 / rate <= found.high


@pytest.mark.parametrize("rate", [12000, 20000, 30000])
def test_a_curve_that_has_not_bent_may_still_bend(tmp_path, rate):
    """Its 8 and 16 workers have one step time; the store of each rate is busy at 64 or at 128 workers."""
    one = seen(tmp_path, under_ceiling(100000, 16), data="real")
    (found,) = predict(one, [(128, 0)], expert_priors(), FEW)
    assert found.high >= 0.6 * max(STEP_S, 64 * 128 / rate)


def test_synthetic_samples_have_no_ceiling(tmp_path):
    flat = under_ceiling(1e9, 16)
    real, synthetic = (
        predict(seen(tmp_path, flat, data=data), [(128, 0)], expert_priors(), FEW)[0] for data in ("real", "synthetic")
    )
    assert synthetic.high < real.high


@pytest.mark.parametrize(
    ("columns", "shared"),
    [
        ({"data": "real"}, True),
        ({"data": "unknown"}, True),
        ({"data": "synthetic"}, False),
        ({"data": "real", "workload": "bert_large"}, False),
        *(({"data": "real", "input_store": store}, store == "shared") for store in STORES),
    ],
)
def test_where_samples_lie_decides_whether_hosts_share_a_store(tmp_path, columns, shared):
    assert input_path(seen(tmp_path, {8: 0.2, 16: 0.2}, **columns)).shared is shared


@pytest.mark.parametrize("rate", [6000, 9000, 14000])
def test_no_forecast_is_faster_than_a_stated_store(tmp_path, rate):
    one = seen(tmp_path, under_ceiling(rate, 16), data="real", input_samples_per_s=str(rate))
    for found, count in zip(predict(one, [(64, 0), (128, 0)], expert_priors(), FEW), (64, 128), strict=True):
        assert 1.0 <= found.low / (64 * count / rate) <= 1.05
        assert found.high > found.low


@pytest.mark.costly
def test_a_stated_store_bounds_workers_that_share_a_batch(tmp_path):
    """4096 samples take 0.4 s from a store of 10240 a second, however many workers read them."""
    computing = {1: 3.2, 2: 1.6, 4: 0.8}
    rows = [
        {"workers": count, "step_time_s": step, "batch_per_worker": 4096 // count, "input_samples_per_s": 10240}
        for count, step in computing.items()
    ]
    (one,) = read_own_curves(write(tmp_path, rows, tuple(rows[0])))
    (found,) = forecast([one], [32])
    assert found.points[0].step_s.value == pytest.approx(0.4, rel=0.25)


def test_no_forecast_is_faster_than_the_shortest_measured_step(tmp_path):
    one = curve(tmp_path, {8: 0.5, 16: 0.5, 32: 0.9})
    assert all(found.low > 0.969 * 0.5 for found in predict(one, [(64, 0), (512, 0)], expert_priors(), FEW))


def test_the_rate_of_the_store_is_asked_for_where_it_is_open(tmp_path):
    own = read_own_curves(write(tmp_path, [row(8, 0.2, data="real"), row(16, 0.2, data="real")]))
    (found,) = forecast(own, [128])
    assert "input_samples_per_s" in {empty.column for empty in found.empty_columns}
    stated = [row(count, 0.2, data="real", input_samples_per_s="90000") for count in (8, 16)]
    (found,) = forecast(read_own_curves(write(tmp_path, stated, (*COLUMNS, "input_samples_per_s"))), [128])
    assert "input_samples_per_s" not in {empty.column for empty in found.empty_columns}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"input_samples_per_s": "1000"}, "input_samples_per_s is 1000, but 8 workers read 2,560 samples/s"),
        ({"input_samples_per_s": "0"}, "input_samples_per_s is 0; it must be more than 0"),
        ({"input_samples_per_s": "9000", "data": "synthetic"}, "but data is synthetic, which no store gives"),
        ({"input_store": "lustre"}, "input_store"),
    ],
)
def test_a_store_that_contradicts_the_table_is_refused(tmp_path, columns, message):
    with pytest.raises(EvidenceError, match=message):
        seen(tmp_path, {8: 0.2, 16: 0.2}, **{"data": "real", **columns})


def test_an_input_that_is_never_late_changes_no_step(tmp_path):
    """Of a store that gives a thousand times what is asked for."""
    flat = under_ceiling(1e9, 32)
    with_store = predict(seen(tmp_path, flat, data="real", input_samples_per_s="1e7"), [(64, 0)], expert_priors(), FEW)[
        0
    ]
    assert np.log(with_store.value / STEP_S) == pytest.approx(0.0, abs=0.05)
