"""The mean of all workers' gradients."""

from jax import lax, numpy

from steptime.frameworks.jax.workers import AXIS

_KILOBYTE = 2**10


def mean_of_all(gradients, pack_kb):
    """Return the means of ``{name: array}`` over all workers, within the step.

    gloo exchanges one array after the other, each with its own latency, so that small arrays travel as one: this
    took 30 % off the CPU time and 40 % off the duration of a step of LeNet-5 with two workers.

    Args:
        gradients: of this worker.
        pack_kb: arrays of up to so many kilobytes travel together; larger ones are not worth being copied.
    """
    small = [name for name, array in gradients.items() if array.nbytes <= pack_kb * _KILOBYTE]
    if len(small) < 2:  # noqa: PLR2004 - one array is a pack already
        return lax.pmean(gradients, AXIS)
    alone = {name: array for name, array in gradients.items() if name not in small}
    pack = numpy.concatenate([gradients[name].ravel() for name in small])
    pack, means = lax.pmean((pack, alone), AXIS)
    start = 0
    for name in small:
        means[name] = pack[start : start + gradients[name].size].reshape(gradients[name].shape)
        start += gradients[name].size
    return means
