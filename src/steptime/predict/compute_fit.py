"""Fitting what one worker computes: each phase for itself where ablation launches tell, the total split where not."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from steptime.model.imbalance import expected_maximum
from steptime.predict.observation import LaunchPhases, Observation
from steptime.predict.parameter_draws import DRAWS, Array, level, regress
from steptime.predict.profile import How
from steptime.workloads.costs import Costs

_FIXED_SHARE = 0.3
"""A single batch does not show how much of a pass costs the same for any batch; at most so much is believed."""
_BESIDE, _BESIDE_SPREAD = 0.06, 0.1
"""Logarithm of the factor on computing beside other workers, where nobody measured it, and its spread."""
_SPLIT_SPREAD = 0.25
"""Of the logarithm of backward over forward, where arithmetic alone divides a total."""
_USUAL_UNEVEN, _UNEVEN_SPREAD = 0.01, 1.0
_TIMING_SPREAD = 0.06
_BELIEVED_UPDATE = 0.1
"""Share of a step that the update may have, where only totals were measured."""


@dataclass(frozen=True)
class Computed:
    """Draws of the parameters of computing and loading, and how each is known."""

    draws: dict[str, Array]
    how: dict[str, How]
    spread: float
    notes: list[str]


@dataclass(frozen=True)
class Crowd:
    """How many workers share how many processors; from a setting, see ``fitting``."""

    of: Callable[[Observation], tuple[int, int]]

    def sharing(self, observation: Observation) -> int:
        """Turns that workers take."""
        crowd, slots = self.of(observation)
        return max(1, -(-crowd // slots))

    def alone(self, observation: Observation) -> bool:
        """Whether a worker has the processors for itself."""
        return self.of(observation)[0] == 1


def fit_computing(
    observations: Sequence[Observation], cost: Costs, crowd: Crowd, rng: np.random.Generator
) -> Computed | None:
    """Return the parameters of computing; None where no record tells computing from communicating."""
    launch_phases = [each for each in observations if any(_is_whole(one) for one in each.launch_phases)]
    singles = [each for each in observations if each.setting.workers == 1 and not each.setting.servers]
    if launch_phases:
        found = _from_ablation(launch_phases, crowd, rng)
        _timing(found, singles, rng)
    elif singles:
        found = _from_totals(singles, cost, rng)
    else:
        return None
    _loading(found, launch_phases, crowd, rng)
    _uneven(found, launch_phases, rng)
    return found


def _is_whole(one: LaunchPhases) -> bool:
    return one.phases.get("forward") is not None and one.phases.get("backward") is not None


def _from_ablation(observations: Sequence[Observation], crowd: Crowd, rng: np.random.Generator) -> Computed:
    alone = [each for each in observations if crowd.alone(each)]
    beside = [each for each in observations if not crowd.alone(each)]
    base = alone or beside
    found = Computed({}, {}, 0.0, [])
    if not alone:
        found.notes.append("one worker alone was not taken apart, so that what neighbours cost is only believed")
    factor = 1.0 if alone else float(np.exp(_BESIDE))
    spreads = []
    for name in ("forward", "backward"):
        rows = [
            (each.setting.batch, _positive(one.phases[name]) / (factor * crowd.sharing(each)))
            for each in base
            for one in each.launch_phases
            if _is_whole(one)
        ]
        spreads.append(_affine(found, name, np.array(rows), rng))
    updates = [
        (one.phases.get("update") or 0.0) / (factor * crowd.sharing(each))
        for each in base
        for one in each.launch_phases
    ]
    found.draws["update_s"] = _around(np.array(updates), rng)
    found.how["update_s"] = "measured"
    _beside(found, beside if alone else [], crowd, rng)
    return Computed(found.draws, found.how, max(spreads), found.notes)


def _from_totals(singles: Sequence[Observation], cost: Costs, rng: np.random.Generator) -> Computed:
    """Divide the step of one worker by the workload's arithmetic."""
    found = Computed({}, {}, 0.0, ["no ablation launches: phases are totals divided by arithmetic (breakdown: true)"])
    rows = np.array([(each.setting.batch, step) for each in singles for step in each.steps_s])
    spread = _affine(found, "forward", rows, rng)
    odds = cost.backward_flops / max(cost.forward_flops, 1)
    drawn = odds * np.exp(_SPLIT_SPREAD * rng.standard_normal(DRAWS))
    update = _BELIEVED_UPDATE * rng.random(DRAWS)
    total = [found.draws[f"forward_{part}"] for part in ("fixed_s", "per_sample_s")]
    batch = float(np.median(rows[:, 0]))
    for part, whole in zip(("fixed_s", "per_sample_s"), total, strict=True):
        left = whole * (1.0 - update)
        found.draws[f"forward_{part}"] = left / (1.0 + drawn)
        found.draws[f"backward_{part}"] = left * drawn / (1.0 + drawn)
        found.how[f"forward_{part}"] = found.how[f"backward_{part}"] = "split"
    found.draws["update_s"] = update * (total[0] + total[1] * batch)
    found.how["update_s"] = "split"
    found.draws["timing"], found.how["timing"] = np.ones(DRAWS), "measured"
    _beside(found, [], Crowd(lambda _: (1, 1)), rng)
    return Computed(found.draws, found.how, spread, found.notes)


def _affine(found: Computed, name: str, rows: Array, rng: np.random.Generator) -> float:
    """Fit ``fixed + per_sample b``, or one of both where all batches are equal; return the spread of launches."""
    batches, seconds = rows[:, 0], rows[:, 1]
    if len(np.unique(batches)) > 1:
        drawn = regress(np.column_stack([np.ones_like(batches), batches]), seconds, rng)
        fixed, per_sample = drawn.draws.T
    else:
        drawn = level(seconds, rng)
        share = _FIXED_SHARE * rng.random(DRAWS) ** 2
        fixed, per_sample = share * drawn.draws[:, 0], (1.0 - share) * drawn.draws[:, 0] / batches[0]
        note = "one batch per worker was measured: how a step grows with the batch is only believed"
        if note not in found.notes:
            found.notes.append(note)
    found.draws[f"{name}_fixed_s"], found.draws[f"{name}_per_sample_s"] = fixed, per_sample
    found.how[f"{name}_fixed_s"] = found.how[f"{name}_per_sample_s"] = "measured"
    return drawn.spread


def _beside(found: Computed, observations: Sequence[Observation], crowd: Crowd, rng: np.random.Generator) -> None:
    seconds: list[float] = []
    expected: list[Array] = []
    for each in observations:
        modelled = crowd.sharing(each) * _passes(found, each.setting.batch)
        for one in each.launch_phases:
            if _is_whole(one):
                seconds.append(_positive(one.phases["forward"]) + _positive(one.phases["backward"]))
                expected.append(modelled)
    if seconds:
        found.draws["beside"], found.how["beside"] = _ratio(seconds, expected, rng), "measured"
    else:
        found.draws["beside"] = np.exp(_BESIDE + _BESIDE_SPREAD * rng.standard_normal(DRAWS))
        found.how["beside"] = "believed"


def _timing(found: Computed, singles: Sequence[Observation], rng: np.random.Generator) -> None:
    """Timed steps are medians without instruments; phases are means with them."""
    seconds: list[float] = []
    expected: list[Array] = []
    for each in singles:
        waits = [one.phases.get("input_wait") or 0.0 for one in each.launch_phases]
        waited = max(float(np.median(waits)), 0.0) if waits else 0.0
        modelled = _passes(found, each.setting.batch) + found.draws["update_s"] + waited
        seconds += each.steps_s
        expected += [modelled] * len(each.steps_s)
    known = bool(seconds)
    found.draws["timing"] = (
        _ratio(seconds, expected, rng) if known else np.exp(_TIMING_SPREAD * rng.standard_normal(DRAWS))
    )
    found.how["timing"] = "measured" if known else "believed"


def _passes(found: Computed, batch: int) -> Array:
    """Return draws of the seconds of forward and backward of a worker that is alone."""
    total: Array = sum(
        (
            found.draws[f"{name}_fixed_s"] + found.draws[f"{name}_per_sample_s"] * batch
            for name in ("forward", "backward")
        ),
        start=np.zeros(DRAWS),
    )
    return total


def _ratio(seconds: Sequence[float], expected: Sequence[Array], rng: np.random.Generator) -> Array:
    """Return draws of measured over expected seconds, each draw against its own expectation."""
    centres = np.array([float(np.median(each)) for each in expected])
    known = level(np.array(seconds) / centres, rng).draws[:, 0]
    drift = np.mean([np.log(centre / each) for centre, each in zip(centres, expected, strict=True)], axis=0)
    drawn: Array = known * np.exp(drift)
    return drawn


def _loading(found: Computed, observations: Sequence[Observation], crowd: Crowd, rng: np.random.Generator) -> None:
    rates, shares = [], []
    for each in observations:
        for one in each.launch_phases:
            waited = one.phases.get("input_wait")
            if one.input_s is None or one.input_s <= 0.0 or waited is None:
                continue
            rates.append(one.input_s / (each.setting.batch * crowd.sharing(each)))
            shares.append(float(np.clip(waited / one.input_s, 0.0, 1.0)))
    if rates:
        found.draws["input_per_sample_s"] = level(np.array(rates), rng).draws[:, 0]
        found.draws["input_share"] = np.clip(_around(np.array(shares), rng), 0.0, 1.0)
    else:
        found.draws["input_per_sample_s"] = found.draws["input_share"] = np.zeros(DRAWS)
        found.notes.append("loading was not measured apart: it is part of computing here")
    for name in ("input_per_sample_s", "input_share"):
        found.how[name] = "measured" if rates else "believed"


def _uneven(found: Computed, observations: Sequence[Observation], rng: np.random.Generator) -> None:
    """Spreads of which the largest of p workers shows ``m_p`` standard deviations."""
    seen: dict[str, list[float]] = {"persistent": [], "transient": []}
    for each in observations:
        for one in each.launch_phases:
            if each.setting.workers > 1 and one.persistent is not None and one.transient is not None:
                largest = expected_maximum(each.setting.workers)
                lasting, whole = max(one.persistent, 1e-4), max(one.persistent + one.transient, 1e-4)
                seen["persistent"].append(lasting / largest)
                seen["transient"].append(max(np.sqrt(max(whole**2 - lasting**2, 0.0)), 1e-4) / largest)
    for name, values in seen.items():
        if values:
            found.draws[name] = level(np.array(values), rng).draws[:, 0]
        else:
            found.draws[name] = _USUAL_UNEVEN * np.exp(_UNEVEN_SPREAD * rng.standard_normal(DRAWS))
        found.how[name] = "measured" if values else "believed"


def _around(values: Array, rng: np.random.Generator) -> Array:
    """Draws of the mean of values that may be zero, none below it."""
    centre = float(values.mean())
    freedom = len(values)
    total = (0.02 * abs(centre)) ** 2 + float(np.sum((values - centre) ** 2))
    deviations = np.sqrt(total / rng.chisquare(freedom, DRAWS) / len(values))
    drawn: Array = np.maximum(centre + rng.standard_normal(DRAWS) * deviations, 0.0)
    return drawn


def _positive(value: float | None) -> float:
    return max(value or 0.0, 1e-9)
