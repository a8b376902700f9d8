"""Sensitivity of a prediction: how much its step changes where one value that it rests on is halved or doubled.

A parameter that several measured steps fix together with others is not among them: halving it alone contradicts what
was measured. What remains are the links, and what the profile took from a prior.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from steptime.fitting.importance_sampling import OVERLAP
from steptime.fitting.posterior import Array, bounds
from steptime.fitting.step_model import INNER, OUTER, phases_of, step_of
from steptime.predict.predict import Prediction, StepInputs
from steptime.results.json_form import Interval
from steptime.units import format_seconds

How = Literal["stated", "assumed", "fitted", "measured"]
_LINKS: Mapping[str, str] = {
    OUTER[0]: "latency between hosts",
    OUTER[1]: "bandwidth between hosts",
    INNER[0]: "latency inside a host",
    INNER[1]: "bandwidth inside a host",
}
_PRIORS: Mapping[str, str] = {
    OVERLAP: "share of communication that can hide behind computing and does",
    "contention_factor": "slowdown of workers that share a host",
    "persistent": "lasting difference between workers",
    "transient": "difference between workers from step to step",
    "input_per_sample_s": "time to load a sample",
    "input_share": "share of loading that a step waits for",
}
"""Parameters that a prior may give, but for those of passes, whose sum was measured."""
_SHARES = {OVERLAP, "input_share"}
_OF_WAITING = 2.0
"""From so many times the latency of messages alone on, most of a fitted latency is not the link's."""
_FACTORS = {"contention_factor"}
"""Of which the part beyond 1 is halved and doubled."""


@dataclass(frozen=True)
class Sensitivity:
    """What a step takes where one value is half or twice what it is, over what it takes, with intervals of 90 %."""

    name: str
    how: How
    """How the value is known: a link that the query states has an assumed share of what is stated, and one that steps
    alone show is fitted to these, whatever was believed of it."""
    halved: Interval[float, float]
    doubled: Interval[float, float]

    @property
    def moves(self) -> float:
        """The larger of both changes, as the logarithm of a ratio."""
        return max(abs(float(np.log(each.value))) for each in (self.halved, self.doubled))

    @property
    def may_move(self) -> float:
        """The largest change that the intervals of both allow, likewise."""
        ends = [end for each in (self.halved, self.doubled) for end in (each.low, each.high)]
        return max(abs(float(np.log(end))) for end in ends)


def sensitivities(prediction: Prediction) -> list[Sensitivity]:
    """Return the sensitivities of a prediction, the largest first; none of one that is refused."""
    inputs = prediction.inputs
    if inputs is None:
        return []
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        step = step_of(phases_of(inputs.parameters, inputs.model))
        rows = [
            Sensitivity(_name(name), how, *(_ratio(inputs, name, scaled(factor), step) for factor in (0.5, 2.0)))
            for name, how, scaled in _values(prediction, inputs)
        ]
    return sorted(rows, key=lambda row: -row.moves)


def doubt_of_shared_cores(prediction: Prediction) -> str:
    """Return that the latency inside a host was fitted to workers that shared its cores; empty where it was not.

    A ring over several hosts waits in each of its steps for the slowest of its links. What workers of one host wait for
    a core is fitted as latency of their link, and so is taken to be spent once more for every step that further hosts
    add, which nothing has shown.
    """
    inputs = prediction.inputs
    if inputs is None or inputs.target.key.device == "cuda" or not inputs.topology.inner_factors:
        return ""
    inside, timed = inputs.topology.inner, inputs.parameters[INNER[0]]
    factor = float(np.median(timed))
    full = inputs.model.contention.workers >= inputs.model.contention.processors
    if inside is None or inside.source != "net" or not full or factor < _OF_WAITING:
        return ""
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        as_timed = step_of(phases_of({**inputs.parameters, INNER[0]: np.ones_like(timed)}, inputs.model))
        low, high = bounds(as_timed)
    workers = inputs.topology.deployment.workers_per_host
    return (
        f"The latency inside a host is {factor:.3g} times the {format_seconds(inside.latency_s)} that messages alone "
        f"take there: it was fitted to {workers} "
        "workers that share their cores with computing, and every step of the exchange over further hosts is taken to "
        f"spend it, which nothing has shown. With the latency of messages alone the step of {prediction.workers} "
        f"workers takes {format_seconds(low)} to {format_seconds(high)}: two real hosts would settle it."
    )


def _name(parameter: str) -> str:
    return _LINKS.get(parameter) or _PRIORS[parameter]


def _values(prediction: Prediction, inputs: StepInputs) -> Iterator[tuple[str, How, Callable[[float], Array]]]:
    """Yield the parameters that may change, how each is known, and what returns its draws with a factor."""
    parameters = inputs.parameters
    for name in inputs.model.link_factors:
        yield name, _how_of_link(name, prediction, inputs), lambda factor, name=name: factor * parameters[name]  # type: ignore[misc]
    several = prediction.workers > 1
    for name in _PRIORS:
        source = inputs.target.exchange if name == OVERLAP else inputs.group
        known = None if source is None else source.parameters.get(name)
        if name not in parameters or (known is not None and known.how != "prior") or not parameters[name].any():
            continue
        if several or name.startswith("input"):
            yield name, "assumed", lambda factor, name=name: _scaled(name, parameters[name], factor)  # type: ignore[misc]


def _how_of_link(name: str, prediction: Prediction, inputs: StepInputs) -> How:
    query, topology = prediction.query, inputs.topology
    outer = name in OUTER
    stated = {
        OUTER[0]: query.delay_s,
        OUTER[1]: query.bandwidth or query.nic,
        INNER[1]: query.inner_bandwidth or query.inner_link,
    }.get(name)
    if stated is not None:
        return "stated"
    inside = topology.inner if topology.inner is not None else topology.link
    link = topology.link if outer else inside
    fitted = topology.factors if outer or topology.inner is None else topology.inner_factors
    if link is None:
        return "assumed"
    if link.source in {"prior", "believed"}:
        return "fitted" if fitted else "assumed"
    return "measured"


def _scaled(name: str, draws: Array, factor: float) -> Array:
    if name in _FACTORS:
        return 1.0 + factor * (draws - 1.0)
    return np.minimum(factor * draws, 1.0) if name in _SHARES else factor * draws


def _ratio(inputs: StepInputs, name: str, draws: Array, step: Array) -> Interval[float, float]:
    ratio = step_of(phases_of({**inputs.parameters, name: draws}, inputs.model)) / step
    low, high = bounds(ratio)
    middle = float(np.median(ratio))
    return Interval(middle, min(low, middle), max(high, middle))
