"""What a sweep found: measured speed-ups, the largest loss, and how far more workers would help.

The speed-up is the ratio of mean steps over repeated runs (``speedup``). Where every
worker keeps its batch (weak scaling), a step of more workers trains more samples; where all share one (strong scaling),
as many. Which of both it is follows from the batches of loaders; where these were not seen, from backward passes, which
scripts that accumulate gradients divide among workers that share a batch, and else from the steps of a run:
with more workers those of a script that goes through its data become fewer only where each keeps its batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from steptime.attached.step_parts import title_of
from steptime.curves.contradictions import jumps
from steptime.curves.curve import Point, ScalingCurve, Setup
from steptime.results.json_form import Interval, IntervalOverLaunches, JsonForm
from steptime.scaling.crowded_cores import CrowdedCores, crowded_cores
from steptime.scaling.forecast import Forecast, forecast
from steptime.scaling.knee import SHARES, Knee
from steptime.scaling.speedup import MOST_UNKNOWN, NARROW, enough_runs, half_width, ratios
from steptime.scaling.swept_runs import SweptRuns
from steptime.statistics.interval import step_time
from steptime.units import format_count, is_undecided

Kind = Literal["weak", "strong"]
KindFrom = Literal["stated", "batches", "passes", "steps", "assumed"]
_SAME_STEPS = 0.75
"""Steps over those of fewer workers, below which a run has fewer for having more workers."""
_DOUBLINGS = 4
"""Beyond the most workers that were measured, that are forecast."""
_LEAST_LOSS = 0.01
"""Of a step, that is named."""
_HOUR_S = 3600.0
_MOST_RUNS = 30
"""Of each number of workers, that are asked for."""
_BUSY_CORES = 0.25
"""That other programs kept busy during runs, from which on they are named as a cause of wide intervals."""
_SAYS_NOTHING = 30.0
"""Upper over lower end of the interval of a step, beyond which it is not given."""
_LEAVE_OUT = "see that both do the same work, or leave one of them out of --counts"
_NORMAL_95, _NORMAL_90 = 1.96, 1.645
"""Standard deviations from the middle of a normal distribution to the ends of its intervals."""


@dataclass(frozen=True)
class SweepOptions:
    """What a user states of a sweep; None of what is not stated."""

    kind: Kind | None = None
    batch: int | None = None
    """Samples of a step of the fewest workers, of each of them."""
    samples: int | None = None
    """Of an epoch."""
    price: float | None = None
    """Of a device for an hour."""
    shares: tuple[float, ...] = SHARES


class SweepPoint(JsonForm):
    """One number of workers that was measured."""

    workers: int
    runs: int
    steps: int
    """Over all runs, that count."""
    step_s: Interval[float | None]
    steps_per_s: float
    speedup: IntervalOverLaunches
    """Throughput over that of the fewest workers."""
    efficiency: IntervalOverLaunches
    """Speed-up over that of the workers."""
    samples_per_s: float | None
    device_h_per_epoch: float | None
    money_per_epoch: float | None
    joules_per_epoch: float | None
    """By the mean power of whole commands."""
    parts_s: dict[str, float]
    """Mean seconds of each part of a step."""


class SweepLoss(JsonForm):
    """The part of a step by which more workers lose most."""

    part: str
    title: str
    time_s: float
    """By which it is longer than an ideal speed-up leaves it."""
    share: float
    """Of the step."""


class SweepForecast(JsonForm):
    """A number of workers that was not measured."""

    workers: int
    step_s: Interval
    speedup: Interval
    efficiency: Interval


class SweepNext(JsonForm):
    """What to measure next."""

    target: int
    """The most workers forecast."""
    now: float
    """Upper over lower end of their interval."""
    workers: list[int]
    """The two numbers that narrow it most."""
    expected: float
    """Upper over lower end once both are measured."""
    benchmark: str | None
    """The command whose result narrows it most."""
    expected_with_benchmark: float | None


class SweepCurve(JsonForm):
    """Runs that differ in their workers alone."""

    name: str
    """What else was set, as ``batch=16``; empty where nothing was."""
    kind: Kind
    kind_from: KindFrom
    points: list[SweepPoint]
    loss: SweepLoss | None
    forecast: list[SweepForecast]
    knees: list[dict[str, Any]] | None
    """As those of ``steptime predict``."""
    no_forecast: str | None
    """Why."""
    cores: str | None
    """How the forecast has workers share them."""
    no_joules: str | None
    """Why."""
    next: SweepNext | None
    """What to measure next."""
    sentence: str


class SweepAnswer(JsonForm):
    """Everything that a sweep found."""

    command: list[str]
    curves: list[SweepCurve]
    missing: list[str]
    """Settings of which no run trained, and runs whose processes are others than asked for, or more than cores."""


def sweep_curve(name: str, swept: Sequence[SweptRuns], options: SweepOptions) -> SweepCurve:
    """Return what runs of one curve found; there must be one, and the fewest workers come first."""
    kind, kind_from = _kind_of(swept, options)
    compared = ratios([runs.launches for runs in swept])
    points = [_point(runs, swept[0], ratio, kind, options) for runs, ratio in zip(swept, compared, strict=True)]
    loss = _largest_loss(points, kind)
    foreign = max((runs.foreign_cores or 0.0 for runs in swept), default=0.0)
    crowded = crowded_cores(swept, swept[-1].workers * 2**_DOUBLINGS)
    predicted, knees, following, no_forecast = _forecast(name, points, kind, options, foreign, crowded)
    return SweepCurve(
        name=name,
        kind=kind,
        kind_from=kind_from,
        points=points,
        loss=loss,
        forecast=predicted,
        knees=None if knees is None else [knee.to_json() for knee in knees],
        no_forecast=no_forecast,
        cores=crowded.sentence if predicted else None,
        no_joules=next((runs.no_watts for runs in swept if runs.no_watts), None) if options.samples else None,
        next=following,
        sentence=_sentence(points, loss, knees or ()),
    )


def _kind_of(swept: Sequence[SweptRuns], options: SweepOptions) -> tuple[Kind, KindFrom]:
    if options.kind is not None:
        return options.kind, "stated"
    first, last = swept[0], swept[-1]
    more = last.workers / first.workers
    if first.samples and last.samples and more > 1.0:
        # The middle between as many samples and as many for each worker.
        return ("weak" if last.samples / first.samples > more**0.5 else "strong"), "batches"
    if first.passes and last.passes and last.passes * more < first.passes * more**0.5:
        return "strong", "passes"
    if (
        not (first.ended_early or last.ended_early)
        and last.steps < _SAME_STEPS * first.steps
        and last.steps * last.workers >= _SAME_STEPS * first.steps * first.workers
    ):
        return "weak", "steps"
    return "weak", "assumed"


def _point(
    runs: SweptRuns, first: SweptRuns, ratio: IntervalOverLaunches, kind: Kind, options: SweepOptions
) -> SweepPoint:
    mean = step_time(runs.launches)
    step = Interval[float | None](mean.value, mean.low, mean.high)
    more = runs.workers / first.workers
    gained = more if kind == "weak" else 1.0
    low, high = (None if end is None else gained / end for end in (ratio.high, ratio.low))
    speedup = IntervalOverLaunches(gained / ratio.value, low, high)
    efficiency = IntervalOverLaunches(
        speedup.value / more, *(None if end is None else end / more for end in (speedup.low, speedup.high))
    )
    trained = runs.samples
    if options.batch is not None:
        trained = options.batch * float(runs.workers if kind == "weak" else first.workers)
    samples_per_s = None if trained is None else trained / mean.value
    epoch_s = options.samples / samples_per_s if options.samples and samples_per_s else None
    device_h = None if epoch_s is None else epoch_s * runs.workers / _HOUR_S
    return SweepPoint(
        workers=runs.workers,
        runs=len(runs.launches),
        steps=sum(len(launch.steady_s) for launch in runs.launches),
        step_s=step,
        steps_per_s=1.0 / mean.value,
        speedup=speedup,
        efficiency=efficiency,
        samples_per_s=samples_per_s,
        device_h_per_epoch=device_h,
        money_per_epoch=None if device_h is None or options.price is None else device_h * options.price,
        joules_per_epoch=None if epoch_s is None or runs.watts is None else epoch_s * runs.watts,
        parts_s=dict(runs.parts_s),
    )


def _largest_loss(points: Sequence[SweepPoint], kind: Kind) -> SweepLoss | None:
    first, last = points[0], points[-1]
    if last is first:
        return None
    ideal = 1.0 if kind == "weak" else first.workers / last.workers
    lost = {name: seconds - ideal * first.parts_s.get(name, 0.0) for name, seconds in last.parts_s.items()}
    part = max(lost, key=lambda name: lost[name], default=None)
    whole_s = sum(last.parts_s.values())  # of the same mean as the parts, which runs of unequal lengths weigh otherwise
    if part is None or lost[part] < _LEAST_LOSS * whole_s:
        return None
    return SweepLoss(part=part, title=title_of(part), time_s=lost[part], share=lost[part] / whole_s)


def _forecast(  # noqa: PLR0913, PLR0917 - what was measured, and on what
    name: str,
    points: Sequence[SweepPoint],
    kind: Kind,
    options: SweepOptions,
    foreign: float,
    crowded: CrowdedCores,
) -> tuple[list[SweepForecast], list[Knee] | None, SweepNext | None, str | None]:
    """Return the forecast of a curve, its knees and what to measure next, or why there is none."""
    if len(points) < 2:  # noqa: PLR2004 - a curve
        return [], None, None, "one number of workers makes no curve; measure another: --counts 1,2,4"
    curve = curve_of(name, points, kind)
    curve = replace(curve, setup=crowded.apply(curve.setup))
    first, most = points[0], points[-1].workers
    width = half_width(points[-1].speedup)
    if width > MOST_UNKNOWN:
        return [], None, None, _explain_width(points, width, foreign)
    if wrong := next(iter(jumps(curve, _LEAVE_OUT)), None):
        return [], None, None, wrong
    batch = curve.setup.global_batch or np.inf
    counts = [most * 2**power for power in range(1, _DOUBLINGS + 1) if most * 2**power <= batch]
    if not counts:
        return [], None, None, f"{2 * most} workers cannot share the batch of {batch:g} samples"
    [predicted] = forecast([curve], counts, options.shares, width / _NORMAL_95)
    base_s = curve.fit[0].step_time
    steps: list[SweepForecast] = []
    left_open: dict[int, float] = {}
    for point in predicted.points:
        step_s = _widened(point.step_s, width * _NORMAL_90 / _NORMAL_95)
        if step_s.high > _SAYS_NOTHING * step_s.low:
            left_open[point.workers] = step_s.high / step_s.low
            continue
        more = point.workers / first.workers
        speedup = _inverse(step_s, base_s * (more if kind == "weak" else 1.0))
        efficiency = _inverse(step_s, base_s / (1.0 if kind == "weak" else more))
        steps.append(SweepForecast(workers=point.workers, step_s=step_s, speedup=speedup, efficiency=efficiency))
    return steps, list(predicted.knees), _next(predicted), _explain_open(left_open)


def _explain_open(left_open: Mapping[int, float]) -> str | None:
    """Return why some numbers of workers have no forecast, or None; by each the ends of its interval, as a ratio."""
    if not left_open:
        return None
    counts = " and ".join(map(str, left_open))
    least = min(left_open.values())
    return f"what was measured leaves open by a factor of {least:.2g} and more what a step of {counts} workers takes"


def _next(predicted: Forecast) -> SweepNext | None:
    last, pair = predicted.points[-1], predicted.further_pair
    if pair is None:
        return None
    now = last.step_s.high / last.step_s.low
    facts = [fact for fact in predicted.empty_columns if fact.benchmark and fact.ratio < now]
    best = facts[0] if facts else None
    return SweepNext(
        target=last.workers,
        now=now,
        workers=list(pair.workers),
        expected=pair.ratio,
        benchmark=None if best is None else best.benchmark,
        expected_with_benchmark=None if best is None else best.ratio,
    )


def _explain_width(points: Sequence[SweepPoint], width: float, foreign: float) -> str:
    """Return why the measured speed-up is known too little, and what to do."""
    known = f"within a factor of {np.exp(2 * width):.3g}" if np.isfinite(width) else "from one run each"
    runs = enough_runs(min(point.runs for point in points), width)
    way = f"add runs: --repeats {runs}" if runs <= _MOST_RUNS else "more runs would hardly help"
    text = f"the measured speed-up is known {known} only; {way}"
    if foreign >= _BUSY_CORES:
        text += f"; run it while the machine is idle (other programs kept up to {foreign:.2g} cores busy)"
    return text


def needs_runs(curve: SweepCurve) -> bool:
    """Whether more runs would narrow a measured speed-up whose ends lie more than 1.2 times apart."""
    return any(half_width(point.speedup) > NARROW for point in curve.points[1:])


def _widened(step_s: Interval[float, float], unknown: float) -> Interval[float, float]:
    """Return an interval that also holds what the measured points leave open, which it takes for exact."""
    below, above = (
        float(np.hypot(np.log(one / other), unknown))
        for one, other in ((step_s.value, step_s.low), (step_s.high, step_s.value))
    )
    return Interval(step_s.value, step_s.value * np.exp(-below), step_s.value * np.exp(above))


def _inverse(step_s: Interval[float, float], scale: float) -> Interval:
    return Interval(scale / step_s.value, scale / step_s.high, scale / step_s.low)


def curve_of(name: str, points: Sequence[SweepPoint], kind: Kind) -> ScalingCurve:
    """Return measured points as a curve of which nothing but its batch is stated."""
    setup = Setup("own", "", "allreduce", "", "", "", "", None, None, "", "", None, None)
    if kind == "strong":
        rate = points[0].samples_per_s
        samples = None if rate is None or points[0].step_s.value is None else round(rate * points[0].step_s.value)
        setup = replace(setup, one_batch=True, global_batch=samples)
    measured = tuple(Point(point.workers, None, 1.0 / point.steps_per_s) for point in points)
    return ScalingCurve(name or "sweep", setup, measured, ())


def _sentence(points: Sequence[SweepPoint], loss: SweepLoss | None, knees: Sequence[Knee]) -> str:
    """Return ``2.9x (2.7 to 3.1) on 4 workers, 72 % efficient; the largest loss is ...; another doubling ...``."""
    first, last = points[0], points[-1]
    workers = format_count(last.workers, "worker")
    if last is first:
        return f"measured on {workers} alone, so that no speed-up is known"
    speedup = last.speedup
    ends = "" if speedup.low is None or speedup.high is None else f" ({speedup.low:.3g} to {speedup.high:.3g})"
    base = "" if first.workers == 1 else f" over {first.workers}"
    parts = [f"{speedup.value:.3g}x{ends} on {workers}{base}, {100 * last.efficiency.value:.0f} % efficient"]
    if is_undecided(speedup.low, speedup.high):
        parts = [f"the speed-up on {workers}{base} is inconclusive{ends}"]
    if loss is not None:
        parts.append(f"the largest loss is {loss.title} ({100 * loss.share:.0f} % of a step)")
    parts += [knee.sentence for knee in knees if knee.measure == "doubling"]
    return "; ".join(parts)
