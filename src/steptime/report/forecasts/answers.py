"""What predictions answer: a sentence about the most workers that were asked for, and pictures over all of them."""

from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING

from steptime.document.charts.chart import Figure, Marks, Spec, parts, picture
from steptime.document.charts.rows import axis_from_zero, prediction_bands
from steptime.document.number_format import INCONCLUSIVE, Shown, percent, rate, seconds, time_unit
from steptime.results.json_form import Interval, IntervalOverLaunches
from steptime.units import format_count, format_seconds, is_undecided

if TYPE_CHECKING:  # whose models take longer to import than most reports
    from steptime.predict.attached import AttachedPrediction
    from steptime.predict.predict import Prediction
    from steptime.scaling.forecast import Forecast, ForecastPoint

BANDS = "Bands are intervals of 90 %; where they are too wide for a claim there is no line."
_MOST_CHANGES = 3
"""Combinations of changes that the answer is about."""
_PREDICTED = "predicted"


def is_wide(interval: Interval | IntervalOverLaunches) -> bool:
    """Whether the ends of an interval differ too much to claim its number."""
    return is_undecided(interval.low, interval.high)


def time_shown(interval: Interval | IntervalOverLaunches, unit: tuple[float, str] | None = None) -> Shown:
    """Return a predicted time; its range alone where the ends differ too much to claim it."""
    low, high = interval.low, interval.high
    if low is not None and high is not None and is_wide(interval):
        return Shown(INCONCLUSIVE, f"{format_seconds(low)} to {format_seconds(high)}")
    return seconds(interval.value, low, high, unit)


def is_known(prediction: "Prediction") -> bool:
    """Whether a step is predicted within a factor that lets its parts be claimed."""
    return prediction.step_s is not None and not is_wide(prediction.step_s)


def takes(step: Interval | IntervalOverLaunches) -> str:
    """Return ``a step takes 18.0 ms (13.0 to 32.2)``; of a wide interval the ends alone."""
    shown = time_shown(step)
    return f"the step is {shown.line}" if shown.text == INCONCLUSIVE else f"a step takes {shown.line}"


def model_answer(
    group: "Sequence[Prediction]",
    assumed: "Callable[[Sequence[Prediction]], str]",
    compared: Sequence[str] = (),
) -> str:
    """Return what the most workers take, for each combination of changes, and how far to trust it.

    Args:
        group: the predictions of one model.
        assumed: returns the layouts of workers on hosts and the links of some of them.
        compared: sentences about one of them over another.
    """
    farthest: dict[str, Prediction] = {}
    for prediction in sorted(group, key=lambda prediction: prediction.workers):
        if prediction.step_s is not None:
            farthest[prediction.query.changes()] = prediction
    clauses = []
    for changed, prediction in list(farthest.items())[:_MOST_CHANGES]:
        lead = f"{changed}: " if len(farthest) > 1 else ""
        clauses.append(f"{lead}{assumed([prediction])}: {_model_clause(prediction)}")
    answers = [f"{'; '.join(clauses)}."] if clauses else []
    tests = dict.fromkeys(each.held_out.in_words() for each in farthest.values() if each.held_out)
    return " ".join([*answers, *compared, *tests])


def _model_clause(prediction: "Prediction") -> str:
    assert prediction.step_s is not None  # noqa: S101 - others are refused
    clause = takes(prediction.step_s)
    if is_known(prediction) and prediction.throughput and prediction.efficiency:
        clause += f", {rate(Interval(*astuple(prediction.throughput))).line} samples/s"
        clause += f", efficiency {percent(*astuple(prediction.efficiency)).line}"
    return clause


def farthest_answer(points: "Sequence[AttachedPrediction | ForecastPoint]", tested: str, compared: str = "") -> str:
    """Return what the most workers are predicted to take, what they bring, and how far to trust it; else nothing."""
    steps = [(each.workers, each.step_s) for each in points if each.step_s is not None]
    workers, step = max(steps, key=lambda pair: pair[0], default=(0, None))
    sentences = [f"With {format_count(workers, 'worker')} {takes(step)}.", compared, tested] if step else []
    return " ".join(filter(None, sentences))


def model_figures(group: "Sequence[Prediction]") -> list[Figure]:
    """Return step time and efficiency against workers; none of a single number of workers."""
    steps = [(each.query.changes() or _PREDICTED, each.workers, each.step_s) for each in group]
    shares = [(name, workers, each.efficiency) for each, (name, workers, _) in zip(group, steps, strict=True)]
    conditions = group[0].key.name
    return [
        *_step_figures(steps, [], conditions),
        *_figures("Efficiency", _points(shares), [], None, conditions),
    ]


def script_figures(predictions: "Sequence[AttachedPrediction]") -> list[Figure]:
    """Return the step time against workers; none of a single number of workers."""
    return _step_figures([(_PREDICTED, each.workers, each.step_s) for each in predictions], [], "own script")


def curve_figures(forecast: "Forecast") -> list[Figure]:
    """Return predicted and measured step times against workers."""
    measured = [(point.workers, point.step_time) for point in forecast.curve.fit]
    return _step_figures(
        [(_PREDICTED, each.workers, each.step_s) for each in forecast.points], measured, forecast.curve.name
    )


_Point = tuple[str, int, Interval | IntervalOverLaunches | None]
"""Series, workers, and what is predicted."""


def _step_figures(points: "Sequence[_Point]", measured: Sequence[tuple[int, float]], conditions: str) -> list[Figure]:
    longest = max([*(each.value for *_, each in points if each), *(value for _, value in measured)], default=0.0)
    factor, unit = time_unit(longest)
    rows = _points(points, factor)
    diamonds = [{"workers": workers, "value": value * factor} for workers, value in measured]
    title = "Step time" if not measured else "Step time, measured ones as diamonds,"
    axis = {
        "field": "value",
        "type": "quantitative",
        **axis_from_zero(f"step time ({unit}), from 0", [*rows, *diamonds]),
        "axis": {"tickCount": 6, "format": ",~f"},
    }
    return _figures(title, rows, diamonds, axis, conditions)


def _points(points: "Sequence[_Point]", factor: float = 1.0) -> list[Spec]:
    """Return a row for each point that is predicted; one that is inconclusive has a band and no line."""
    return [
        {
            "name": name,
            "workers": workers,
            "value": None if is_wide(each) else each.value * factor,
            "low": each.low * factor,
            "high": each.high * factor,
        }
        for name, workers, each in points
        if each is not None and each.low is not None and each.high is not None
    ]


def _figures(
    title: str, rows: Sequence[Spec], measured: Sequence[Spec], axis: Spec | None, conditions: str
) -> list[Figure]:
    """Return a picture of each few series; none where no line has two points."""
    known = [row for row in rows if row["value"] is not None]
    if not (known or measured) or len({row["workers"] for row in [*rows, *measured]}) == 1:
        return []
    names = list(dict.fromkeys(row["name"] for row in rows))
    marks = Marks([(name, name) for name in names])
    return [
        picture(
            f"{title} against workers",
            prediction_bands([row for row in rows if row["name"] in part], measured, marks, axis),
            conditions,
        )
        for part in parts(names)
    ]
