"""Forecasts of a user's own scaling curve, from a table with few columns."""

import numpy as np
import pytest

from steptime.curves.curve import EvidenceError
from steptime.curves.table import read_own_curves
from steptime.scaling.forecast import forecast

ROWS = "1,0.200,fit\n2,0.204,fit\n4,0.210,fit\n8,0.220,holdout\n"


def table(tmp_path, text):
    path = tmp_path / "own.csv"
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    path = table(tmp_path_factory.mktemp("own"), "workers,step_time_s,role\n" + ROWS)
    (one,) = forecast(read_own_curves(path), [4, 16, 64])
    return one


def test_a_table_of_two_columns_is_a_curve_named_after_its_file(found):
    assert found.curve.name == "own"


def test_held_out_rows_take_no_part_in_the_forecast(tmp_path, found):
    other = table(tmp_path, "workers,step_time_s,role\n" + ROWS.replace("0.220", "0.5"))
    assert forecast(read_own_curves(other), [4, 16, 64])[0].points == found.points


def test_held_out_rows_are_scored(found):
    (held,) = found.held_out
    assert (held.workers, held.measured) == (8, 0.22)
    assert found.to_json()["score"]["n"] == 1


def test_extrapolation_is_the_ratio_to_the_most_workers_fitted(found):
    assert [point.extrapolation for point in found.points] == [1.0, 4.0, 16.0]


def test_intervals_widen_with_extrapolation(found):
    widths = [np.log(point.step_s.high / point.step_s.low) for point in found.points]
    assert widths == sorted(widths)


def test_more_workers_are_compared_with_fewer_for_the_same_samples(found):
    assert [ratio.workers for ratio in found.ratios] == [(4, 16), (16, 64)]
    steps = {point.workers: point.step_s for point in found.points}
    for ratio in found.ratios:
        fewer, more = (steps[count] for count in ratio.workers)
        assert ratio.time.value == pytest.approx(more.value / fewer.value / 4)
        assert ratio.worker_time.high == pytest.approx(4 * ratio.time.high)
        assert 1.0 < ratio.time.high / ratio.time.low < 1.1 * (more.high / more.low) * (fewer.high / fewer.low)
    assert [each["workers"] for each in found.to_json()["compared"]] == [[4, 16], [16, 64]]


def test_throughput_is_unknown_without_a_batch(found):
    assert {point.throughput for point in found.points} == {None}


def test_throughput_and_batch_may_stand_for_the_step_time(tmp_path):
    text = "workers,batch_per_worker,throughput_samples_per_s\n1,32,160\n2,32,310\n4,32,600\n"
    (one,) = forecast(read_own_curves(table(tmp_path, text)), [4])
    assert one.points[0].throughput == pytest.approx(32 * 4 / one.points[0].step_s.value)
    assert one.points[0].step_s.value == pytest.approx(32 * 4 / 600, rel=0.05)


def test_every_mistake_is_told_with_its_line_and_column(tmp_path):
    path = table(tmp_path, "workers,step_time_s\n1,soon\n-2,0.1\n")
    with pytest.raises(EvidenceError) as caught:
        read_own_curves(path)
    assert [("line 2: step_time_s" in one, "line 3: workers" in one) for one in caught.value.mistakes] == [
        (True, False),
        (False, True),
    ]


def test_missing_columns_are_named(tmp_path):
    with pytest.raises(EvidenceError, match="lacks the columns workers, throughput_samples_per_s, batch_per_worker"):
        read_own_curves(table(tmp_path, "p,seconds\n1,2\n"))
