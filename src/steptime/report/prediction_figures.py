"""The pictures of a study's predictions: efficiency against workers, by workload."""

from steptime.measurements.model_form import PredictedConfiguration, StudyPrediction
from steptime.report.charts.chart import Spec
from steptime.report.charts.marks import Marks
from steptime.report.charts.prediction import prediction_bands
from steptime.report.figures import Figure, parts, picture


def prediction_figures(found: StudyPrediction | None) -> list[Figure]:
    """Return the predicted efficiencies of each workload; none where fewer than two numbers of workers have one."""
    if found is None:
        return []
    known = [each for each in found.points if each.efficiency is not None]
    published = [{"workers": each.workers, "value": each.published} for each in found.published]
    marks = Marks([(name, name) for name in dict.fromkeys(_name(each) for each in known)])
    figures = []
    for workload in dict.fromkeys(each.workload for each in known):
        own = [each for each in known if each.workload == workload]
        if len({each.workers for each in own}) == 1:
            continue
        beside = "; diamonds are published" if published else ""
        for part in parts(list(dict.fromkeys(_name(each) for each in own))):
            rows = [_row(each) for each in own if _name(each) in part]
            spec = prediction_bands(rows, published, marks)
            figures.append(picture(f"Predicted efficiency of {workload}{beside}", spec, found.conditions))
    return figures


def _name(each: PredictedConfiguration) -> str:
    return f"{each.framework} {each.strategy}, batch {each.batch_per_worker}"


def _row(each: PredictedConfiguration) -> Spec:
    bounds = each.efficiency
    return {
        "name": _name(each),
        "workers": each.workers,
        "value": bounds.value if bounds else None,
        "low": bounds.low if bounds else None,
        "high": bounds.high if bounds else None,
    }
