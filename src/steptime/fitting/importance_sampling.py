"""Importance sampling: what a group's own steps say of the three parameters of its exchange.

The parameters are factors on the latency and the bandwidth of the link, and the overlap efficiency. Where the link was
measured the factors are nearly one; where it was not, their prior is wide, and measured steps narrow it. Sampling runs
in rounds, each with a proposal that is wider than the result of the round before.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # type: ignore[import-untyped]  # scipy ships no types; its modules are imported when used

from steptime.fitting.posterior import DRAWS, Array
from steptime.fitting.step_model import OUTER, StepModel, phases_of, step_of

OVERLAP = "overlap_efficiency"
EXCHANGE_PARAMETERS = (*OUTER, OVERLAP)
"""Of workers that are all alone on their hosts; others have ``INNER`` factors instead, or besides."""
_OVERLAP = (3.0, 1.0)
"""Logit of the overlap efficiency and its spread, where the policy of the framework is known: most of it hides."""
_UNKNOWN_OVERLAP = (0.0, 2.0)
_SAMPLES = 4000
_GRID, _COARSE_GRID, _GRID_REACH = 15, 9, 3.5
"""Points of each side of the grid of simulated steps, with links of one kind and of two, and the standard deviations
that it spans to each end."""
_ROUNDS = 4
_WIDER = 1.6
_LEAST_SPREAD = 0.02
"""Of the prior's spread: neither proposals nor draws are narrower, since few heavy samples are not certainty."""
_MODEL_SPREAD = 0.02
"""Relative error of a step that the formulas leave, at a configuration that was measured."""
_BARE_SPREAD = 0.15
"""Relative difference of an exchange without computing from the same exchange during computing."""


@dataclass(frozen=True)
class ExchangePrior:
    """Means and standard deviations of the logarithms of the factors and of the logit of the overlap efficiency."""

    names: tuple[str, ...]
    """Of the parameters, with ``OVERLAP`` in the third place."""
    mean: Array
    spread: Array


def overlap_prior(*, own_policy: bool) -> tuple[float, float]:
    """Return the prior mean of the logit of the overlap efficiency, and its standard deviation.

    Args:
        own_policy: whether the step graph has a rule for this very framework and strategy.
    """
    return _OVERLAP if own_policy else _UNKNOWN_OVERLAP


@dataclass(frozen=True)
class ExchangeObservation:
    """One measured configuration with an exchange."""

    model: StepModel
    step_s: float
    error: float
    """Relative standard error of ``step_s``, with that of its computing."""
    communication_s: float | None
    """All communication of a step, as ablation measured it; None if no ablation did."""


def sample_posterior(
    parameters: Mapping[str, Array],
    observations: Sequence[ExchangeObservation],
    prior: ExchangePrior,
    rng: np.random.Generator,
) -> dict[str, Array]:
    """Return draws of the parameters that the prior names, (draws,) each; the prior's where nothing was observed.

    Args:
        parameters: draws of the parameters of computing.
        observations: measured steps with an exchange.
        prior: of the parameters.
        rng: source of the samples.
    """
    centre, spread, count = prior.mean, prior.spread, len(prior.names)
    samples = prior.mean + prior.spread * rng.standard_normal((DRAWS, count))
    if not observations:
        return _natural(prior.names, samples)
    tables = [_tabulate(parameters, each, prior) for each in observations]
    for turn in range(_ROUNDS):
        last = turn == _ROUNDS - 1
        drawn = centre + spread * rng.standard_normal((_SAMPLES, count))
        # First rounds see the steps as if they were worse known: few samples explain good steps at once.
        heat = 1.0 if last else max(10.0 ** (1 - turn), 1.0)
        score = sum(table.log_likelihood(drawn) for table in tables) / heat
        score = score + _log_density(drawn, prior.mean, prior.spread)
        score -= _log_density(drawn, centre, spread)
        weights = np.exp(score - score.max())
        weights /= weights.sum()
        samples = drawn
        if not last:
            centre = weights @ drawn
            found = np.sqrt(weights @ np.square(drawn - centre))
            spread = np.clip(_WIDER * found, _LEAST_SPREAD * prior.spread, prior.spread)
    chosen = rng.choice(_SAMPLES, DRAWS, p=weights)
    jitter = rng.standard_normal((DRAWS, count))
    return _natural(prior.names, samples[chosen] + _LEAST_SPREAD * prior.spread * jitter)


@dataclass(frozen=True)
class _Table:
    """A step over a grid of the factors on its links: simulated once, looked up for every sample."""

    observation: ExchangeObservation
    columns: list[int]
    """Places of the factors among the parameters."""
    overlap: int
    look_up: Callable[[Array], Array]
    """Seconds without the exchange, logarithm of the whole exchange, and the share of it that cannot hide."""
    ends: tuple[Array, Array]
    """Of the grid."""

    def log_likelihood(self, drawn: Array) -> Array:
        """Return the logarithm of how well samples explain the step, up to a constant."""
        rest, whole, share = self.look_up(np.clip(drawn[:, self.columns], *self.ends)).T
        exchange = np.exp(whole)
        step = rest + exchange * (1.0 - (1.0 - share) * scipy.special.expit(drawn[:, self.overlap]))
        seen = self.observation
        found: Array = -0.5 * (np.log(step / seen.step_s) / np.hypot(seen.error, _MODEL_SPREAD)) ** 2
        if seen.communication_s:
            found -= 0.5 * ((whole - np.log(seen.communication_s)) / _BARE_SPREAD) ** 2
        return found


def _tabulate(parameters: Mapping[str, Array], observation: ExchangeObservation, prior: ExchangePrior) -> _Table:
    factors = observation.model.link_factors
    columns = [prior.names.index(name) for name in factors]
    low, high = (prior.mean[columns] + side * _GRID_REACH * prior.spread[columns] for side in (-1, 1))
    count = _GRID if len(factors) == len(OUTER) else _COARSE_GRID
    axes = [np.linspace(low[axis], high[axis], count) for axis in range(len(factors))]
    points = [each.ravel() for each in np.meshgrid(*axes, indexing="ij")]
    middle = {name: np.full(len(points[0]), np.median(values)) for name, values in parameters.items()}
    scales = {name: np.exp(values) for name, values in zip(factors, points, strict=True)}
    phases = phases_of({**middle, **scales, OVERLAP: np.ones(len(points[0]))}, observation.model)
    whole = np.maximum(phases["comm_exposed"] + phases["comm_hidden"], 1e-12)
    values = np.stack(
        [step_of(phases) - phases["comm_exposed"], np.log(whole), np.clip(phases["comm_exposed"] / whole, 0.0, 1.0)],
        axis=-1,
    )
    shape = (*(count for _ in factors), 3)
    look_up = scipy.interpolate.RegularGridInterpolator(axes, values.reshape(shape))
    return _Table(observation, columns, prior.names.index(OVERLAP), look_up, (low, high))


def _log_density(drawn: Array, mean: Array, spread: Array) -> Array:
    density: Array = -0.5 * np.sum(((drawn - mean) / spread) ** 2, axis=1) - np.sum(np.log(spread))
    return density


def _natural(names: Sequence[str], samples: Array) -> dict[str, Array]:
    return {
        name: scipy.special.expit(values) if name == OVERLAP else np.exp(values)
        for name, values in zip(names, samples.T, strict=True)
    }
