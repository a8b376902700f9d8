"""Performance models and predictions: the sentences of the answer, and the tables below it."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from steptime.analysis.model_form import (
    EfficiencyRange,
    ModelComparison,
    ModelError,
    PredictedConfiguration,
    PublishedPoint,
    Remedy,
    StudyPrediction,
)
from steptime.analysis.summary_form import Summary
from steptime.document.charts.chart import Figure, Marks, Spec, parts, picture
from steptime.document.charts.rows import prediction_bands
from steptime.document.number_format import INCONCLUSIVE, UNKNOWN, Shown, count, listed, number, percent, ratio
from steptime.document.section import (
    Column,
    Figures,
    Part,
    Section,
    SectionTable,
    Sentences,
    TableRow,
    cells,
    text_table,
)
from steptime.report.trial_names import Names
from steptime.results.json_form import IntervalOverLaunches
from steptime.units import is_undecided

MODEL_TITLES = {
    "load_imbalance": "Models with a load-imbalance factor, against measured steps",
    "s_sgd": "The S-SGD family of models, against measured steps",
}


def model_section(summary: Summary) -> Section | None:
    """Return the tables of models and predictions with the predicted efficiencies; None if the study has neither.

    Of a study that follows a paper, sentences about models are in its first answer instead.
    """
    said = [] if summary.paper else list(model_sentences(summary))
    found: list[Part] = [*([Sentences(said)] if said else []), *model_tables(summary)]
    note = "Bands are the intervals of 90 % of each prediction."
    drawn = Figures(partial(prediction_figures, summary.prediction), note=note)
    return Section("Models and predictions", [*found, drawn], id="models") if found else None


def model_sentences(summary: Summary) -> Iterator[str]:
    """Yield what the study's models and predictions answer, a sentence or two each."""
    for comparison in summary.models:
        if comparison.family == "load_imbalance":
            yield from _imbalance_sentences(comparison)
        else:
            yield from _ssgd_sentences(comparison)
    if summary.prediction is not None:
        yield from _prediction_sentences(summary.prediction)


def model_tables(summary: Summary) -> list[Section]:
    """Return the tables of the study's models and predictions; none of a study that asks for none."""
    names = Names(summary.trials)
    called = {trial.id: names.full(trial) for trial in summary.trials}
    found = [table for comparison in summary.models for table in _comparison_tables(comparison, called)]
    return found + (list(_prediction_tables(summary.prediction)) if summary.prediction else [])


def _imbalance_sentences(found: ModelComparison) -> Iterator[str]:
    cases = list(dict.fromkeys(each.case for each in found.imbalance))
    for case in cases:
        factors = [f"{each.framework} {_times(each.factor)}" for each in found.imbalance if each.case == case]
        yield f"On {case}, the load-imbalance factor (longest over mean computing of a step) is {listed(factors)}."
    for case in dict.fromkeys(each.case for each in found.errors):
        models = listed([_modelled(each) for each in found.errors if each.case == case])
        yield f"On {case}, of the measured step {models}."
    if not found.errors:
        yield "No trial of several workers has a breakdown yet, so the load-imbalance factor is unknown."


_IMBALANCE_MODELS = {
    "mean worker": "the model of the mean worker gives",
    "measured factor": "the one with the measured factor",
    "stated shares": "the step of even hosts with the stated processor shares",
}


def _modelled(each: ModelError) -> str:
    name = _IMBALANCE_MODELS.get(each.model, each.model)
    return f"{name} {_times(each.ratio)} over {count(each.trials, 'trial')}"


def _ssgd_sentences(found: ModelComparison) -> Iterator[str]:
    if not found.errors:
        yield "No trial has a breakdown yet, so that no model of synchronous SGD can be compared with it."
        return
    for case, model in found.best.items():
        error = next(each for each in found.errors if (each.case, each.model) == (case, model))
        worst = max((each for each in found.errors if each.case == case), key=lambda each: each.median_error)
        yield (
            f"With {case}, the model '{model}' is nearest: it gives {_times(error.ratio)} of the measured step over "
            f"{count(error.trials, 'trial')}, median error {_share(error.median_error)}; '{worst.model}' is farthest, "
            f"{_times(worst.ratio)}."
        )
    limits = [f"with {each.case} {each.part}, {_percent(each.share)} of a step" for each in found.limits]
    if limits:
        yield f"What takes longest is {listed(limits)}."
    ranked = sorted(found.remedies, key=lambda each: -each.speedup.value)
    if ranked:
        gains = [f"{each.remedy} {_times(each.speedup)}" for each in ranked]
        yield f"With several workers a step would be faster by {listed(gains)}."


def _prediction_sentences(found: StudyPrediction) -> Iterator[str]:
    if found.refused is not None:
        yield f"Nothing is predicted: {found.refused}."
        return
    last = max(each.workers for each in found.ranges)
    for each in found.ranges:
        if each.workers == last:
            yield _range_sentence(each, found)
    for claim in dict.fromkeys(point.claim for point in found.published):
        yield _published_sentence([point for point in found.published if point.claim == claim])


def _range_sentence(each: EfficiencyRange, found: StudyPrediction) -> str:
    factor = each.workers / max(found.measured_workers, 1)
    return (
        f"For {each.workers} workers ({found.conditions}), {each.framework} {each.strategy} is predicted an efficiency "
        f"from {_point(each.least)} to {_point(each.most)}, from at most "
        f"{count(found.measured_workers, 'measured worker')}: {number(factor)} times as many."
    )


def _point(each: PredictedConfiguration) -> str:
    return f"{_efficiency(each.efficiency)} ({each.workload}, batch {each.batch_per_worker})"


def _published_sentence(points: Sequence[PublishedPoint]) -> str:
    """Return where the points of one published curve lie among the predicted intervals."""
    found = [
        f"{_share(point.published)} on {point.workers} workers lies in {point.inside} of {len(point.predicted)}"
        if point.predicted
        else f"for {_share(point.published)} on {point.workers} workers nothing is predicted"
        for point in points
    ]
    return f"{points[0].claim.rstrip('.')}: of the predicted intervals, the published {listed(found)}."


def _table(title: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Section:
    return Section(title, [text_table(columns, rows)])


def _comparison_tables(found: ModelComparison, called: Mapping[str, str]) -> Iterator[Section]:
    if found.errors:
        yield _table(
            MODEL_TITLES[found.family],
            ("model", "trials", "modelled / measured", "median error", "largest error"),
            [
                (
                    f"{each.model}, {each.case}",
                    str(each.trials),
                    _times(each.ratio),
                    _share(each.median_error),
                    _share(each.largest_error),
                )
                for each in found.errors
            ],
        )
    if found.imbalance:
        yield _table(
            "Load-imbalance factors",
            ("framework", "trials", "longest / mean computing"),
            [(f"{each.framework}, {each.case}", str(each.trials), _times(each.factor)) for each in found.imbalance],
        )
    if found.limits:
        yield _table(
            "What takes longest in a step",
            ("workers", "trials", "part", "share of the step"),
            [(each.case, str(each.trials), each.part, _percent(each.share)) for each in found.limits],
        )
    if found.remedies:
        yield _table(
            "What each remedy would gain",
            ("remedy", "trials", "times as fast", "at most"),
            [
                (each.remedy, str(each.trials), _times(each.speedup), _most(each, called))
                for each in sorted(found.remedies, key=lambda each: -each.speedup.value)
            ],
        )


def _most(each: Remedy, called: Mapping[str, str]) -> str:
    return f"{number(each.most)}x ({called.get(each.most_trial, each.most_trial)})"


def _prediction_tables(found: StudyPrediction) -> Iterator[Section]:
    if found.points:
        columns = [Column(title) for title in ("workers", "samples/s", "efficiency")]
        rows = [_predicted_row(each, found) for each in found.points]
        table = SectionTable([*columns, Column("published", "prose")], rows, "configuration")
        yield Section(f"Predicted: {found.conditions}", [table])


def _predicted_row(each: PredictedConfiguration, found: StudyPrediction) -> TableRow:
    name = f"{each.framework} {each.strategy}, {each.workload}, batch {each.batch_per_worker}"
    beside = [f"{_share(point.published)} ({point.machine})" for point in found.published if each in point.predicted]
    if each.refused is not None:
        reason = f"refused: {each.refused}"
        sentence = f"{name}: {count(each.workers, 'worker')}, {reason}"
        return TableRow(name, cells(str(each.workers), UNKNOWN, UNKNOWN, reason), sentence=sentence)
    rate, efficiency = _rate(each.throughput_samples_per_s), _efficiency(each.efficiency)
    return TableRow(name, cells(str(each.workers), rate, efficiency, "; ".join(beside) or UNKNOWN))


def _times(found: IntervalOverLaunches) -> str:
    return ratio(found).line


def _percent(found: IntervalOverLaunches) -> str:
    return percent(found.value, found.low, found.high).line


def _efficiency(found: IntervalOverLaunches | None) -> str:
    return UNKNOWN if found is None else _percent(found)


def _share(value: float) -> str:
    return f"{number(100.0 * value)} %"


def _rate(found: IntervalOverLaunches | None) -> str:
    if found is None or found.low is None or found.high is None:
        return UNKNOWN
    text = INCONCLUSIVE if is_undecided(found.low, found.high) else number(found.value)
    return Shown(text, f"{number(found.low)} to {number(found.high)}").line


def prediction_figures(found: StudyPrediction | None) -> list[Figure]:
    """Return the predicted efficiencies of each workload; none where fewer than two numbers of workers have one."""
    if found is None:
        return []
    known = [each for each in found.points if each.efficiency is not None]
    published = [{"workers": each.workers, "value": each.published} for each in found.published]
    marks = Marks([(name, name) for name in dict.fromkeys(_configuration_name(each) for each in known)])
    figures = []
    for workload in dict.fromkeys(each.workload for each in known):
        own = [each for each in known if each.workload == workload]
        if len({each.workers for each in own}) == 1:
            continue
        beside = "; diamonds are published" if published else ""
        for part in parts(list(dict.fromkeys(_configuration_name(each) for each in own))):
            rows = [_predicted_point(each) for each in own if _configuration_name(each) in part]
            spec = prediction_bands(rows, published, marks)
            figures.append(picture(f"Predicted efficiency of {workload}{beside}", spec, found.conditions))
    return figures


def _configuration_name(each: PredictedConfiguration) -> str:
    return f"{each.framework} {each.strategy}, batch {each.batch_per_worker}"


def _predicted_point(each: PredictedConfiguration) -> Spec:
    bounds = each.efficiency
    return {
        "name": _configuration_name(each),
        "workers": each.workers,
        "value": bounds.value if bounds else None,
        "low": bounds.low if bounds else None,
        "high": bounds.high if bounds else None,
    }
