"""The model of synchronous SGD without overlap: computing, then the exchange of every layer, one after the other."""

from dataclasses import replace

import numpy as np

from steptime.perfmodels.communication.ring import ring
from steptime.perfmodels.references.curve_model import Array
from steptime.perfmodels.references.informed.job import Job
from steptime.perfmodels.references.terms import fit_terms


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
