"""Trials that differ on an axis of a study are ranked apart, or named apart: never alike in one table."""

import pytest
from simulated import a_store, a_trial

from steptime.analysis.summary import summarise
from steptime.catalog.optimizer import Optimizer
from steptime.report.trial_names import Names
from steptime.study.study import AXES

BASE = {"strategy": "ps_sync", "workers": 4, "servers": 1, "server_placement": "own", "dataset": "digits"}
OTHER = {
    "framework": "mxnet",
    "strategy": "ps_async",
    "workload": "lenet5",
    "loader": "native",
    "workers": 2,
    "servers": 2,
    "server_placement": "colocated",
    "batch_per_worker": 16,
    "precision": "bf16",
    "device": "cuda",
    "optimizer": Optimizer(name="adam"),
    "tuning": "tuned",
    "options": {"bucket_mb": 1.0},
    "accumulation": 4,
    "environment_name": "old",
    "environment_variables": {"KMP_BLOCKTIME": "1"},
}
"""By field, a value that is not that of BASE."""
COMPUTES = ("workload", "loader", "workers", "batch_per_worker", "precision", "device", "optimizer")
"""Fields that change what is computed, or on what: such trials are never in one ranking."""


def summaries(tmp_path, *trials):
    store = a_store(tmp_path / "results")
    for trial in trials:
        store.add_trial(trial)
    return summarise(store).trials


@pytest.mark.parametrize("field", sorted({axis.field for axis in AXES} - {"training", "global_batch"}))
def test_trials_that_differ_on_an_axis_are_ranked_or_named_apart(field, tmp_path):
    one, other = summaries(tmp_path, a_trial(**BASE), a_trial(**{**BASE, field: OTHER[field]}))

    names = Names([one, other])
    assert (one.group != other.group) == (field in COMPUTES)
    assert field in COMPUTES or names.short(one) != names.short(other)
    assert "[" not in names.short(one)


@pytest.mark.parametrize("dataset", [None, "digits", "./my-photos"])
def test_trials_of_other_classes_are_ranked_apart(dataset):
    two, ten = (a_trial(**{**BASE, "dataset": dataset, "classes": classes}) for classes in (2, 10))

    assert two.group != ten.group
    assert "(784, 2 classes)" in two.group


def test_the_usual_classes_are_not_named():
    assert "classes" not in a_trial().group
