"""Strong scaling: forecasts of workers that share one batch, from synthetic curves and tables."""

import numpy as np
import pytest

from steptime.curves.curve import EvidenceError, Point, ScalingCurve, Setup
from steptime.curves.table import read_own_curves
from steptime.errors import UsageError
from steptime.scaling.forecast import forecast
from steptime.scaling.strong import predict_strong

WHOLE = 64
COUNTS = (1, 2, 4, 8, 16)


def made(fixed, overhead, fitted, per_host=16, batch=WHOLE):
    """A curve whose computing shrinks but for a fixed share; each doubling of workers adds an overhead."""
    setup = Setup("own", "", "allreduce", "", "", "", "", None, per_host, "", "", None, None)
    setup = Setup(**{**vars(setup), "one_batch": True, "global_batch": batch})
    points = [Point(w, None, 0.1 * (fixed + (1 - fixed) / w) * (1 + overhead * np.log2(w))) for w in COUNTS]
    return ScalingCurve("made", setup, tuple(points[:fitted]), tuple(points[fitted:]))


@pytest.mark.parametrize("fixed", [0.0, 0.05, 0.2, 0.5])
@pytest.mark.parametrize("overhead", [0.0, 0.03])
def test_steps_of_twice_and_four_times_the_workers_lie_in_their_intervals(fixed, overhead):
    curve = made(fixed, overhead, 3)
    for point in forecast([curve], [])[0].held_out:
        assert point.low * 0.98 <= point.measured <= point.high * 1.02
        assert point.ape < 15


def test_a_share_that_does_not_shrink_limits_the_speed_up():
    (shrinking,), (fixed,) = (predict_strong(made(share, 0.0, 3), [(16, None)]) for share in (0.0, 0.4))
    assert shrinking.value < 0.6 * fixed.value


def test_throughput_efficiency_and_knees_are_those_of_one_batch():
    [found] = forecast([made(0.1, 0.0, 3)], [8, 16])
    for point in found.points:
        assert point.throughput == pytest.approx(WHOLE / point.step_s.value)
        assert point.efficiency == pytest.approx(0.1 / (point.workers * point.step_s.value))
    by_limit = {knee.limit: knee.workers.value for knee in found.knees if knee.measure == "efficiency"}
    assert by_limit[0.8] == pytest.approx(4, abs=1)  # 1 / (0.1 w + 0.9) is 0.8 at 3.5
    assert all(knee.searched_to <= WHOLE for knee in found.knees)


@pytest.mark.parametrize("overhead", [0.0, 0.03])
def test_workers_that_share_a_batch_are_compared_by_their_steps(overhead):
    [found] = forecast([made(0.1, overhead, 4)], [8, 16])
    [ratio] = found.ratios
    eight, sixteen = (point.step_s.value for point in found.points)
    assert ratio.time.value == pytest.approx(sixteen / eight)
    assert ratio.worker_time.low == pytest.approx(2 * ratio.time.low)
    assert ratio.time.low <= ratio.time.value <= ratio.time.high


def test_one_forecast_number_of_workers_is_compared_with_none():
    assert forecast([made(0.1, 0.0, 3)], [8])[0].ratios == ()


def test_more_workers_than_samples_are_refused():
    with pytest.raises(UsageError, match="128 workers cannot share a batch of 64 samples"):
        forecast([made(0.1, 0.0, 3)], [128])


def table(tmp_path, rows, header="workers,step_time_s,batch_per_worker"):
    path = tmp_path / "own.csv"
    path.write_text(f"{header}\n{rows}\n")
    return read_own_curves(path)


@pytest.mark.parametrize(
    ("rows", "whole"),
    [
        ("1,0.2,64\n2,0.11,32\n4,0.06,16", 64),
        ("2,0.2,50\n3,0.14,33\n4,0.11,25", 100),  # of 100 samples, rounded down
        ("8,0.2,8\n16,0.11,4\n64,0.06,1", 64),
    ],
)
def test_rows_whose_batches_make_one_are_strong_scaling(tmp_path, rows, whole):
    [curve] = table(tmp_path, rows)
    assert (curve.setup.one_batch, curve.setup.global_batch) == (True, whole)


def test_rows_of_one_batch_each_stay_weak_scaling(tmp_path):
    [curve] = table(tmp_path, "1,0.2,64\n2,0.21,64\n4,0.22,64")
    assert (curve.setup.one_batch, curve.setup.batch_per_worker) == (False, 64)


@pytest.mark.parametrize("rows", ["1,0.2,64\n2,0.11,48\n4,0.06,16", "1,0.2,64\n2,0.11,32\n4,0.06,"])
def test_batches_that_make_no_common_one_are_refused(tmp_path, rows):
    with pytest.raises(EvidenceError, match="batch_per_worker"):
        table(tmp_path, rows)


def test_throughput_with_one_batch_for_all_is_read_too(tmp_path):
    header = "workers,throughput_samples_per_s,batch_per_worker"
    [curve] = table(tmp_path, "1,320,64\n2,600,32\n4,1100,16", header)
    assert [point.step_time for point in curve.fit] == pytest.approx([64 / 320, 64 / 600, 64 / 1100])
    assert curve.setup.one_batch


def test_steps_that_become_shorter_ask_for_batches(tmp_path):
    with pytest.raises(EvidenceError, match="state the batch_per_worker of each row"):
        table(tmp_path, "1,0.2\n2,0.11\n4,0.06", "workers,step_time_s")
