"""The pictures of a study's predictions."""

import re

import pytest
from test_charts import Balance

from steptime.analysis.model_form import PredictedConfiguration, PublishedPoint, StudyPrediction
from steptime.report.forecasts.models import prediction_figures
from steptime.results.json_form import IntervalOverLaunches

_AREA, _DIAMOND = re.compile(r'fill-opacity="0\.16"'), re.compile(r'stroke="#5b6573"[^>]*stroke-width="2"')


def point(
    workers: int, efficiency: float | None, *, workload: str = "alexnet", batch: int = 8
) -> PredictedConfiguration:
    bounds = (
        None
        if efficiency is None
        else IntervalOverLaunches(value=efficiency, low=0.8 * efficiency, high=1.1 * efficiency)
    )
    return PredictedConfiguration(
        framework="horovod_tensorflow",
        strategy="allreduce",
        workload=workload,
        batch_per_worker=batch,
        workers=workers,
        throughput_samples_per_s=bounds,
        efficiency=bounds,
        refused=None if bounds else "beyond what was measured",
    )


def predicted(*points: PredictedConfiguration, published: list[PublishedPoint] | None = None) -> StudyPrediction:
    return StudyPrediction(
        conditions="hosts of one worker", measured_workers=2, points=list(points), published=published or []
    )


LINE = [point(4, 0.9), point(16, 0.8), point(64, 0.7)]
PUBLISHED = [
    PublishedPoint(claim="c", source="s", machine="m", workers=each, published=0.95, predicted=[], inside=0)
    for each in (16, 64)
]


def test_a_study_that_predicts_nothing_has_no_figure():
    assert prediction_figures(None) == []


def test_each_workload_has_a_figure_of_its_own():
    figures = prediction_figures(
        predicted(*LINE, point(4, 0.9, workload="resnet50"), point(8, 0.8, workload="resnet50"))
    )

    assert [figure.title for figure in figures] == [
        "Predicted efficiency of alexnet",
        "Predicted efficiency of resnet50",
    ]


def test_one_number_of_workers_is_no_curve():
    assert prediction_figures(predicted(point(16, 0.8), point(16, 0.7, batch=2))) == []


def test_what_was_refused_is_not_drawn():
    (figure,) = prediction_figures(predicted(*LINE, point(1024, None)))

    assert ">64<" in figure.svg
    assert ">1024<" not in figure.svg


@pytest.mark.parametrize("batches", [(8,), (2, 4, 8)])
def test_each_configuration_has_a_band(batches):
    points = [point(workers, 0.9 - batch / 100, batch=batch) for batch in batches for workers in (4, 16)]
    (figure,) = prediction_figures(predicted(*points))

    assert len(_AREA.findall(figure.svg)) == len(batches)


def test_published_points_stand_beside_the_lines():
    (without,), (figure,) = (prediction_figures(predicted(*LINE, published=each)) for each in ([], PUBLISHED))

    assert not _DIAMOND.findall(without.svg)
    assert len(_DIAMOND.findall(figure.svg)) == len(PUBLISHED)
    assert figure.title == "Predicted efficiency of alexnet; diamonds are published"


def test_a_figure_of_predictions_is_whole_and_has_titles():
    (figure,) = prediction_figures(predicted(*LINE, published=PUBLISHED))
    parser = Balance()
    parser.feed(figure.svg)

    assert parser.open == []
    assert all(f">{title}" in figure.svg for title in ("workers (log scale)", "efficiency (%), from 0"))
    assert 'aria-label="Predicted efficiency of alexnet; diamonds are published: hosts of one worker"' in figure.svg
