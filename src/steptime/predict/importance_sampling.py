"""Importance sampling: what a group's own steps say of the three parameters of its exchange.

The parameters are factors on the latency and the bandwidth of the link, and the overlap efficiency. Where the link was
measured the factors are nearly one; where it was not, their prior is wide, and measured steps narrow it. Sampling runs
in rounds, each with a proposal that is wider than the result of the round before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.interpolate import RegularGridInterpolator  # type: ignore[import-untyped]
from scipy.special import expit  # type: ignore[import-untyped]  # scipy ships no types

from steptime.predict.posterior import DRAWS, Array
from steptime.predict.step_model import StepModel, phases_of, step_of

EXCHANGE_PARAMETERS = ("latency_factor", "bandwidth_factor", "overlap_efficiency")
_OVERLAP = (3.0, 1.0)
"""Logit of the overlap efficiency and its spread, where the policy of the framework is known: most of it hides."""
_UNKNOWN_OVERLAP = (0.0, 2.0)
_SAMPLES = 4000
_GRID, _GRID_REACH = 15, 3.5
"""Points of each side of the grid of simulated steps, and the standard deviations that it spans to each end."""
_ROUNDS = 4
_WIDER = 1.6
_LEAST_SPREAD = 0.02
"""Of the prior's spread: neither proposals nor draws are narrower, since few heavy samples are no certainty."""
_MODEL_SPREAD = 0.02
"""Relative error of a step that the formulas leave, at a configuration that was measured."""
_BARE_SPREAD = 0.15
"""Relative difference of an exchange without computing from the same exchange during computing."""


@dataclass(frozen=True)
class ExchangePrior:
    """Means and standard deviations of the logarithms of both factors and of the logit of the overlap efficiency."""

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
    """All communication of a step, as ablation measured it; None where no ablation did."""


def sample_posterior(
    parameters: Mapping[str, Array],
    observations: Sequence[ExchangeObservation],
    prior: ExchangePrior,
    rng: np.random.Generator,
) -> dict[str, Array]:
    """Return draws of ``EXCHANGE_PARAMETERS``, (draws,) each; draws of the prior where there is no observation.

    Args:
        parameters: draws of the parameters of computing.
        observations: measured steps with an exchange.
        prior: of the three parameters.
        rng: source of the samples.
    """
    centre, spread = prior.mean, prior.spread
    samples = prior.mean + prior.spread * rng.standard_normal((DRAWS, len(EXCHANGE_PARAMETERS)))
    if not observations:
        return _natural(samples)
    tables = [_tabulate(parameters, each, prior) for each in observations]
    for turn in range(_ROUNDS):
        last = turn == _ROUNDS - 1
        drawn = centre + spread * rng.standard_normal((_SAMPLES, len(EXCHANGE_PARAMETERS)))
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
    jitter = rng.standard_normal((DRAWS, len(EXCHANGE_PARAMETERS)))
    return _natural(samples[chosen] + _LEAST_SPREAD * prior.spread * jitter)


@dataclass(frozen=True)
class _Table:
    """A step over a grid of latency and bandwidth factors: simulated once, looked up for every sample."""

    observation: ExchangeObservation
    look_up: RegularGridInterpolator
    """Seconds without the exchange, logarithm of the whole exchange, and the share of it that cannot hide."""
    ends: tuple[Array, Array]
    """Of the grid."""

    def log_likelihood(self, drawn: Array) -> Array:
        """Return the logarithm of how well samples explain the step, up to a constant."""
        rest, whole, share = self.look_up(np.clip(drawn[:, :2], *self.ends)).T
        exchange = np.exp(whole)
        step = rest + exchange * (1.0 - (1.0 - share) * expit(drawn[:, 2]))
        seen = self.observation
        found: Array = -0.5 * (np.log(step / seen.step_s) / np.hypot(seen.error, _MODEL_SPREAD)) ** 2
        if seen.communication_s:
            found -= 0.5 * ((whole - np.log(seen.communication_s)) / _BARE_SPREAD) ** 2
        return found


def _tabulate(parameters: Mapping[str, Array], observation: ExchangeObservation, prior: ExchangePrior) -> _Table:
    low, high = (prior.mean[:2] + side * _GRID_REACH * prior.spread[:2] for side in (-1, 1))
    axes = [np.linspace(low[axis], high[axis], _GRID) for axis in range(2)]
    latencies, bandwidths = (each.ravel() for each in np.meshgrid(*axes, indexing="ij"))
    middle = {name: np.full(_GRID**2, np.median(values)) for name, values in parameters.items()}
    factors = {
        "latency_factor": np.exp(latencies),
        "bandwidth_factor": np.exp(bandwidths),
        "overlap_efficiency": np.ones(_GRID**2),
    }
    phases = phases_of({**middle, **factors}, observation.model)
    whole = np.maximum(phases["comm_exposed"] + phases["comm_hidden"], 1e-12)
    values = np.stack(
        [step_of(phases) - phases["comm_exposed"], np.log(whole), np.clip(phases["comm_exposed"] / whole, 0.0, 1.0)],
        axis=-1,
    )
    return _Table(observation, RegularGridInterpolator(axes, values.reshape(_GRID, _GRID, 3)), (low, high))


def _log_density(drawn: Array, mean: Array, spread: Array) -> Array:
    density: Array = -0.5 * np.sum(((drawn - mean) / spread) ** 2, axis=1) - np.sum(np.log(spread))
    return density


def _natural(samples: Array) -> dict[str, Array]:
    natural = (np.exp(samples[:, 0]), np.exp(samples[:, 1]), expit(samples[:, 2]))
    return dict(zip(EXCHANGE_PARAMETERS, natural, strict=True))
