"""What a group's own steps say of its exchange: samples of what may be, weighted by how well they explain the steps.

Three numbers per group: factors on the start and on the rate of the link, and the share of the exchange that starts
early enough to hide. Where the link was measured the factors are nearly one; where it was not, they are wide, and
the steps narrow them. Importance sampling in rounds, each drawn wider than the one before it found.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit  # type: ignore[import-untyped]  # scipy ships no types

from steptime.profiles.drawing import DRAWS, Array
from steptime.profiles.playing import Scene, play, step_of

NAMES = ("start", "rate", "hidden")
_SAMPLES = 2000
_ROUNDS = 4
_WIDER = 1.6
_MODEL_SPREAD = 0.02
"""Relative error of a step that the formulas leave, at a setting that was measured."""
_BARE_SPREAD = 0.15
"""Of an exchange without computing, against the same during it."""


@dataclass(frozen=True)
class Believed:
    """Means and standard deviations of the logarithms of start and rate and the logit of hidden."""

    mean: Array
    spread: Array


@dataclass(frozen=True)
class Seen:
    """One measured configuration with an exchange."""

    scene: Scene
    step_s: float
    error: float
    """Relative standard error of ``step_s``, with that of its computing."""
    communication_s: float | None


def explain(
    parameters: Mapping[str, Array], seen: Sequence[Seen], believed: Believed, rng: np.random.Generator
) -> dict[str, Array]:
    """Return draws of the parameters in ``NAMES``; those believed where nothing was seen."""
    centre, spread = believed.mean, believed.spread
    samples = believed.mean + believed.spread * rng.standard_normal((DRAWS, len(NAMES)))
    if not seen:
        return _natural(samples)
    middle = {name: np.full(_SAMPLES, np.median(values)) for name, values in parameters.items()}
    for turn in range(_ROUNDS):
        drawn = centre + spread * rng.standard_normal((_SAMPLES, len(NAMES)))
        heat = 10.0 ** (1 - turn) if turn < _ROUNDS - 1 else 1.0
        score = _score(middle, seen, drawn) / max(heat, 1.0) + _density(drawn, believed.mean, believed.spread)
        score -= _density(drawn, centre, spread)
        weights = np.exp(score - score.max())
        weights /= weights.sum()
        samples = drawn
        if turn < _ROUNDS - 1:
            centre = weights @ drawn
            found = np.sqrt(weights @ np.square(drawn - centre))
            spread = np.clip(_WIDER * found, 0.02 * believed.spread, believed.spread)
    chosen = rng.choice(_SAMPLES, DRAWS, p=weights)
    # A little of what is believed, so that a few heavy samples do not pass for certainty.
    return _natural(samples[chosen] + 0.02 * believed.spread * rng.standard_normal((DRAWS, len(NAMES))))


def _score(middle: Mapping[str, Array], seen: Sequence[Seen], drawn: Array) -> Array:
    parameters = {**middle, **_natural(drawn)}
    total = np.zeros(len(drawn))
    for each in seen:
        phases = play(parameters, each.scene)
        total -= 0.5 * (np.log(step_of(phases) / each.step_s) / np.hypot(each.error, _MODEL_SPREAD)) ** 2
        if each.communication_s:
            whole = phases["comm_exposed"] + phases["comm_hidden"]
            total -= 0.5 * (np.log(np.maximum(whole, 1e-12) / each.communication_s) / _BARE_SPREAD) ** 2
    return total


def _density(drawn: Array, mean: Array, spread: Array) -> Array:
    density: Array = -0.5 * np.sum(((drawn - mean) / spread) ** 2, axis=1) - np.sum(np.log(spread))
    return density


def _natural(samples: Array) -> dict[str, Array]:
    return {"start": np.exp(samples[:, 0]), "rate": np.exp(samples[:, 1]), "hidden": expit(samples[:, 2])}
