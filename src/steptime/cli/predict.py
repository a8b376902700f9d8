"""``steptime predict``: unmeasured configurations, from a profile or from a measured scaling curve."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steptime.cli.columns import print_columns
from steptime.cli.own_forecasts import (
    EXIT_REFUSED,
    format_range,
    format_rate,
    predict_attached_script,
    predict_curve,
    say_wrapped,
)
from steptime.cli.streams import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steptime.predict.predict import Prediction
    from steptime.predict.profile import Profile
    from steptime.results.json_form import Interval, IntervalOverLaunches
    from steptime.scaling.predicted_knees import PredictedKnees

_NOTHING = (
    "nothing to predict from; give the PROFILE that `steptime fit DIR` wrote, or a scaling curve: --curve POINTS.csv"
)
_NOTHING_S = 5e-8
_USUAL_WORKERS = (1, 2, 4, 8)
_WORK = ("tokens_per_s", "flop_per_s_per_device", "mfu")


def _complete_keys(incomplete: str) -> list[str]:
    from steptime.catalog.choices import STRATEGIES
    from steptime.catalog.workloads.table import LIBRARY
    from steptime.predict.model.compute import DEVICES
    from steptime.predict.query import KEYS

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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (docs/prediction.md) and nothing else.")] = False,
) -> None:
    """Predict step time, throughput and phases, with an interval of 90 %, or say which measurement is missing."""
    from steptime.cli.arguments import Mistakes
    from steptime.predict.query import read_queries, read_workers
    from steptime.scaling.knee import read_shares

    mistakes = Mistakes()
    counts = mistakes.read("--workers", workers, read_workers) or _USUAL_WORKERS
    shares = mistakes.read("--knee", knee, read_shares) or []
    if curve is not None:
        mistakes.add(_contradictions(profile, overrides))
        mistakes.complain()
        predict_curve(curve, counts, shares, as_json=as_json)
        return
    if profile is None:
        mistakes.add([_NOTHING])
        mistakes.complain()
        return
    from steptime.predict.attached_profile import read_attached_profile
    from steptime.predict.profile import read_profile

    own = read_attached_profile(profile)
    if own is not None:
        mistakes.complain()
        predict_attached_script(own, overrides or [], counts, shares, as_json=as_json)
        return
    read = read_profile(profile)
    mistakes.read("overrides", "", lambda _: read_queries(overrides or [], read))
    mistakes.complain()
    _predict_profile(read, overrides or [], None if workers is None else counts, shares, as_json=as_json)


def _predict_profile(
    read: "Profile",
    overrides: "Sequence[str]",
    workers: "Sequence[int] | None",
    shares: "Sequence[float]",
    *,
    as_json: bool,
) -> None:
    """Print predictions of a fitted profile; ``workers`` is None if none were asked for."""
    from steptime.predict.assumptions import without_effect, worker_counts
    from steptime.predict.predict import BASELINE
    from steptime.predict.predict import predict as predict_all
    from steptime.predict.query import read_queries
    from steptime.scaling.predicted_knees import profile_knees

    def predicted(texts: "Sequence[str]") -> "list[Prediction]":
        queries = read_queries(texts, read)
        if workers is not None or not any(query.hosts for query in queries):
            return predict_all(read, workers or _USUAL_WORKERS, queries)
        return [
            each
            for query in queries
            for each in predict_all(read, worker_counts(read, query) or _USUAL_WORKERS, [query])
        ]

    found = predicted(overrides)
    bends = profile_knees(read, read_queries(overrides, read), shares)
    if as_json:
        from steptime.cli.streams import print_json

        knees = [each.to_json() for each in bends]
        print_json({"predictions": [to_json(each) for each in found], "baseline": BASELINE, "knees": knees})
    else:
        _show(found, read, bends)
        for text in without_effect(overrides, found, predicted):
            say(f"note: {text} changes nothing here")
    if found and all(each.refused for each in found):
        sys.exit(EXIT_REFUSED)


def _contradictions(profile: Path | None, overrides: "Sequence[str] | None") -> list[str]:
    given = [str(each) for each in (profile, *(overrides or ())) if each is not None]
    if not given:
        return []
    return [f"--curve predicts from the points of a curve alone; leave out {' '.join(given)}"]


def to_json(each: "Prediction") -> dict[str, Any]:
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
        "refused": each.refused,
        "notes": list(each.notes),
    }


def _bounds(interval: "Interval[float | None] | IntervalOverLaunches[float | None] | None") -> dict[str, float | None]:
    if interval is None:
        return {"value": None, "low": None, "high": None}
    return {"value": interval.value, "low": interval.low, "high": interval.high}


def _show(found: "Sequence[Prediction]", profile: "Profile", bends: "Sequence[PredictedKnees]") -> None:
    changed = list(dict.fromkeys(key for each in found for key in each.query.texts))
    models: dict[str, list[Prediction]] = {}
    for each in found:
        models.setdefault(each.key.name, []).append(each)
    for name, group in models.items():
        batches = sorted({each.deployment.batch for each in group if each.deployment})
        batch = f", batch {', '.join(map(str, batches))} per worker" if batches else ""
        keys = [key.removeprefix("interconnect.") for key in changed] + ["workers"]
        titles = ["step", "90 %", "samples/s", "eff.", "dominant", "extrap."]
        epochs = ["epoch"] if any(each.epoch_s for each in group) else []
        rows = [
            [*(each.query.texts.get(key, "") for key in changed), str(each.workers), *_cells(each)] for each in group
        ]
        _show_assumed(group)
        print_columns(name + batch, keys, [*titles, *epochs], rows)
        _show_other_layouts(group, profile)
        _show_work(group, keys, changed)
        _show_phases(group, keys, changed)
        _show_efficiencies(group, keys, changed)
        _show_uncertainty(group)
        _show_knees([each for each in bends if each.key.name == name])
    _show_remarks(found)


def _show_remarks(found: "Sequence[Prediction]") -> None:
    """Print what columns mean, why something is refused, and notes."""
    from steptime.predict.predict import BASELINE

    say_wrapped(
        f"Efficiency (eff.) is relative to {BASELINE}. Extrapolation (extrap.) is how far a configuration lies outside "
        "the measured ones, as a ratio."
    )
    for reason in dict.fromkeys(each.refused for each in found if each.refused):
        say(f"refused: {reason}")
    for note in dict.fromkeys(note for each in found for note in each.notes):
        say(f"note: {note}")


def _show_work(group: "Sequence[Prediction]", keys: "Sequence[str]", changed: "Sequence[str]") -> None:
    """Print tokens, FLOP/s and MFU of each step that is not refused, where tokens or a peak are known."""
    from dataclasses import astuple

    from steptime.report.number_format import percent
    from steptime.report.ranking import flop_rate, tokens_rate

    known = [each for each in group if each.work and (each.work.peak_source or each.work.tokens_per_s.value)]
    rows = [
        [
            *(each.query.texts.get(key, "") for key in changed),
            str(each.workers),
            tokens_rate(each.work.tokens_per_s).text,
            flop_rate(each.work.flop_per_s_per_device).text,
            percent(*astuple(each.work.mfu)).text,
        ]
        for each in known
        if each.work
    ]
    if rows:
        titles = ["tokens/s", "per device", "MFU"]
        print_columns("work (docs/reading-a-report.md); intervals are in the JSON", keys, titles, rows)


def _show_phases(group: "Sequence[Prediction]", keys: "Sequence[str]", changed: "Sequence[str]") -> None:
    """Print the phases of each step that is not refused; those that are nothing everywhere are left out."""
    from steptime.phases import HIDDEN, PHASES
    from steptime.units import format_seconds

    known = [each for each in group if each.refused is None]
    names = [
        name
        for name in dict.fromkeys(name for each in known for name in each.phases)
        if any((phase := each.phases.get(name)) and abs(phase.value_s) > _NOTHING_S for each in known)
    ]
    if not names:
        return
    rows = [
        [
            *(each.query.texts.get(key, "") for key in changed),
            str(each.workers),
            *(format_seconds(phase.value_s) if (phase := each.phases.get(name)) else "-" for name in names),
        ]
        for each in known
    ]
    titles = {phase.name: phase.short_title for phase in (*PHASES, HIDDEN)}
    print_columns("phases; what is hidden is not part of a step", keys, [titles[name] for name in names], rows)


def _show_efficiencies(group: "Sequence[Prediction]", keys: "Sequence[str]", changed: "Sequence[str]") -> None:
    """Print the POP efficiencies of each step that is not refused, or why a strategy has none."""
    from steptime.analysis.ablation.pop import ASYNCHRONOUS

    known = [each for each in group if each.refused is None]
    rows = [
        [
            *(each.query.texts.get(key, "") for key in changed),
            str(each.workers),
            *(f"{share.value:.0%}" for share in each.pop.values()),
        ]
        for each in known
        if each.pop
    ]
    if rows:
        titles = ["parallel", "balance", "comm.", "serial.", "transfer", "comput.", "global", "input"]
        print_columns("POP efficiencies (docs/breakdown.md); intervals are in the JSON", keys, titles, rows)
    elif known:
        say_wrapped(f"no {ASYNCHRONOUS}")


def _show_uncertainty(group: "Sequence[Prediction]") -> None:
    """Print of the farthest step how its interval splits, and the measurement that would narrow it most."""
    known = [each for each in group if each.shares is not None]
    if known and (last := known[-1]).shares:
        say_wrapped(
            f"The interval at {last.workers} workers: {last.shares.in_words()}. It narrows most by {last.narrowing}"
        )


def _show_knees(bends: "Sequence[PredictedKnees]") -> None:
    """Print where more workers bring too little, for each combination of changes that is predicted so far."""
    from steptime.scaling.knee import knee_line

    for bend in bends:
        if line := knee_line(bend.knees or []):
            changed = ", ".join(f"{key}={text}" for key, text in bend.query.texts.items())
            say_wrapped(f"{changed}: {line}" if changed and len(bends) > 1 else line)


def _cells(each: "Prediction") -> list[str]:
    from steptime.units import format_seconds, is_undecided

    if each.step_s is None or each.throughput is None or each.efficiency is None or each.extrapolation is None:
        return ["refused"]
    if is_undecided(each.step_s.low, each.step_s.high):
        limits = format_range(each.step_s.low, each.step_s.high)
        return ["undecided", limits, "-", "-", _dominant(each), f"{each.extrapolation:.3g}"]
    cells = [
        format_seconds(each.step_s.value or 0.0),
        format_range(each.step_s.low, each.step_s.high),
        format_rate(each.throughput.value),
        f"{each.efficiency.value:.0%}",
        _dominant(each),
        f"{each.extrapolation:.3g}",
    ]
    return [*cells, format_seconds(each.epoch_s.value)] if each.epoch_s else cells


def _show_assumed(group: "Sequence[Prediction]") -> None:
    from steptime.predict.assumptions import assumed

    if assumption := assumed(group):
        say_wrapped(f"Assumed: {assumption}.")


def _show_other_layouts(group: "Sequence[Prediction]", profile: "Profile") -> None:
    from steptime.predict.assumptions import other_layouts

    for other in other_layouts(profile, group):
        step, limits, _, efficiency, *_ = _cells(other)
        say_wrapped(
            f"With workers_per_host=1, {other.workers} workers take {step} ({limits}), efficiency {efficiency}."
        )


def _dominant(each: "Prediction") -> str:
    """Return the longest phase by the name that tables of phases have."""
    from steptime.phases import PHASES

    titles = {phase.name: phase.short_title if phase.part else "unexplained" for phase in PHASES}
    return titles.get(str(each.dominant), str(each.dominant))
