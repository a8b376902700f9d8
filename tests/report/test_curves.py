"""Which trials lie on one scaling curve."""

import pytest
from summaries import quickstart, sweep, trial

from steptime.analysis.efficiency import ideal_throughput
from steptime.report.curves import scaling_panels
from steptime.report.trial_names import Names


def panels(trials):
    return scaling_panels(trials, Names(trials))


def test_a_curve_begins_at_the_single_worker_that_its_efficiency_is_relative_to():
    (panel,) = panels(sweep((1, 2, 4)).trials)
    curve = next(each for each in panel.curves if each.name == "pytorch allreduce")

    assert [(each.strategy, each.workers) for each in curve.trials] == [
        ("single", 1),
        ("allreduce", 2),
        ("allreduce", 4),
    ]


def test_a_single_worker_that_begins_a_curve_has_none_of_its_own():
    (panel,) = panels(sweep((1, 2)).trials)

    assert {each.name for each in panel.curves} == {"pytorch allreduce", "tensorflow single"}


def test_constant_batch_per_worker_is_weak_scaling():
    assert [panel.weak for panel in panels(sweep((1, 2)).trials)] == [True]


def test_constant_global_batch_is_strong_scaling():
    assert [panel.weak for panel in panels(sweep((1, 2, 4), strong=True).trials)] == [False]


def test_every_workload_has_a_panel():
    ok = [each for each in quickstart().trials if each.status == "ok"]

    assert [panel.title.split(" ")[0] for panel in panels(ok)] == ["lenet5", "resnet50"]


def test_one_number_of_workers_has_no_panel():
    assert panels([trial(), trial("mxnet", "ps_sync")]) == []


def test_trials_of_other_loaders_are_on_other_panels():
    trials = [trial(workers=workers, loader=loader) for workers in (1, 2) for loader in ("native", "synthetic")]

    assert len(panels(trials)) == 2


def test_the_ideal_line_goes_through_the_baseline():
    trials = [trial(workers=4, rate=3000.0, efficiency=0.75)]

    assert ideal_throughput(trials) == [(1, pytest.approx(1000.0)), (4, pytest.approx(4000.0))]


def test_without_a_common_baseline_the_fewest_workers_are_it():
    trials = [trial(workers=2, rate=100.0), trial(workers=8, rate=300.0)]

    assert ideal_throughput(trials) == [(2, pytest.approx(100.0)), (8, pytest.approx(400.0))]


@pytest.mark.parametrize("rate", [None, 100.0])
def test_one_number_of_workers_has_no_ideal_line(rate):
    assert ideal_throughput([trial(workers=2, rate=rate)]) == []
