"""Reading tables of measured curves."""

import pytest
from tables import curve, row, write

from steptime.curves.curve import EvidenceError
from steptime.curves.table import COLUMNS, read_curves


def mistakes(folder, rows, columns=COLUMNS):
    with pytest.raises(EvidenceError) as caught:
        read_curves(write(folder, rows, columns))
    return caught.value.mistakes


def test_a_step_time_is_the_batch_of_all_workers_over_their_throughput(tmp_path):
    path = write(tmp_path, [row(1, 0.25), row(8, 0.5)])
    (found,) = read_curves(path)
    assert [point.step_time for point in found.fit] == pytest.approx([0.25, 0.5])


def test_points_are_sorted_by_workers_whatever_their_order_in_the_table(tmp_path):
    (found,) = read_curves(write(tmp_path, [row(8, 0.5), row(1, 0.25), row(4, 0.3)]))
    assert [point.workers for point in found.fit] == [1, 4, 8]


@pytest.mark.parametrize("column", COLUMNS)
def test_a_missing_column_is_named(tmp_path, column):
    (message,) = mistakes(tmp_path, [row(1, 0.25)], [one for one in COLUMNS if one != column])
    assert f"lacks the columns {column};" in message


def test_a_column_that_stands_there_twice_is_named(tmp_path):
    (message,) = mistakes(tmp_path, [row(1, 0.25)], [*COLUMNS, "workers"])
    assert "columns workers more than once" in message


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("strategy", "allreduc", "did you mean 'allreduce'?"),
        ("role", "test", "unknown role 'test'"),
        ("throughput_samples_per_s", "0", "more than 0"),
        ("throughput_samples_per_s", "-3", "more than 0"),
        ("throughput_samples_per_s", "nan", "finite"),
        ("throughput_samples_per_s", "1e-320", "no step takes that long"),
        ("throughput_samples_per_s", "", "write a number"),
        ("workers", "0", "at least 1"),
        ("workers", "2.5", "write a whole number"),
        ("batch_per_worker", "-1", "at least 1"),
        ("inter_host_gbps", "fast", "write a number"),
        ("workers_per_host", "0", "at least 1"),
        ("curve", "", "is empty"),
    ],
)
def test_a_wrong_value_is_named_with_its_line(tmp_path, column, value, said):
    (message,) = mistakes(tmp_path, [row(1, 0.25), {**row(2, 0.25), column: value}])
    assert "line 3: " in message
    assert said in message


def test_all_mistakes_are_reported_at_once(tmp_path):
    found = mistakes(tmp_path, [{**row(1, 0.25), "role": "x", "strategy": "y"}, {**row(2, 0.25), "workers": "-1"}])
    assert len(found) == 3


def test_a_curve_of_a_single_worker_count_is_no_curve(tmp_path):
    (message,) = mistakes(tmp_path, [row(4, 0.25)])
    assert "single worker count" in message


def test_a_worker_count_stands_once_in_a_curve(tmp_path):
    (message,) = mistakes(tmp_path, [row(1, 0.25), row(1, 0.26), row(2, 0.3)])
    assert "more than once" in message


def test_rows_of_a_curve_differ_in_workers_only(tmp_path):
    (message,) = mistakes(tmp_path, [row(1, 0.25), row(2, 0.3, batch_per_worker="32")])
    assert "differ in batch_per_worker" in message


def test_a_curve_needs_a_row_to_fit(tmp_path):
    (message,) = mistakes(tmp_path, [row(1, 0.25, "holdout"), row(2, 0.3, "holdout")])
    assert "nothing could be fitted" in message


def test_a_file_that_is_not_there_is_a_mistake_of_the_user(tmp_path):
    with pytest.raises(EvidenceError, match="cannot be read"):
        read_curves(tmp_path / "nothing.csv")


def test_a_table_without_rows_is_a_mistake_of_the_user(tmp_path):
    (message,) = mistakes(tmp_path, [])
    assert "no rows" in message


def test_leaving_the_host_is_a_class_of_its_own(tmp_path):
    found = curve(tmp_path, {1: 0.2, 4: 0.2, 8: 0.2, 16: 0.3}, holdout={8, 16})
    assert [found.regime(point.workers) for point in found.holdout] == ["seen", "first_step_out"]


def test_a_second_host_among_the_fit_points_is_a_regime_seen(tmp_path):
    found = curve(tmp_path, {1: 0.2, 8: 0.2, 16: 0.3, 64: 0.3}, holdout={64})
    assert found.regime(64) == "seen"
