"""The parameters of the curve model, their priors, and samples of the priors.

Every parameter is a normal number with a median and a spread, seen through a link: ``log`` for what is positive,
``logit`` for what lies between 0 and 1. Samples come from a fixed low-discrepancy sequence: the same table always
yields the same predictions. ``priors.json`` holds the priors that
published curves give: one set without each source, and one from all sources.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import numpy as np
from scipy.linalg import solve_triangular  # type: ignore[import-untyped]  # scipy ships no types
from scipy.special import expit, logit, ndtri  # type: ignore[import-untyped]
from scipy.stats import qmc  # type: ignore[import-untyped]

from steptime.predict.curve.curve import Array
from steptime.predict.curve.facts import UNSTATED

_SEED = 20170301


@dataclass(frozen=True)
class NormalPrior:
    """A normal distribution behind a link."""

    mean: float
    spread: float


@dataclass(frozen=True)
class CurveParameter:
    """One parameter of the curve model; median and spread are what an expert would say who has seen no curve."""

    name: str
    link: Literal["log", "logit"]
    median: float
    spread: float
    meaning: str

    @property
    def expert(self) -> NormalPrior:
        """The prior before any curve was seen."""
        return NormalPrior(float(np.log(self.median) if self.link == "log" else logit(self.median)), self.spread)

    def natural(self, normal: Array) -> Array:
        """Return values in natural units."""
        values: Array = np.exp(normal) if self.link == "log" else expit(normal)
        return values


PARAMETERS = (
    CurveParameter("jump", "log", 0.015, 1.0, "share of compute added by leaving one worker"),
    CurveParameter("contention", "log", 0.005, 1.2, "share of compute added by each doubling inside a host"),
    CurveParameter("crowding", "log", 0.01, 1.3, "share of compute added in a full host, linear in its workers"),
    CurveParameter(
        "inside", "log", 0.4, 1.0, "exposed time of the exchange inside a host, over bytes and nominal rate"
    ),
    CurveParameter(
        "saturation", "logit", 0.2, 1.5, "share of the exchange inside a host that does not grow beyond two workers"
    ),
    CurveParameter(
        "bus", "logit", 0.35, 1.5, "share of the exchange inside a host that waits for a memory that all workers share"
    ),
    CurveParameter("efficiency", "log", 0.85, 0.3, "reached share of the network's nominal rate, were the hosts quick"),
    CurveParameter(
        "stack_rate", "log", 6e9, 0.8, "bytes per second that a host moves per card, were the network quick"
    ),
    CurveParameter("hidden", "logit", 0.8, 1.5, "share of the exchange between hosts that may hide, all but a bucket"),
    CurveParameter(
        "flat", "logit", 0.98, 1.5, "flat ring (1) or two levels (0); servers apart (1) or on the hosts (0)"
    ),
    CurveParameter("latency", "log", 1.0, 1.0, "latency of a step between hosts, over the usual one of the transport"),
    CurveParameter("host_jump", "log", 0.015, 1.0, "share of compute added by the first further host"),
    CurveParameter("host_doubling", "log", 0.01, 1.0, "share of compute added by each doubling of hosts"),
    CurveParameter(
        "chopping", "log", 0.02, 1.2, "exponent of hosts by which a stack gets slower: its pieces get smaller"
    ),
    CurveParameter(
        "sharing",
        "log",
        1.0,
        0.5,
        "exponent of further workers, where they share the cards of hosts that all have some",
    ),
    CurveParameter("half", "logit", 0.5, 3.0, "whether mixed precision sends two bytes per value (1) or four (0)"),
    CurveParameter("noise", "log", 0.008, 0.5, "relative error of a measured point"),
    CurveParameter("walk", "log", 0.012, 0.7, "relative drift from the model per root of a doubling of workers"),
    CurveParameter("host_walk", "log", 0.02, 1.0, "relative drift from the model per root of a doubling of hosts"),
    CurveParameter("crossing", "log", 0.04, 0.8, "relative error common to all points beyond one host"),
    *(
        CurveParameter(name, "log", 1.0, 1.0, f"what the column {column} leaves open, in spreads of its belief")
        for name, column in UNSTATED.items()
    ),
)
"""In the order of the columns of a sample."""

INDEX: Mapping[str, int] = {parameter.name: column for column, parameter in enumerate(PARAMETERS)}

Priors = Mapping[str, NormalPrior]


def expert_priors() -> dict[str, NormalPrior]:
    """Return the priors before any curve was seen."""
    return {parameter.name: parameter.expert for parameter in PARAMETERS}


@cache
def standard_normals(log_samples: int, seed: int = 0) -> Array:
    """Return the fixed samples of a seed, (samples, parameters)."""
    points = qmc.Sobol(len(PARAMETERS), seed=_SEED + seed).random_base2(log_samples)
    normals: Array = ndtri(np.clip(points, 1e-9, 1 - 1e-9))
    return normals


@dataclass(frozen=True)
class NormalVector:
    """Normal numbers behind the links, one a parameter, which may depend on each other."""

    mean: Array
    factor: Array
    """Lower triangular; times its transpose it is the covariance."""

    def samples(self, standard: Array) -> Array:
        """Return samples of the parameters behind their links, (samples, parameters), from standard normal ones."""
        drawn: Array = self.mean + standard @ self.factor.T
        return drawn

    def log_density(self, parameters: Array) -> Array:
        """Return the logarithm of the density at samples, up to a constant that all such vectors share."""
        standard = solve_triangular(self.factor, (parameters - self.mean).T, lower=True)
        density: Array = -0.5 * np.sum(standard**2, axis=0) - np.sum(np.log(np.diagonal(self.factor)))
        return density


def joint_prior(priors: Priors) -> NormalVector:
    """Return priors in the order of the parameters, each independent of the others."""
    return NormalVector(
        np.array([priors[parameter.name].mean for parameter in PARAMETERS]),
        np.diag([priors[parameter.name].spread for parameter in PARAMETERS]),
    )


ALL_SOURCES = ""
"""The name of what was learned from all sources, for curves of a source that is none of them."""


def priors_for(source: str) -> Priors:
    """Return the priors for a curve of ``source``, which were learned without that source."""
    known = _learned()
    return known.get(source, known[ALL_SOURCES])


def learned_sources() -> list[str]:
    """Return the names of the sources that the shipped priors were learned from."""
    return sorted(name for name in _learned() if name != ALL_SOURCES)


@cache
def _learned() -> dict[str, Priors]:
    content: dict[str, Any] = json.loads(files("steptime.predict.curve").joinpath("priors.json").read_text("utf-8"))
    return {
        name: {**expert_priors(), **{parameter: NormalPrior(*pair) for parameter, pair in priors.items()}}
        for name, priors in content["learned_without"].items()
    }
