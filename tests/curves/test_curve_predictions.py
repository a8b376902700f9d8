"""Predicting the large worker counts of a curve from its small ones."""

import numpy as np
import pytest
from tables import curve

from steptime.curves.posterior import predict_curve


def predictions(found):
    """By what was learned from all sources: that of the curve is none of them."""
    return predict_curve(found, [(point.workers, point.servers) for point in found.holdout])


def width(prediction):
    return prediction.high / prediction.low


def test_what_is_to_be_predicted_is_not_looked_at(tmp_path):
    true = predictions(curve(tmp_path, {1: 0.2, 2: 0.21, 8: 0.22, 16: 0.3}, holdout={16}))
    other = predictions(curve(tmp_path, {1: 0.2, 2: 0.21, 8: 0.22, 16: 99.0}, holdout={16}))
    assert true == other


def test_the_same_table_gives_the_same_prediction(tmp_path):
    found = curve(tmp_path, {1: 0.2, 2: 0.21, 16: 0.3}, holdout={16})
    assert predictions(found) == predictions(found)


def test_a_flat_curve_stays_flat_inside_the_host(tmp_path):
    (one,) = predictions(curve(tmp_path, {1: 0.2, 2: 0.2, 4: 0.2, 8: 0.2}, holdout={8}))
    assert one.value == pytest.approx(0.2, rel=0.02)
    assert one.low < 0.2 < one.high


def test_times_scale_with_their_unit(tmp_path):
    """Nothing but communication has an absolute size, and inside a host of free links there is none."""
    slow = {1: 2000.0, 2: 2010.0, 4: 2020.0, 8: 2030.0}
    slower = {count: 10 * seconds for count, seconds in slow.items()}
    (one,) = predictions(curve(tmp_path, slow, holdout={8}))
    (other,) = predictions(curve(tmp_path, slower, holdout={8}))
    assert other.value == pytest.approx(10 * one.value, rel=0.01)


def test_an_interval_widens_with_the_distance(tmp_path):
    found = curve(tmp_path, {1: 0.2, 2: 0.21, 16: 0.3, 64: 0.3, 1024: 0.3}, holdout={16, 64, 1024})
    widths = [np.log(one.high / one.low) for one in predictions(found)]
    assert widths == sorted(widths)


def test_leaving_the_host_is_less_certain_than_staying(tmp_path):
    inside = curve(tmp_path, {1: 0.2, 2: 0.21, 4: 0.3}, holdout={4}, workers_per_host="4")
    outside = curve(tmp_path, {1: 0.2, 2: 0.21, 4: 0.3}, holdout={4}, workers_per_host="2")
    (kept,), (left,) = predictions(inside), predictions(outside)
    assert np.log(left.high / left.low) > 1.5 * np.log(kept.high / kept.low)


def test_a_slower_network_is_expected_to_take_longer(tmp_path):
    seconds = {1: 0.2, 8: 0.21, 16: 0.3}
    quick, slow = (
        predictions(curve(tmp_path, seconds, holdout={16}, inter_host_gbps=rate))[0].value for rate in ("100", "10")
    )
    assert slow > quick


def test_more_servers_are_expected_to_take_less(tmp_path):
    seconds = {1: 1.0, 8: 1.1, 64: 2.0}
    changes = {"strategy": "parameter_server_sync", "inter_host_gbps": "10"}
    few = curve(tmp_path, seconds, holdout={64}, parameter_servers="2", **changes)
    many = curve(tmp_path, seconds, holdout={64}, parameter_servers="8", **changes)
    assert predictions(many)[0].value < predictions(few)[0].value


@pytest.mark.parametrize("factor", [3.0, 10.0])
def test_contradicting_points_never_give_a_confident_number(tmp_path, factor):
    found = curve(tmp_path, {1: 0.2, 2: 0.2 * factor, 4: 0.2, 8: 0.2 * factor, 32: 0.2}, holdout={32})
    (one,) = predictions(found)
    assert width(one) > 3


def test_a_single_point_to_fit_gives_a_wide_interval(tmp_path):
    (one,) = predictions(curve(tmp_path, {1: 0.2, 64: 0.3}, holdout={64}))
    assert width(one) > 1.3


@pytest.mark.parametrize("count", [2, 4, 8])
def test_equal_times_never_give_a_confident_number(tmp_path, count):
    """What is flat up to here need not stay so: at least two percent inside a host, ten beyond it."""
    known = {workers: 0.2 for workers in (1, 2, 4) if workers < count}
    inside, outside = predictions(curve(tmp_path, {**known, count: 0.2, 64: 0.2}, holdout={count, 64}))
    assert width(inside) > 1.02
    assert width(outside) > 1.1


def test_a_single_point_is_less_certain_than_two(tmp_path):
    (one,) = predictions(curve(tmp_path, {1: 0.2, 8: 0.21}, holdout={8}))
    (two,) = predictions(curve(tmp_path, {1: 0.2, 4: 0.205, 8: 0.21}, holdout={8}))
    assert width(one) > width(two)


def test_noise_of_half_a_time_widens_the_interval_to_its_size(tmp_path):
    quiet = {1: 0.2, 2: 0.202, 4: 0.204, 8: 0.206, 16: 0.2}
    noisy = {1: 0.2, 2: 0.3, 4: 0.15, 8: 0.3, 16: 0.2}
    (sure,), (unsure,) = (
        predictions(curve(tmp_path, seconds, holdout={16}, workers_per_host="16")) for seconds in (quiet, noisy)
    )
    assert width(unsure) > 2
    assert width(unsure) > 5 * (width(sure) - 1) + 1


def test_a_curve_of_unknown_workload_and_links_is_predicted_too(tmp_path):
    unknown = {"workload": "my_own", "intra_host_link": "", "transport": "", "inter_host_gbps": "", "nics_per_host": ""}
    known = curve(tmp_path, {1: 0.2, 2: 0.21, 16: 0.3}, holdout={16}, workers_per_host="", **unknown)
    (one,) = predictions(known)
    assert 0.15 < one.low < one.value < one.high
