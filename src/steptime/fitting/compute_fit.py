"""Fitting the computing and loading of one worker: each phase from ablation, or totals apportioned by FLOPs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from steptime.catalog.workloads.costs import Costs
from steptime.fitting.observation import LaunchPhases, Observation
from steptime.fitting.posterior import DRAWS, Array, fit_level, regress
from steptime.fitting.profile import How
from steptime.fitting.step_model import Contention
from steptime.model.compute import pass_seconds
from steptime.model.shared_cores import SHARING
from steptime.model.worker_spread import expected_maximum

_FIXED_SHARE = 0.3
"""Prior limit of the share of a pass that costs the same for any batch: a single batch does not show it."""
_APPORTION_SPREAD = 0.25
"""Of the logarithm of backward over forward, where FLOPs alone divide a total."""
_USUAL_IMBALANCE, _IMBALANCE_SPREAD = 0.01, 1.0
_TIMING_SPREAD = 0.06
_MOST_UPDATE = 0.1
"""Share of a step that the update may have, where only totals were measured."""


@dataclass(frozen=True)
class ComputeFit:
    """Draws of the parameters of computing and loading, and how each is known."""

    draws: dict[str, Array]
    how: dict[str, How]
    spread: float
    notes: list[str]


ContentionOf = Callable[[Observation], Contention]
"""Tells how many workers of a configuration share processors."""


def fit_computing(
    observations: Sequence[Observation], cost: Costs, contention_of: ContentionOf, rng: np.random.Generator
) -> ComputeFit | None:
    """Return the parameters of computing; None if no record separates computing from communicating."""
    launch_phases = [each for each in observations if any(_is_whole(one) for one in each.launch_phases)]
    singles = [each for each in observations if each.deployment.workers == 1 and not each.deployment.servers]
    if launch_phases:
        found = _from_ablation(launch_phases, contention_of, rng)
        _fit_timing(found, singles, rng)
    elif singles:
        found = _from_totals(singles, cost, rng)
    else:
        return None
    _fit_loading(found, launch_phases, contention_of, rng)
    _fit_imbalance(found, launch_phases, rng)
    return found


def _is_whole(one: LaunchPhases) -> bool:
    return one.phases.get("forward") is not None and one.phases.get("backward") is not None


def _from_ablation(
    observations: Sequence[Observation], contention_of: ContentionOf, rng: np.random.Generator
) -> ComputeFit:
    alone = [each for each in observations if contention_of(each).alone]
    together = [each for each in observations if not contention_of(each).alone]
    base = alone or together
    found = ComputeFit({}, {}, 0.0, [])
    if not alone:
        found.notes.append("one worker alone was not broken down, so that the contention factor comes from a prior")
    factor = 1.0 if alone else float(np.exp(SHARING[0]))
    spreads = []
    for name in ("forward", "backward"):
        rows = [
            (each.deployment.batch, _positive(one.phases[name]) / (factor * contention_of(each).turns))
            for each in base
            for one in each.launch_phases
            if _is_whole(one)
        ]
        spreads.append(_fit_pass(found, name, np.array(rows), rng))
    updates = [
        update / (factor * contention_of(each).turns)
        for each in base
        for one in each.launch_phases
        if (update := one.phases.get("update")) is not None
    ] or [0.0]
    found.draws["update_s"] = _draw_mean(np.array(updates), rng)
    found.how["update_s"] = "measured"
    _fit_contention(found, together if alone else [], contention_of, rng)
    return ComputeFit(found.draws, found.how, max(spreads), found.notes)


def _from_totals(singles: Sequence[Observation], cost: Costs, rng: np.random.Generator) -> ComputeFit:
    """Divide the step of one worker by the workload's arithmetic."""
    found = ComputeFit({}, {}, 0.0, ["no ablation launches: phases are totals divided by arithmetic (breakdown: true)"])
    rows = np.array([(each.deployment.batch, step) for each in singles for step in each.steps_s])
    spread = _fit_pass(found, "forward", rows, rng)
    odds = cost.backward_flops / max(cost.forward_flops, 1)
    drawn = odds * np.exp(_APPORTION_SPREAD * rng.standard_normal(DRAWS))
    update = _MOST_UPDATE * rng.random(DRAWS)
    total = [found.draws[f"forward_{part}"] for part in ("fixed_s", "per_sample_s")]
    batch = float(np.median(rows[:, 0]))
    for part, whole in zip(("fixed_s", "per_sample_s"), total, strict=True):
        left = whole * (1.0 - update)
        found.draws[f"forward_{part}"] = left / (1.0 + drawn)
        found.draws[f"backward_{part}"] = left * drawn / (1.0 + drawn)
        found.how[f"forward_{part}"] = found.how[f"backward_{part}"] = "apportioned"
    found.draws["update_s"] = update * (total[0] + total[1] * batch)
    found.how["update_s"] = "apportioned"
    found.draws["timing"], found.how["timing"] = np.ones(DRAWS), "measured"
    _fit_contention(found, [], lambda _: Contention(1, 1), rng)
    return ComputeFit(found.draws, found.how, spread, found.notes)


def _fit_pass(found: ComputeFit, name: str, rows: Array, rng: np.random.Generator) -> float:
    """Fit ``fixed + per_sample b``, or one of both where all batches are equal; return the spread of launches."""
    batches, seconds = rows[:, 0], rows[:, 1]
    if len(np.unique(batches)) > 1:
        drawn = regress(np.column_stack([np.ones_like(batches), batches]), seconds, rng)
        fixed, per_sample = drawn.draws.T
    else:
        drawn = fit_level(seconds, rng)
        share = _FIXED_SHARE * rng.random(DRAWS) ** 2
        fixed, per_sample = share * drawn.draws[:, 0], (1.0 - share) * drawn.draws[:, 0] / batches[0]
        note = "one batch per worker was measured: how a step grows with the batch comes from a prior"
        if note not in found.notes:
            found.notes.append(note)
    found.draws[f"{name}_fixed_s"], found.draws[f"{name}_per_sample_s"] = fixed, per_sample
    found.how[f"{name}_fixed_s"] = found.how[f"{name}_per_sample_s"] = "measured"
    return drawn.spread


def _fit_contention(
    found: ComputeFit, observations: Sequence[Observation], contention_of: ContentionOf, rng: np.random.Generator
) -> None:
    seconds: list[float] = []
    expected: list[Array] = []
    for each in observations:
        modelled = contention_of(each).turns * _passes(found, each.deployment.batch)
        for one in each.launch_phases:
            if _is_whole(one):
                seconds.append(_positive(one.phases["forward"]) + _positive(one.phases["backward"]))
                expected.append(modelled)
    if seconds:
        found.draws["contention_factor"] = _draw_ratio(seconds, expected, rng)
        found.how["contention_factor"] = "measured"
    else:
        found.draws["contention_factor"] = np.exp(SHARING[0] + SHARING[1] * rng.standard_normal(DRAWS))
        found.how["contention_factor"] = "prior"


def _fit_timing(found: ComputeFit, singles: Sequence[Observation], rng: np.random.Generator) -> None:
    """Fit the ratio of timed steps, without instruments, to phases, with instruments; both are means over steps."""
    seconds: list[float] = []
    expected: list[Array] = []
    for each in singles:
        waits = [one.phases.get("input_wait") or 0.0 for one in each.launch_phases]
        waited = max(float(np.median(waits)), 0.0) if waits else 0.0
        modelled = _passes(found, each.deployment.batch) + found.draws["update_s"] + waited
        seconds += each.steps_s
        expected += [modelled] * len(each.steps_s)
    known = bool(seconds)
    found.draws["timing"] = (
        _draw_ratio(seconds, expected, rng) if known else np.exp(_TIMING_SPREAD * rng.standard_normal(DRAWS))
    )
    found.how["timing"] = "measured" if known else "prior"


def _passes(found: ComputeFit, batch: int) -> Array:
    """Return draws of the seconds of forward and backward of a worker that is alone."""
    total: Array = sum(
        (
            np.asarray(pass_seconds(batch, found.draws[f"{name}_fixed_s"], found.draws[f"{name}_per_sample_s"]))
            for name in ("forward", "backward")
        ),
        start=np.zeros(DRAWS),
    )
    return total


def _draw_ratio(seconds: Sequence[float], expected: Sequence[Array], rng: np.random.Generator) -> Array:
    """Return draws of measured over expected seconds, each draw against its own expectation."""
    centres = np.array([float(np.median(each)) for each in expected])
    known = fit_level(np.array(seconds) / centres, rng).draws[:, 0]
    drift = np.mean([np.log(centre / each) for centre, each in zip(centres, expected, strict=True)], axis=0)
    drawn: Array = known * np.exp(drift)
    return drawn


def _fit_loading(
    found: ComputeFit, observations: Sequence[Observation], contention_of: ContentionOf, rng: np.random.Generator
) -> None:
    rates, shares = [], []
    for each in observations:
        for one in each.launch_phases:
            waited = one.phases.get("input_wait")
            if one.input_s is None or one.input_s <= 0.0 or waited is None:
                continue
            rates.append(one.input_s / (each.deployment.batch * contention_of(each).turns))
            shares.append(float(np.clip(waited / one.input_s, 0.0, 1.0)))
    if rates:
        found.draws["input_per_sample_s"] = fit_level(np.array(rates), rng).draws[:, 0]
        found.draws["input_share"] = np.clip(_draw_mean(np.array(shares), rng), 0.0, 1.0)
    else:
        found.draws["input_per_sample_s"] = found.draws["input_share"] = np.zeros(DRAWS)
        found.notes.append("loading was not measured apart: it is part of computing here")
    for name in ("input_per_sample_s", "input_share"):
        found.how[name] = "measured" if rates else "prior"


def _fit_imbalance(found: ComputeFit, observations: Sequence[Observation], rng: np.random.Generator) -> None:
    """Fit the spreads of workers; the largest of p workers lies ``m_p`` standard deviations above the mean."""
    seen: dict[str, list[float]] = {"persistent": [], "transient": []}
    for each in observations:
        for one in each.launch_phases:
            if each.deployment.workers > 1 and one.persistent is not None and one.transient is not None:
                largest = expected_maximum(each.deployment.workers)
                lasting, whole = max(one.persistent, 1e-4), max(one.persistent + one.transient, 1e-4)
                seen["persistent"].append(lasting / largest)
                seen["transient"].append(max(np.sqrt(max(whole**2 - lasting**2, 0.0)), 1e-4) / largest)
    for name, values in seen.items():
        if values:
            found.draws[name] = fit_level(np.array(values), rng).draws[:, 0]
        else:
            found.draws[name] = _USUAL_IMBALANCE * np.exp(_IMBALANCE_SPREAD * rng.standard_normal(DRAWS))
        found.how[name] = "measured" if values else "prior"


def _draw_mean(values: Array, rng: np.random.Generator) -> Array:
    """Draws of the mean of values that may be zero, none below it."""
    centre = float(values.mean())
    freedom = len(values)
    total = (0.02 * abs(centre)) ** 2 + float(np.sum((values - centre) ** 2))
    deviations = np.sqrt(total / rng.chisquare(freedom, DRAWS) / len(values))
    drawn: Array = np.maximum(centre + rng.standard_normal(DRAWS) * deviations, 0.0)
    return drawn


def _positive(value: float | None) -> float:
    return max(value or 0.0, 1e-9)
