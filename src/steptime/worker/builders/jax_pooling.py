"""Layers that make one value of a window."""

import functools

import jax
from jax import lax, numpy

from steptime.worker.builders.jax_taps import Taps


def max_pooling(layer, device):
    """Return the function of a ``max_pool``: of equal values the first in reading order gets the gradient."""
    taps = Taps(layer)
    return functools.partial(_windowed_max, taps) if device == "cuda" else functools.partial(_max, taps)


def average_pooling(layer, _):
    """Return the function of an ``avg_pool``, in which padding counts as zeros."""
    taps = Taps(layer)

    def pool(images):
        total = functools.reduce(numpy.add, taps.views(images, 0))
        return total / (taps.kernel[0] * taps.kernel[1])

    return pool


def _windowed_max(taps, images):
    return lax.reduce_window(
        images,
        -numpy.inf,
        lax.max,
        (1,) + taps.kernel + (1,),
        (1,) + taps.stride + (1,),
        ((0, 0),) + taps.edges + ((0, 0),),
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _max(taps, images):
    """The largest of the views.

    A CPU takes a quarter of the time that XLA's own window and its gradient (a scattering, value by value) take.
    """
    return functools.reduce(numpy.maximum, taps.views(images, -numpy.inf))


def _max_forward(taps, images):
    largest = _max(taps, images)
    return largest, (images, largest)


def _max_backward(taps, saved, gradient):
    images, largest = saved
    taken = numpy.zeros(largest.shape, bool)
    parts = []
    for view in taps.views(images, -numpy.inf):
        wins = (view == largest) & ~taken
        taken = taken | wins
        parts.append(numpy.where(wins, gradient, numpy.zeros_like(gradient)))
    return jax.linear_transpose(lambda like: taps.views(like, 0), images)(parts)


_max.defvjp(_max_forward, _max_backward)
