"""Reference models of a whole curve: measured workers and seconds in, seconds for other workers out.

Sums of terms have coefficients that are not negative, fitted to relative errors. The first three models are the nulls
that a performance model has to beat.

Reference models of a curve that are told the job: what is sent, and over which links.

``paleo``: computing, and gradients that go down and up a tree or to servers, at a constant batch per worker.
``ssgd``: synchronous SGD without overlap: computing, then the exchange of every layer, one after the other.
``wait_free``: synchronous SGD with wait-free backpropagation: layers are exchanged while earlier layers compute.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from typing import Protocol

import numpy as np
import scipy  # type: ignore[import-untyped]  # scipy ships no types; its modules are imported when used
from numpy.typing import NDArray

from steptime.catalog.workloads.costs import costs
from steptime.catalog.workloads.table import LIBRARY, build_workload
from steptime.curves.curve import PointsAsked, ScalingCurve
from steptime.curves.facts import LAYERS_OF_UNKNOWN, facts_of, layers_of, workload_of
from steptime.model.collectives import Link, ring
from steptime.model.synchronous_sgd import finish

Array = NDArray[np.float64]


class CurveModel(Protocol):
    """Fits a curve of step times, sorted by workers, and predicts others."""

    def __call__(self, workers: Array, seconds: Array, asked: Array) -> Array:
        """Return the seconds of a step with ``asked`` workers, given those measured."""
        ...


Term = Callable[[Array], Array]


def fit_terms(terms: Sequence[Term], workers: Array, seconds: Array, asked: Array) -> Array:
    """Return the fitted sum at ``asked``; rows are divided by the times, so that all points count alike."""
    columns = np.stack([term(workers) for term in terms], axis=1)
    coefficients, _ = scipy.optimize.nnls(columns / seconds[:, None], np.ones(len(seconds)))
    found: Array = np.stack([term(asked) for term in terms], axis=1) @ coefficients
    return found


def amdahl(workers: Array, seconds: Array, asked: Array) -> Array:
    """Return ``T1 ((1 - s) + s p)``: p batches of work of which the serial share s cannot be shared out."""
    return fit_terms([np.ones_like, np.asarray], workers, seconds, asked)


_BOUNDS = ((0.0, 2.0), (0.0, 2.0), (0.0, 2.0))
"""Of a and C, both over the smallest time, and of the exponent q."""
_PENALTY = 1e-4
"""On the squares of a and q: of equals, the flatter curve is chosen."""
_SEED = 20240531
_GENERATIONS = 60


def generic(workers: Array, seconds: Array, asked: Array) -> Array:
    """Return ``(a p^q + C) T1`` with the least regularised squares of relative errors.

    The model multiplies a sum of powers of intrinsic factors (batch, layers) by powers of extrinsic ones (workers) and
    adds a constant; along one curve the intrinsic factors do not change and become a. Source: T. Kavarakuntla et al.,
    *A generic performance model for deep learning in a distributed environment*, IEEE Access, 2024.
    """
    scale = float(seconds.min())

    def cost(constants: Array) -> Array:
        errors = _form(constants, workers) * scale / seconds[:, None] - 1
        squares: Array = np.mean(errors**2, axis=0) + _PENALTY * (constants[0] ** 2 + constants[2] ** 2)
        return squares

    found = scipy.optimize.differential_evolution(
        cost, _BOUNDS, maxiter=_GENERATIONS, popsize=12, seed=_SEED, vectorized=True, updating="deferred", polish=False
    )
    return _form(found.x[:, None], asked)[:, 0] * scale


def _form(constants: Array, workers: Array) -> Array:
    """Return the relative times of candidates, (points, candidates)."""
    factor, constant, power = constants
    grown: Array = factor * workers[:, None] ** power + constant
    return grown


def last(workers: Array, seconds: Array, asked: Array) -> Array:
    """Return the time of the most workers for all."""
    del workers
    return np.full(len(asked), seconds[-1])


def linear(workers: Array, seconds: Array, asked: Array) -> Array:
    """Return the time of the fewest workers for all."""
    del workers
    return np.full(len(asked), seconds[0])


def log2(workers: Array, seconds: Array, asked: Array) -> Array:
    """Return ``a + b log2 p`` with a and b at least zero, by least squares of relative errors."""
    return fit_terms([np.ones_like, np.log2], workers, seconds, asked)


_POWERS = (0.0, 0.25, 1 / 3, 0.5, 2 / 3, 0.75, 1.0, 1.5, 2.0)
_LOGARITHMS = (0, 1, 2)


def pmnf(workers: Array, seconds: Array, asked: Array) -> Array:
    """Return the form that leaves the least relative squares; the simplest of equals.

    Choosing by cross-validation needs five points, which a curve seldom has; with fewer it chooses noise.
    """
    best, least = np.full(len(asked), seconds[-1]), np.inf
    for power, logarithm in product(_POWERS, _LOGARITHMS):
        terms: list[Term] = [np.ones_like, partial(_term, power=power, logarithm=logarithm)]
        loss = float(np.sum((fit_terms(terms, workers, seconds, workers) / seconds - 1) ** 2))
        if loss < least * (1 - 1e-6) - 1e-15:
            best, least = fit_terms(terms, workers, seconds, asked), loss
    return best


def _term(workers: Array, power: float, logarithm: int) -> Array:
    grown: Array = workers**power * np.log2(workers) ** logarithm
    return grown


def usl(workers: Array, seconds: Array, asked: Array) -> Array:
    """Return ``T1 (1 + s (p-1) + k p (p-1))``, the step time that goes with its throughput ``p/T``."""
    return fit_terms([np.ones_like, lambda p: p - 1, lambda p: p * (p - 1)], workers, seconds, asked)


NULLS: Mapping[str, CurveModel] = {"linear": linear, "last": last, "log2": log2}

REFERENCES: Mapping[str, CurveModel] = {**NULLS, "amdahl": amdahl, "usl": usl, "pmnf": pmnf, "generic": generic}


FORWARD_SHARE = 1 / 3
"""Of a step's computing: the backward pass computes gradients of weights and of inputs, twice the forward's work."""


@dataclass(frozen=True)
class JobLayer:
    """One layer with weights, in the order in which the backward pass reaches it."""

    backward_share: float
    """Of the seconds of the whole backward pass; those of layers without weights go to the next one with some."""
    gradient_bytes: float


@dataclass(frozen=True)
class Job:
    """One training job: what it sends and over what."""

    layers: tuple[JobLayer, ...]
    """Never empty."""
    host_size: float
    """Workers in one host; infinite where no limit is known."""
    inside: Link
    """Between two devices of a host."""
    between: Link
    """Between two hosts."""
    servers: Array | None = None
    """Parameter servers at each point asked for, not a number where unknown; None if workers reduce among them."""

    @property
    def gradient_bytes(self) -> float:
        """What one worker contributes to the exchange of one step."""
        return sum(layer.gradient_bytes for layer in self.layers)

    def link(self, workers: Array) -> Link:
        """Return the slowest link that so many workers have to use; hosts are filled one after the other."""
        far = workers > self.host_size
        rate = np.where(far, min(float(self.inside.rate), float(self.between.rate)), self.inside.rate)
        return Link(rate, np.where(far, self.between.latency, self.inside.latency))


class InformedModel(Protocol):
    """Fits a curve of step times of a job, sorted by workers, and predicts others."""

    def __call__(self, job: Job, workers: Array, seconds: Array, asked: Array) -> Array:
        """Return the seconds of a step with ``asked`` workers, given those measured."""
        ...


def even_layers(count: int, gradient_bytes: float) -> tuple[JobLayer, ...]:
    """Return layers that are all alike, for a job of which only the sum is known."""
    return tuple(JobLayer(1 / count, gradient_bytes / count) for _ in range(count))


def scaled(layers: Sequence[JobLayer], factor: float) -> tuple[JobLayer, ...]:
    """Return layers whose gradients take ``factor`` times the bytes."""
    return tuple(JobLayer(layer.backward_share, layer.gradient_bytes * factor) for layer in layers)


PERCENT_OF_PEAK = 0.72
"""Share of a link's nominal rate that a platform reaches: the most usual of the paper's own settings for networks."""


def paleo(job: Job, workers: Array, seconds: Array, asked: Array) -> Array:
    """Return ``c + 2 ceil(log2 p) D/B``, with parameter servers ``c + 2 (p-1)/k D/B``.

    Computing c is what the smallest measured number of workers leaves after its exchange, which stands for the
    platform's percent of peak in computing; nothing else is fitted. There is no latency and no overlap. Source:
    H. Qi, E. Sparks, A. Talwalkar, *Paleo*, ICLR 2017.
    """
    first = workers[:1]
    computing = max(0.0, float(seconds[0] - _exchange(job, first, None)[0]))
    found: Array = computing + _exchange(job, asked, job.servers)
    return found


def _exchange(job: Job, workers: Array, servers: Array | None) -> Array:
    rate = PERCENT_OF_PEAK * np.asarray(job.link(workers).rate)
    if job.servers is None:
        times = 2 * np.ceil(np.log2(workers))
    else:
        stated = np.full(len(workers), np.nan) if servers is None else servers
        times = 2 * (workers - 1) / np.where(stated >= 1, stated, _usual_servers(job, workers))
    found: Array = times * job.gradient_bytes / rate
    return found


def _usual_servers(job: Job, workers: Array) -> Array:
    """Return one server per host, where a table does not say."""
    hosts: Array = np.maximum(1.0, np.ceil(workers / job.host_size))
    return hosts


def ssgd(job: Job, workers: Array, seconds: Array, asked: Array) -> Array:
    """Return ``c + k sum_l t_l(p)``: computing c, and k for a link that is 1/k as good as it says, are fitted.

    t_l is the all-reduce of layer l in a ring; input and update are part of c. Source: S. Shi et al., arXiv
    1711.05979, section on S-SGD without overlap.
    """
    return fit_terms([np.ones_like, lambda p: exchanges(job, p).sum(axis=-1)], workers, seconds, asked)


def exchanges(job: Job, workers: Array) -> Array:
    """Return the seconds of each layer's exchange, in the order of the backward pass, (points, layers)."""
    link = job.link(workers)
    size = np.array([layer.gradient_bytes for layer in job.layers])
    column = replace(link, rate=np.reshape(link.rate, (-1, 1)), latency=np.reshape(link.latency, (-1, 1)))
    seconds: Array = np.asarray(ring(size[None, :], workers[:, None], column))
    return seconds


_WIDE = 5.0
"""Logarithms of the fitted numbers stay this near to where they start: a factor of 150."""
_NOISE = 0.01
"""Relative error of a time that is as bad as a link that is worse than it says by a factor of e.

Times say nothing of a link whose exchanges hide wholly; without this it would be slowed until the last of them shows.
"""


def wait_free(job: Job, workers: Array, seconds: Array, asked: Array) -> Array:
    """Return when the last exchange is done: ``s_l = max(s_(l+1) + k t_(l+1), e_l)``.

    e_l is the end of layer l in a backward pass of two thirds of computing c. Fitted to relative errors are c, and k
    for a link that is 1/k as good as it says. Source: S. Shi et al., arXiv 1711.05979 and 1805.03812, wait-free
    backpropagation.
    """
    first = float(np.log(seconds[0]))
    if len(seconds) == 1:
        return _seconds(job, asked, first, 0.0)

    def errors(fitted: Array) -> Array:
        wrong: Array = np.log(_seconds(job, workers, *fitted) / seconds) / _NOISE
        return np.append(wrong, fitted[1])

    start = np.array([first, 0.0])
    found = scipy.optimize.least_squares(errors, start, bounds=(start - _WIDE, start + _WIDE)).x
    return _seconds(job, asked, *found)


def _seconds(job: Job, workers: Array, log_computing: float, log_slower: float) -> Array:
    computing = np.exp(log_computing)
    shares = np.cumsum([layer.backward_share for layer in job.layers])
    ready = computing * (FORWARD_SHARE + (1 - FORWARD_SHARE) * shares)
    lasting = np.exp(log_slower) * exchanges(job, workers)
    done: Array = np.maximum(computing, finish(np.broadcast_to(ready, lasting.shape), lasting))
    return done


INFORMED: Mapping[str, InformedModel] = {"ssgd": ssgd, "ssgd_wait_free": wait_free, "paleo": paleo}

_INSIDE_LATENCY = 5e-6


def job_of(curve: ScalingCurve, asked: PointsAsked) -> Job:
    """Return the job of a curve; mixed precision of which nothing is known sends between two and four bytes a value."""
    facts = facts_of(curve.setup)
    servers = np.array([np.nan if count is None else count for _, count in asked], dtype=float)
    return Job(
        layers=scaled(_layers(workload_of(curve.setup), facts.gradient_bytes), 1 - 0.5 * facts.half_bytes),
        host_size=curve.setup.host_size,
        inside=Link(facts.inside_rate, _INSIDE_LATENCY),
        between=Link(facts.card_rate, facts.latency),
        servers=servers if facts.servers else None,
    )


@cache
def _layers(workload: str, gradient_bytes: float) -> tuple[JobLayer, ...]:
    if workload not in LIBRARY:
        return even_layers(layers_of(workload) or LAYERS_OF_UNKNOWN, gradient_bytes)
    found = list(reversed(costs(build_workload(workload)).layers))
    whole = sum(layer.backward_flops for layer in found)
    layers, waiting = [], 0.0
    for layer in found:
        waiting += layer.backward_flops / whole
        if layer.parameters:
            layers.append(JobLayer(waiting, layer.gradient_bytes))
            waiting = 0.0
    return tuple(layers)
