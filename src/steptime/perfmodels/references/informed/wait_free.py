"""The model of synchronous SGD with wait-free backpropagation: layers are exchanged while earlier ones compute."""

import numpy as np
from scipy.optimize import least_squares  # type: ignore[import-untyped]  # scipy ships no types

from steptime.perfmodels.overlap import finish
from steptime.perfmodels.references.curve_model import Array
from steptime.perfmodels.references.informed.job import FORWARD_SHARE, Job
from steptime.perfmodels.references.informed.ssgd import exchanges

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
    found = least_squares(errors, start, bounds=(start - _WIDE, start + _WIDE)).x
    return _seconds(job, asked, *found)


def _seconds(job: Job, workers: Array, log_computing: float, log_slower: float) -> Array:
    computing = np.exp(log_computing)
    shares = np.cumsum([layer.backward_share for layer in job.layers])
    ready = computing * (FORWARD_SHARE + (1 - FORWARD_SHARE) * shares)
    lasting = np.exp(log_slower) * exchanges(job, workers)
    done: Array = np.maximum(computing, finish(np.broadcast_to(ready, lasting.shape), lasting))
    return done
