"""How many times as long one prediction takes as another, and at which cost, from draws that both share.

Two predictions of one model share more than their intervals show: its parameters, what is not known of a link that both
use, and the model's error as far as both are equally far from what was measured. Beyond that the farther one errs by
itself, as errors of two doublings are independent (``uncertainty``). Links of different kinds are drawn independently,
and so are the launches of both, which nothing makes alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import hypot

import numpy as np

from steptime.fitting.posterior import DRAWS, Array, bounds
from steptime.fitting.step_model import phases_of, step_of
from steptime.predict.launch_deviation import launch_spread
from steptime.predict.predict import Prediction, StepInputs, launched_group
from steptime.predict.uncertainty import skewed, with_longer_waits
from steptime.predict.worker_ratio import interval_to_json, shared_normal, times_workers
from steptime.results.json_form import Interval

_ERROR_SEED = 13
_WAITING = ("workers", "bandwidth", "crosses")
"""Directions of extrapolation in which messages and waiting err; in the others computing does."""


@dataclass(frozen=True)
class PairedRatio:
    """One prediction over another of the same model, for the same number of samples, with intervals of 90 %."""

    baseline: Prediction
    other: Prediction
    time: Interval[float, float]
    """Of ``other`` over that of ``baseline``."""
    worker_time: Interval[float, float]
    """The same of the workers' time together, which is what they cost."""

    @property
    def has_servers(self) -> bool:
        """Whether there are servers, whose time ``worker_time`` leaves out."""
        return bool(self.other.deployment and self.other.deployment.servers)

    def to_json(self) -> dict[str, object]:
        """Return the object that docs/prediction.md describes."""
        key = self.other.key
        return {
            "framework": key.framework,
            "strategy": key.strategy,
            "tuning": key.tuning,
            "workload": key.workload,
            "workers": [self.baseline.workers, self.other.workers],
            "changed": [dict(each.query.texts) for each in (self.baseline, self.other)],
            "time_ratio": interval_to_json(self.time),
            "worker_time_ratio": interval_to_json(self.worker_time),
        }


def paired_ratios(group: Sequence[Prediction]) -> list[PairedRatio]:
    """Return the ratios of one model's predictions that are not refused.

    Each number of workers is over the one before it, and each combination of changes over the first, with the most
    workers that both have.
    """
    curves: dict[tuple[tuple[str, str], ...], dict[int, Prediction]] = {}
    for each in group:
        if each.step_s is not None:
            curves.setdefault(tuple(each.query.texts.items()), {})[each.workers] = each
    pairs = [(curve[fewer], curve[more]) for curve in curves.values() for fewer, more in pairwise(sorted(curve))]
    first, *others = [*curves.values()] or [{}]
    shared = ((curve, max(first.keys() & curve.keys(), default=None)) for curve in others)
    pairs += [(first[most], curve[most]) for curve, most in shared if most is not None]
    ratios = (_paired(*pair) for pair in pairs)
    return [each for each in ratios if each is not None]


def independent_ratio(best: Prediction, other: Prediction) -> Interval[float, float]:
    """Return how many times the time of ``best`` another model's prediction takes, with its interval of 90 %.

    Models share nothing that is drawn, so that the draws of one are shuffled. Raises ValueError where one is refused.
    """
    if best.draws is None or other.draws is None:
        message = f"{best.key.name} or {other.key.name} is refused and has no draws"
        raise ValueError(message)
    ratio = best.draws[1] / np.random.default_rng(0).permutation(other.draws[1])
    low, high = bounds(ratio)
    return Interval(float(np.median(ratio)), low, high)


def _paired(baseline: Prediction, other: Prediction) -> PairedRatio | None:
    sides = [_side(each) for each in (baseline, other)]
    one, two = sides
    if one is None or two is None:
        return None
    rng = np.random.default_rng(_ERROR_SEED)
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        errors = _errors(one, two, rng)
        seen = [_seen_s(side, *of_side) for side, of_side in zip(sides, errors, strict=True) if side is not None]
        modelled = [step_of(phases_of(side.inputs.parameters, side.inputs.model)) for side in (one, two)]
    amounts = one.samples / two.samples
    middle = float(np.median(modelled[1] / modelled[0])) * amounts
    low, high = (end * amounts for end in bounds(seen[1] / seen[0]))
    if not 0.0 < min(low, middle) <= max(high, middle) < np.inf:
        return None
    time = Interval[float, float](middle, min(low, middle), max(high, middle))
    return PairedRatio(baseline, other, time, times_workers(time, baseline.workers, other.workers))


@dataclass(frozen=True)
class _Drawn:
    """What the step of one of two predictions follows from."""

    inputs: StepInputs
    parts: Mapping[str, float]
    """By direction, how far the model errs; see ``Extrapolation.parts``."""
    spread: float
    """Relative standard deviation of launches."""
    samples: float
    """Of a step, over all workers."""
    several: bool

    @property
    def link_rate(self) -> float | None:
        """Of the link, which two steps share that use the same."""
        link = self.inputs.topology.link
        return None if link is None else link.rate


def _side(prediction: Prediction) -> _Drawn | None:
    """Return what a prediction follows from; None if it is refused."""
    inputs, workers = prediction.inputs, prediction.workers
    if inputs is None:
        return None
    spread = launch_spread(launched_group(inputs.target, inputs.group), workers)
    deployment = inputs.topology.deployment
    samples = float(workers * deployment.batch * deployment.accumulation)
    return _Drawn(inputs, inputs.extrapolation.parts, spread, samples, workers > 1)


def _errors(one: _Drawn, two: _Drawn, rng: np.random.Generator) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Return of each side the logarithms by which messages and waiting err, and those by which all of it does."""
    waiting, computing = _common(one, two)
    shared_waiting, shared_computing = rng.standard_normal((2, DRAWS))

    def drawn(side: _Drawn) -> tuple[Array, Array]:
        all_waiting = hypot(*(side.parts[name] for name in _WAITING))
        all_computing = hypot(*(part for name, part in side.parts.items() if name not in _WAITING))
        longer = shared_normal(shared_waiting, waiting, all_waiting, rng)
        errs = shared_normal(shared_computing, computing, hypot(all_computing, side.spread), rng)
        scale = max(all_waiting, 1e-12)
        return scale * skewed(longer / scale), errs

    return drawn(one), drawn(two)


def _common(one: _Drawn, two: _Drawn) -> tuple[float, float]:
    """Return the standard deviations of the errors that both sides share: in waiting and messages, and in all."""
    parts = {name: min(part, two.parts[name]) for name, part in one.parts.items()}
    if one.link_rate != two.link_rate:
        parts["bandwidth"] = 0.0
    if one.several != two.several:  # one worker and several are tested apart, see ``held_out_test``
        parts["model"] = 0.0
    return (
        hypot(*(parts[name] for name in _WAITING)),
        hypot(*(part for name, part in parts.items() if name not in _WAITING)),
    )


def _seen_s(side: _Drawn, waiting: Array, everything: Array) -> Array:
    """Return the seconds of a step as a launch would measure it, (draws,)."""
    inputs = side.inputs
    longer = with_longer_waits(inputs.parameters, inputs.model, np.exp(waiting))
    seen: Array = step_of(phases_of(longer, inputs.model)) * np.exp(everything)
    return seen
