"""What a group's own steps say of its exchange: samples of what may be, weighted by how well they explain the steps.

Three numbers per group: factors on the start and on the rate of the link, and the share of the exchange that starts
early enough to hide. Where the link was measured the factors are nearly one; where it was not, they are wide, and
the steps narrow them. Importance sampling in rounds, each drawn wider than the one before it found.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.interpolate import RegularGridInterpolator  # type: ignore[import-untyped]
from scipy.special import expit  # type: ignore[import-untyped]  # scipy ships no types

from steptime.predict.parameter_draws import DRAWS, Array
from steptime.predict.step_model import Scene, play, step_of

NAMES = ("start", "rate", "hidden")
_SAMPLES = 4000
_GRID, _GRID_REACH = 15, 3.5
"""Points of each side of the grid on which steps are played, and how many standard deviations it spans to each end."""
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
    tables = [_tabulated(parameters, each, believed) for each in seen]
    for turn in range(_ROUNDS):
        last = turn == _ROUNDS - 1
        drawn = centre + spread * rng.standard_normal((_SAMPLES, len(NAMES)))
        # First rounds see the steps as if they were worse known: few samples explain good steps at once.
        heat = 1.0 if last else max(10.0 ** (1 - turn), 1.0)
        score = sum(table.score(drawn) for table in tables) / heat + _density(drawn, believed.mean, believed.spread)
        score -= _density(drawn, centre, spread)
        weights = np.exp(score - score.max())
        weights /= weights.sum()
        samples = drawn
        if not last:
            centre = weights @ drawn
            found = np.sqrt(weights @ np.square(drawn - centre))
            spread = np.clip(_WIDER * found, 0.02 * believed.spread, believed.spread)
    chosen = rng.choice(_SAMPLES, DRAWS, p=weights)
    # A little of what is believed, so that a few heavy samples do not pass for certainty.
    return _natural(samples[chosen] + 0.02 * believed.spread * rng.standard_normal((DRAWS, len(NAMES))))


@dataclass(frozen=True)
class _Table:
    """A step over a grid of starts and rates: played once, looked up for every sample."""

    seen: Seen
    look_up: RegularGridInterpolator
    """Seconds without the exchange, logarithm of those of the whole exchange, and its share that cannot hide."""
    reach: tuple[Array, Array]
    """Ends of the grid."""

    def score(self, drawn: Array) -> Array:
        """Return the logarithm of how well samples explain the step, up to a constant."""
        rest, whole, share = self.look_up(np.clip(drawn[:, :2], *self.reach)).T
        exchange = np.exp(whole)
        step = rest + exchange * (1.0 - (1.0 - share) * expit(drawn[:, 2]))
        score: Array = -0.5 * (np.log(step / self.seen.step_s) / np.hypot(self.seen.error, _MODEL_SPREAD)) ** 2
        if self.seen.communication_s:
            score -= 0.5 * ((whole - np.log(self.seen.communication_s)) / _BARE_SPREAD) ** 2
        return score


def _tabulated(parameters: Mapping[str, Array], seen: Seen, believed: Believed) -> _Table:
    low, high = (believed.mean[:2] + side * _GRID_REACH * believed.spread[:2] for side in (-1, 1))
    axes = [np.linspace(low[place], high[place], _GRID) for place in range(2)]
    starts, rates = (each.ravel() for each in np.meshgrid(*axes, indexing="ij"))
    middle = {name: np.full(_GRID**2, np.median(values)) for name, values in parameters.items()}
    factors = {"start": np.exp(starts), "rate": np.exp(rates), "hidden": np.ones(_GRID**2)}
    phases = play({**middle, **factors}, seen.scene)
    whole = np.maximum(phases["comm_exposed"] + phases["comm_hidden"], 1e-12)
    values = np.stack(
        [step_of(phases) - phases["comm_exposed"], np.log(whole), np.clip(phases["comm_exposed"] / whole, 0.0, 1.0)],
        axis=-1,
    )
    return _Table(seen, RegularGridInterpolator(axes, values.reshape(_GRID, _GRID, 3)), (low, high))


def _density(drawn: Array, mean: Array, spread: Array) -> Array:
    density: Array = -0.5 * np.sum(((drawn - mean) / spread) ** 2, axis=1) - np.sum(np.log(spread))
    return density


def _natural(samples: Array) -> dict[str, Array]:
    return {"start": np.exp(samples[:, 0]), "rate": np.exp(samples[:, 1]), "hidden": expit(samples[:, 2])}
