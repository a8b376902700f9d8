"""Predictions that a study asks for: bands at numbers of workers that nobody measured, beside published points."""

import pytest
from planted_studies import COMPUTING, a_step, add
from simulated import a_store

from steptime.analysis.summary import summarise
from steptime.predict.study_predictions import with_models
from steptime.report.answer import answer
from steptime.report.forecasts.models import model_tables

WORKERS = [16, 256]
PUBLISHED = {
    "claim": "almost linear",
    "source": "a paper",
    "machine": "256 GPUs",
    "efficiency": {"256": 0.9, "512": 0.9},
}


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    """The summary of a study of one and two workers on cores of their own, which asks for 256."""
    choice = {"workers": WORKERS, "workers_per_host": 1, "cores_per_host": 1, "bandwidth": "10Gbit/s"}
    folder = tmp_path_factory.mktemp("predicted") / "results"
    store = a_store(folder, predictions=choice, published_efficiency=[PUBLISHED])
    store.set_machine({"cores": 2, "gpus": []})
    add(store, COMPUTING + 0.001)
    add(store, a_step(), strategy="allreduce", workers=2)
    return with_models(summarise(store), store)


def test_every_number_of_workers_is_predicted_with_a_band(summary):
    points = summary.prediction.points
    assert [each.workers for each in points] == WORKERS
    assert all(each.efficiency.low <= each.efficiency.value <= each.efficiency.high for each in points)


def test_the_band_widens_with_the_workers(summary):
    near, far = (each.efficiency.high / each.efficiency.low for each in summary.prediction.points)
    assert far > near


def test_a_published_point_stands_beside_the_predictions_of_as_many_workers(summary):
    beside = {each.workers: len(each.predicted) for each in summary.prediction.published}
    assert beside == {256: 1, 512: 0}


def test_the_first_paragraph_says_the_efficiency_and_how_far_it_lies_outside_the_measured_workers(summary):
    text = answer(summary)
    assert "For 256 workers (hosts of 1 worker, 1 core of its own for each host, links of 10 Gbit/s)" in text
    assert "from at most 2 measured workers: 128 times as many" in text
    assert "almost linear: of the predicted intervals, the published 90.0 % on 256 workers lies in " in text
    assert "for 90.0 % on 512 workers nothing is predicted" in text


def test_the_table_has_the_published_point_in_the_row_of_its_workers(summary):
    (table,) = [each for each in model_tables(summary) if each.title.startswith("Predicted")]
    assert [row.cells[-1].text for row in table.parts[0].rows] == ["-", "90.0 % (256 GPUs)"]


def test_what_cannot_be_predicted_is_said_with_its_reason(tmp_path):
    store = a_store(tmp_path / "results", predictions={"workers": 4096})
    store.set_machine({"cores": 2, "gpus": []})
    add(store, COMPUTING + 0.001)
    add(store, a_step(), strategy="allreduce", workers=2)
    text = answer(with_models(summarise(store), store))
    assert text.startswith("Nothing is predicted: 4096 workers on one host")
