"""The optimizers as pure functions of arrays: JAX has none of its own, and these are the formulas of optax.

An optimizer is a function ``(settings, rate, gradients, (variables, kept, step))`` that returns ``(variables, kept)``.
``gradients``, ``variables`` and each entry of ``kept``, the optimizer's state, are ``{name: array}``; ``step`` counts
from 1. Epsilon is added to the root of the corrected second moment, as Kingma and Ba write it.
"""

import jax
from jax import numpy

from steptime.worker.weights import is_decayed


def slots_of(settings):
    """Return the names of what an optimizer keeps for each variable."""
    return ("velocity",) if settings["name"] in ("sgd", "nesterov", "lars") else ("first", "second")


def optimizer_of(settings):
    """Return the function of the optimizer that the job's ``optimizer`` settings name."""
    return _OPTIMIZERS[settings["name"]]


def clipped(settings, gradients):
    """Return the gradients, shortened together to ``clip_norm`` where the settings have one."""
    if "clip_norm" not in settings:
        return gradients
    length = numpy.sqrt(sum(numpy.sum(numpy.square(each)) for each in jax.tree.leaves(gradients)))
    factor = settings["clip_norm"] / numpy.maximum(length, settings["clip_norm"])
    return jax.tree.map(lambda each: factor * each, gradients)


def _sgd(settings, rate, gradients, before):
    variables, kept, _ = before
    velocity = _gathered(settings, kept, _decayed(settings, gradients, variables))
    return _descended(variables, velocity, rate), {"velocity": velocity}


def _nesterov(settings, rate, gradients, before):
    variables, kept, _ = before
    gradients = _decayed(settings, gradients, variables)
    velocity = _gathered(settings, kept, gradients)
    ahead = jax.tree.map(lambda slope, gathered: slope + settings["momentum"] * gathered, gradients, velocity)
    return _descended(variables, ahead, rate), {"velocity": velocity}


def _lars(settings, rate, gradients, before):
    """You, Gitman, Ginsburg 2017; arrays of one axis, biases and normalisation, take the step of momentum."""
    variables, kept, _ = before
    decay = settings["weight_decay"]

    def scaled(slope, values):
        if values.ndim == 1:
            return slope + decay * values if is_decayed(settings, 1) else slope
        weights, length = _length(values), _length(slope)
        ratio = settings["trust_coefficient"] * weights / (length + decay * weights)
        return numpy.where((weights > 0) & (length > 0), ratio, 1.0) * (slope + decay * values)

    velocity = _gathered(settings, kept, jax.tree.map(scaled, gradients, variables))
    return _descended(variables, velocity, rate), {"velocity": velocity}


def _adam(settings, rate, gradients, before):
    variables, kept, step = before
    change, kept = _normalised(settings, _decayed(settings, gradients, variables), kept, step)
    return _descended(variables, change, rate), kept


def _adamw(settings, rate, gradients, before):
    """Loshchilov, Hutter 2019: the decay is not part of the gradient."""
    variables, kept, step = before
    change, kept = _normalised(settings, gradients, kept, step)
    return _descended(variables, _decayed(settings, change, variables), rate), kept


def _lamb(settings, rate, gradients, before):
    """You et al. 2020: Adam's step, of each array as long as the weights."""
    variables, kept, step = before
    change, kept = _normalised(settings, gradients, kept, step)

    def scaled(own, values):
        weights, length = _length(values), _length(own)
        return own * numpy.where((weights > 0) & (length > 0), weights / length, 1.0)

    change = jax.tree.map(scaled, _decayed(settings, change, variables), variables)
    return _descended(variables, change, rate), kept


def _decayed(settings, gradients, variables):
    decay = settings["weight_decay"]

    def decayed(slope, value):
        return slope + decay * value if is_decayed(settings, value.ndim) else slope

    return jax.tree.map(decayed, gradients, variables) if decay else gradients


def _gathered(settings, kept, gradients):
    momentum = settings["momentum"]
    return jax.tree.map(lambda velocity, slope: momentum * velocity + slope, kept["velocity"], gradients)


def _descended(variables, change, rate):
    return jax.tree.map(lambda value, own: value - rate * own, variables, change)


def _normalised(settings, gradients, kept, step):
    """Return the mean of gradients over the root of the mean of their squares, and both means as they are kept."""
    beta1, beta2, epsilon = (settings[name] for name in ("beta1", "beta2", "epsilon"))
    first = jax.tree.map(lambda mean, slope: beta1 * mean + (1 - beta1) * slope, kept["first"], gradients)
    second = jax.tree.map(lambda mean, slope: beta2 * mean + (1 - beta2) * slope * slope, kept["second"], gradients)
    of_first, of_second = 1 - beta1**step, 1 - beta2**step
    change = jax.tree.map(
        lambda mean, square: mean / of_first / (numpy.sqrt(square / of_second) + epsilon), first, second
    )
    return change, {"first": first, "second": second}


def _length(array):
    return numpy.sqrt(numpy.sum(numpy.square(array)))


_OPTIMIZERS = {"sgd": _sgd, "nesterov": _nesterov, "adam": _adam, "adamw": _adamw, "lars": _lars, "lamb": _lamb}
