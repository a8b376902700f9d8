"""What ``steptime predict`` prints, of each kind of source."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steptime.cli.fitted_profile import fitted_study, predicting_command, with_results
from steptime.cli.ranked_models import best_first, fastest_models
from steptime.cli.section_output import show_sections
from steptime.cli.streams import print_json, warn
from steptime.document.number_format import listed
from steptime.document.section import ANSWER, Section
from steptime.fitting.attached_profile import AttachedProfile
from steptime.fitting.profile import Profile
from steptime.predict.assumptions import assumed, other_layout, other_layouts, without_effect, worker_counts
from steptime.predict.attached import attached_ratios, predict_attached
from steptime.predict.model_names import model_names, unmeasured_workloads, workload_names
from steptime.predict.paired import paired_ratios
from steptime.predict.predict import Prediction, baseline_of
from steptime.predict.predict import predict as predict_all
from steptime.predict.query import read_queries
from steptime.predict.sensitivity import doubt_of_shared_cores, sensitivities
from steptime.report.forecasts.decisions import deciding_value
from steptime.report.forecasts.predictions import curve_sections, model_section, script_section
from steptime.report.forecasts.remarks import remarks_section
from steptime.report.refusals import RefusedWorkers, refusal_section, refusals
from steptime.scaling.knee import knee_line
from steptime.scaling.predicted_knees import PredictedKnees, attached_knees, of_answered, profile_knees

if TYPE_CHECKING:
    from steptime.fitting.observation import GroupKey
    from steptime.predict.sensitivity import Sensitivity
    from steptime.results.json_form import Interval, IntervalOverLaunches


EXIT_REFUSED = 3
"""Where every configuration is refused."""
USUAL_WORKERS = (1, 2, 4, 8)
_TITLE = "Predictions of steps"
_FEW = 2
"""Models that a terminal shows whole in any case."""
_WORK = ("tokens_per_s", "flop_per_s_per_device", "mfu")


def predict_profile(
    read: Profile,
    path: Path,
    overrides: Sequence[str],
    workers: Sequence[int] | None,
    shares: Sequence[float],
    *,
    form: str,
    html: Path | None,
    everything: bool = False,
) -> None:
    """Print predictions of a fitted profile.

    Args:
        read: the profile.
        path: of its file.
        overrides: the changes as they were written.
        workers: None if none were asked for. Then the usual numbers that some model answers are predicted.
        shares: of efficiency, at which workers bring too little.
        form: of the output.
        html: the page to be written, if any.
        everything: whether a terminal shows all of several models, not the first of each workload alone.
    """
    study = fitted_study(read, path)

    def predicted(texts: Sequence[str]) -> list[Prediction]:
        queries = read_queries(texts, read)
        if workers is not None:
            return [replace(each, study=study) for each in predict_all(read, workers, queries)]
        return _answered(
            [
                replace(each, study=study)
                for query in queries
                for each in predict_all(read, worker_counts(read, query) or USUAL_WORKERS, [query])
            ]
        )

    predictions = predicted(overrides)
    groups = _groups(predictions)
    bends = of_answered(profile_knees(read, read_queries(overrides, read), shares), predictions)
    if form == "json":
        knees = [each.to_json() for each in bends]
        compared = [pair.to_json() for group in groups for pair in paired_ratios(group)]
        steps = [to_json(each) for each in predictions]
        print_json({"predictions": steps, "baseline": baseline_of(predictions), "compared": compared, "knees": knees})
    if form != "json" or html is not None:
        unchanging = list(without_effect(overrides, predictions, predicted))
        left_out = _left_out(read, path, overrides, predictions) if workers is None else ""

        def sections(*, brief: bool) -> list[Section]:
            shared = _shared_refusals(groups) if brief else {}
            # Nine models would fill twenty screens of a terminal.
            folds = brief and not everything and len(groups) > _FEW
            shown = _first_of_workloads(groups, shared) if folds else groups
            folded = len(groups) - len(shown) if brief else None
            remarks = remarks_section(predictions, baseline_of(predictions), unchanging, left_out, folded=folded)
            return [*_models(groups, shown, read, bends, shared if brief else None), remarks]

        show_sections(sections(brief=form == "text" and len(groups) > 1), form, None, _TITLE)
        if html is not None:
            show_sections(sections(brief=False), "json", html, _TITLE)
    if predictions and all(each.refused for each in predictions):
        sys.exit(EXIT_REFUSED)


def _answered(predictions: Sequence[Prediction]) -> list[Prediction]:
    """Return the predictions without the numbers of workers that are refused everywhere; all where nothing else is."""
    known = {each.workers for each in predictions if not each.refused}
    return [each for each in predictions if not known or each.workers in known]


def _left_out(profile: Profile, path: Path, overrides: Sequence[str], predictions: Sequence[Prediction]) -> str:
    """Return which of the usual numbers of workers no model answers here, with the command that does on more hosts."""
    shown = {each.workers for each in predictions}
    missing = [count for count in USUAL_WORKERS if count > max(shown, default=0)]
    if not predictions or not missing or any(each.refused or each.query.hosts for each in predictions):
        return ""
    command = shlex.join(predicting_command(profile, path, overrides, missing))
    return f"note: on this host no model answers {listed([*map(str, missing)])} workers; on further hosts: {command}"


def answers(read: Profile, overrides: Sequence[str], workers: Sequence[int]) -> list[str]:
    """Return what a fitted profile predicts for the most of ``workers``, and what decides it, of each of its models."""
    predictions = predict_all(read, workers, read_queries(overrides, read))
    lines = []
    for group in _groups(predictions):
        section = _model(group, read, [])
        decides = deciding_value(_moved(group))
        lines += (
            [f"{group[0].key.framework} {group[0].key.strategy}: {section.verdict} {decides}"]
            if section.verdict
            else []
        )
    return lines


def _groups(predictions: Sequence[Prediction]) -> list[Sequence[Prediction]]:
    models: dict[GroupKey, list[Prediction]] = {}
    for each in predictions:
        models.setdefault(each.key, []).append(each)
    return best_first(list(models.values()))


def _moved(group: Sequence[Prediction]) -> "list[Sensitivity]":
    """Return what moves the step of the most workers; nothing of models that are refused."""
    answered = [each for each in group if each.step_s is not None]
    return sensitivities(max(answered, key=attrgetter("workers"))) if answered else []


def _doubt(group: Sequence[Prediction]) -> str:
    """Return why the step of the most workers may be too long; empty of none."""
    doubts = [doubt_of_shared_cores(each) for each in sorted(group, key=attrgetter("workers"))]
    return next((doubt for doubt in reversed(doubts) if doubt), "")


def _model(
    group: Sequence[Prediction],
    profile: Profile,
    bends: Sequence[PredictedKnees],
    shared: Mapping[RefusedWorkers, Sequence[str]] | None = None,
    name: str = "",
    *,
    unmeasured: str = "",
) -> Section:
    return model_section(
        group,
        list(other_layouts(profile, group)),
        [bend for bend in bends if bend.key == group[0].key],
        assumed,
        pairs=paired_ratios(group),
        moved=[] if shared is not None else _moved(group),
        shared=shared,
        name=name,
        doubt=_doubt(group),
        unmeasured=unmeasured,
    )


def _models(
    groups: Sequence[Sequence[Prediction]],
    shown: Sequence[Sequence[Prediction]],
    profile: Profile,
    bends: Sequence[PredictedKnees],
    shared: "Mapping[RefusedWorkers, Sequence[str]] | None",
) -> list[Section]:
    """Return which model is fastest, and a section of each that is ``shown``: a brief one where refusals are shared."""
    names = model_names(group[0].key for group in groups)
    ranked = fastest_models(groups, partial(other_layout, profile))
    unmeasured = unmeasured_workloads([each for group in groups for each in group])
    fastest = "\n".join([*unmeasured, *ranked] if ranked else [])
    sections = [
        _model(
            group,
            profile,
            bends,
            shared,
            names[group[0].key],
            unmeasured="" if ranked else " ".join(unmeasured_workloads(group)),
        )
        for group in shown
    ]
    return [
        *([refusal_section(shared, len(groups))] if shared else []),
        *([Section("Fastest", [], "Intervals are of 90 %.", verdict=fastest, id=ANSWER)] if fastest else []),
        *(section for section in sections if section.is_within("terminal") or shared is None),
    ]


def _first_of_workloads(
    groups: Sequence[Sequence[Prediction]], shared: "Mapping[RefusedWorkers, Sequence[str]]"
) -> list[Sequence[Prediction]]:
    """Return the first model of each workload, and those of which something is refused for a reason of their own."""
    names = workload_names(group[0].key for group in groups)
    firsts: dict[str, Sequence[Prediction]] = {}
    for group in groups:
        firsts.setdefault(names[group[0].key], group)
    return [
        group
        for group in groups
        if firsts[names[group[0].key]] is group or any(refused not in shared for refused in refusals(group))
    ]


def _shared_refusals(groups: Sequence[Sequence[Prediction]]) -> dict[RefusedWorkers, list[str]]:
    """Return the names of the models of which something is refused for the same reason, more than one for each."""
    model = model_names(group[0].key for group in groups)
    names: dict[RefusedWorkers, list[str]] = {}
    for group in groups:
        for refused in refusals(group):
            names.setdefault(refused, []).append(model[group[0].key])
    return {refused: those for refused, those in names.items() if len(those) > 1}


def to_json(each: Prediction) -> dict[str, Any]:
    """Return one prediction as docs/prediction.md describes it."""
    key = each.key
    return {
        "framework": key.framework,
        "strategy": key.strategy,
        "tuning": key.tuning,
        "workload": key.workload,
        "workers": each.workers,
        "batch_per_worker": each.deployment.batch if each.deployment else None,
        "changed": dict(each.query.texts),
        "step_time_s": _bounds(each.step_s),
        "throughput_samples_per_s": each.throughput.value if each.throughput else None,
        **{name: _bounds(getattr(each.work, name, None)) for name in _WORK},
        "peak_source": each.work.peak_source if each.work else None,
        "efficiency": each.efficiency.value if each.efficiency else None,
        "epoch_time_s": _bounds(each.epoch_s),
        "phases": {
            name: phase and {"value_s": phase.value_s, "low_s": phase.low_s, "high_s": phase.high_s, "how": phase.how}
            for name, phase in each.phases.items()
        },
        "pop": each.pop and {name: _bounds(share) for name, share in each.pop.items()},
        "dominant_phase": each.dominant,
        "made_of": {name: _bounds(share) for name, share in each.made_of.items()} or None,
        "extrapolation": each.extrapolation,
        "interval_shares": asdict(each.shares) if each.shares else None,
        "narrowed_by": each.narrowing,
        "held_out": asdict(each.held_out) if each.held_out else None,
        "link": asdict(each.link) if each.link else None,
        "refused": each.refused,
        "notes": [*unmeasured_workloads([each]), *filter(None, [doubt_of_shared_cores(each)]), *each.notes],
    }


def _bounds(interval: "Interval[float | None] | IntervalOverLaunches[float | None] | None") -> dict[str, float | None]:
    if interval is None:
        return {"value": None, "low": None, "high": None}
    return {"value": interval.value, "low": interval.low, "high": interval.high}


def predict_script(
    profile: AttachedProfile,
    workers: Sequence[int],
    shares: Sequence[float],
    path: Path,
    *,
    form: str,
    html: Path | None,
) -> None:
    """Print what a user's own script takes on other numbers of workers; ``path`` is of the profile."""
    predictions = [
        replace(each, refused=each.refused and with_results(each.refused, profile.folder, path))
        for each in predict_attached(profile, workers)
    ]
    bends, ratios = attached_knees(profile, shares), attached_ratios(profile, predictions)
    if form == "json":
        steps = [each.to_json() for each in predictions]
        knees = None if bends is None else [knee.to_json() for knee in bends]
        shared = {"foreign_cores": profile.foreign_cores, "delayed": profile.delayed}
        compared = [each.to_json() for each in ratios]
        answered = {"predictions": steps, "compared": compared, "knees": knees}
        print_json({**answered, "trainings": profile.trainings, "shared": shared})
    section = script_section(profile, predictions, knee_line(bends or []), ratios)
    show_sections([section], form, html, "Predictions of your own script")
    if predictions and all(each.refused for each in predictions):
        sys.exit(EXIT_REFUSED)


def predict_curve(
    points: Path, workers: Sequence[int], shares: Sequence[float], *, form: str, html: Path | None
) -> None:
    """Print the forecasts of measured scaling curves."""
    from steptime.importers import read_imports  # noqa: PLC0415 - profiles need no importers
    from steptime.scaling.forecast import forecast  # noqa: PLC0415 - profiles need no models of curves

    [records] = read_imports([points], "curves")
    warn(records.notes)
    forecasts = forecast(records.curves, workers, shares)
    if form == "json":
        print_json({"curves": [each.to_json() for each in forecasts]})
    show_sections(curve_sections(forecasts), form, html, "Forecasts of measured scaling curves")
