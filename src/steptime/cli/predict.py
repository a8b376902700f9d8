"""``steptime predict``: unmeasured configurations, from a profile or from a measured scaling curve."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steptime.catalog.choices import STRATEGIES
from steptime.catalog.workloads.table import LIBRARY
from steptime.cli.arguments import Mistakes
from steptime.cli.section_output import FormOption, PageOption, chosen_form, show_sections
from steptime.cli.streams import print_json, warn
from steptime.fitting.attached_profile import AttachedProfile, read_attached_profile
from steptime.fitting.profile import Profile, read_profile
from steptime.model.compute import DEVICES
from steptime.predict.assumptions import assumed, other_layouts, without_effect, worker_counts
from steptime.predict.attached import predict_attached, refuse_changes
from steptime.predict.predict import BASELINE, Prediction
from steptime.predict.predict import predict as predict_all
from steptime.predict.query import KEYS, read_queries, read_workers
from steptime.report.predictions import curve_sections, model_section, remarks_section, script_section
from steptime.scaling.knee import knee_line, read_shares
from steptime.scaling.predicted_knees import PredictedKnees, attached_knees, of_answered, profile_knees

if TYPE_CHECKING:
    from steptime.document.section import Section
    from steptime.results.json_form import Interval, IntervalOverLaunches


_NO_SOURCE = (
    "nothing to predict from; give the PROFILE that `steptime fit DIR` wrote, or a scaling curve: --curve POINTS.csv"
)
EXIT_REFUSED = 3
"""Where every configuration is refused."""
_USUAL_WORKERS = (1, 2, 4, 8)
_WORK = ("tokens_per_s", "flop_per_s_per_device", "mfu")


def _complete_keys(incomplete: str) -> list[str]:
    values = {"strategy": STRATEGIES, "workload": LIBRARY, "device": ["cpu", "cuda", *DEVICES]}
    key, equals, _ = incomplete.partition("=")
    if equals:
        return [each for value in values.get(key, ()) if (each := f"{key}={value}").startswith(incomplete)]
    return [f"{key}=" for key in KEYS if key.startswith(incomplete)]


def predict(
    profile: Annotated[
        Path | None, typer.Argument(metavar="[PROFILE]", help="What `steptime fit` wrote.", show_default=False)
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY.PATH=VALUE]...",
            help="What is to be different, such as interconnect.bandwidth=25Gbit/s or bucket_mb=25,50.",
            autocompletion=_complete_keys,
        ),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(help="How many, such as 4,8,16 or 4,8,...,1024 (default: as many as hosts=N, else 1,2,4,8)."),
    ] = None,
    curve: Annotated[
        Path | None,
        typer.Option(metavar="POINTS.csv", help="Predict a measured scaling curve of your own, without a profile."),
    ] = None,
    knee: Annotated[
        str, typer.Option(metavar="PERCENT,...", help="Efficiencies below which the number of workers is searched.")
    ] = "80,50",
    html: PageOption = None,
    form: FormOption = "text",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (docs/prediction.md) and nothing else.")] = False,
) -> None:
    """Predict step time, throughput and phases, with an interval of 90 %, or say which measurement is missing."""
    form = chosen_form(form, as_json=as_json)
    mistakes = Mistakes()
    counts = mistakes.read("--workers", workers, read_workers) or _USUAL_WORKERS
    shares = mistakes.read("--knee", knee, read_shares) or []
    if curve is not None:
        mistakes.add(_contradictions(profile, overrides))
        mistakes.complain()
        _predict_curve(curve, counts, shares, form=form, html=html)
        return
    if profile is None:
        mistakes.add([_NO_SOURCE])
        mistakes.complain()
        return

    own = read_attached_profile(profile)
    if own is not None:
        mistakes.complain()
        _predict_script(own, overrides or [], counts, shares, form=form, html=html)
        return
    read = read_profile(profile)
    mistakes.read("overrides", "", lambda _: read_queries(overrides or [], read))
    mistakes.complain()
    _predict_profile(read, overrides or [], None if workers is None else counts, shares, form=form, html=html)


def _predict_profile(
    read: Profile,
    overrides: Sequence[str],
    workers: Sequence[int] | None,
    shares: Sequence[float],
    *,
    form: str,
    html: Path | None,
) -> None:
    """Print predictions of a fitted profile; ``workers`` is None if none were asked for."""

    def predicted(texts: Sequence[str]) -> list[Prediction]:
        queries = read_queries(texts, read)
        if workers is not None or not any(query.hosts for query in queries):
            return predict_all(read, workers or _USUAL_WORKERS, queries)
        return [
            each
            for query in queries
            for each in predict_all(read, worker_counts(read, query) or _USUAL_WORKERS, [query])
        ]

    predictions = predicted(overrides)
    bends = of_answered(profile_knees(read, read_queries(overrides, read), shares), predictions)
    if form == "json":
        knees = [each.to_json() for each in bends]
        print_json({"predictions": [to_json(each) for each in predictions], "baseline": BASELINE, "knees": knees})
    if form != "json" or html is not None:
        unchanging = list(without_effect(overrides, predictions, predicted))
        sections = [*_models(predictions, read, bends), remarks_section(predictions, BASELINE, unchanging)]
        show_sections(sections, form, html, "Predictions of steps")
    if predictions and all(each.refused for each in predictions):
        sys.exit(EXIT_REFUSED)


def _models(predictions: Sequence[Prediction], profile: Profile, bends: Sequence[PredictedKnees]) -> "list[Section]":
    models: dict[str, list[Prediction]] = {}
    for each in predictions:
        models.setdefault(each.key.name, []).append(each)
    return [
        model_section(
            group,
            list(other_layouts(profile, group)),
            [bend for bend in bends if bend.key.name == name],
            assumed(group),
        )
        for name, group in models.items()
    ]


def _contradictions(profile: Path | None, overrides: Sequence[str] | None) -> list[str]:
    given = [str(each) for each in (profile, *(overrides or ())) if each is not None]
    if not given:
        return []
    return [f"--curve predicts from the points of a curve alone; leave out {' '.join(given)}"]


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
        "extrapolation": each.extrapolation,
        "interval_shares": asdict(each.shares) if each.shares else None,
        "narrowed_by": each.narrowing,
        "link": asdict(each.link) if each.link else None,
        "refused": each.refused,
        "notes": list(each.notes),
    }


def _bounds(interval: "Interval[float | None] | IntervalOverLaunches[float | None] | None") -> dict[str, float | None]:
    if interval is None:
        return {"value": None, "low": None, "high": None}
    return {"value": interval.value, "low": interval.low, "high": interval.high}


def _predict_script(
    profile: AttachedProfile,
    overrides: Sequence[str],
    workers: Sequence[int],
    shares: Sequence[float],
    *,
    form: str,
    html: Path | None,
) -> None:
    """Print what a user's own script takes on other numbers of workers."""
    refuse_changes(overrides)
    predictions = predict_attached(profile, workers)
    bends = attached_knees(profile, shares)
    if form == "json":
        steps = [each.to_json() for each in predictions]
        knees = None if bends is None else [knee.to_json() for knee in bends]
        print_json({"predictions": steps, "knees": knees, "trainings": profile.trainings})
    section = script_section(profile, predictions, knee_line(bends or []))
    show_sections([section], form, html, "Predictions of your own script")
    if predictions and all(each.refused for each in predictions):
        sys.exit(EXIT_REFUSED)


def _predict_curve(
    points: Path, workers: Sequence[int], shares: Sequence[float], *, form: str, html: Path | None
) -> None:
    """Print the forecasts of measured scaling curves."""
    from steptime.importers import read_imports  # noqa: PLC0415 - likewise
    from steptime.scaling.forecast import forecast  # noqa: PLC0415 - profiles need no models of curves

    [records] = read_imports([points], "curves")
    warn(records.notes)
    forecasts = forecast(records.curves, workers, shares)
    if form == "json":
        print_json({"curves": [each.to_json() for each in forecasts]})
    show_sections(curve_sections(forecasts), form, html, "Forecasts of measured scaling curves")
