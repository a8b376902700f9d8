"""A module of your own in JAX for steptime: replace the network, its batches and, where you need one, its loss."""

import jax
import numpy as np

CLASSES, FEATURES, WIDTH = 4, 20, 64


class Network:
    """Two layers; a module of flax.linen has the same two methods, and can be returned by ``build`` as it is."""

    def init(self, key, inputs):
        """Return the parameters, a tree of float32 arrays; ``inputs`` are zeros of the shape of a batch's."""
        first, second = jax.random.split(key)
        draw = jax.nn.initializers.he_normal()
        return {
            "hidden": {"kernel": draw(first, (inputs.shape[-1], WIDTH)), "bias": jax.numpy.zeros(WIDTH)},
            "output": {"kernel": draw(second, (WIDTH, CLASSES)), "bias": jax.numpy.zeros(CLASSES)},
        }

    def apply(self, parameters, inputs):
        """Return the outputs."""
        hidden, output = parameters["hidden"], parameters["output"]
        values = jax.nn.relu(inputs @ hidden["kernel"] + hidden["bias"])
        return values @ output["kernel"] + output["bias"]


def build():
    """Return the module."""
    return Network()


def loader(rank, size, batch):
    """Yield batches of ``batch`` samples, those of worker ``rank`` of ``size``."""
    inputs = np.random.RandomState(7).randn(4096, FEATURES).astype("float32")[rank::size]
    targets = inputs[:, :CLASSES].argmax(1)
    order = np.random.RandomState(rank).permutation(len(inputs))
    for start in range(0, len(order) - batch + 1, batch):
        chosen = order[start : start + batch]
        yield inputs[chosen], targets[chosen]


def loss(module, batch):
    """Return the loss of a batch; ``module`` is called without its parameters. Without ``loss:`` it is this one."""
    inputs, targets = batch
    logarithms = jax.nn.log_softmax(module(inputs))
    return -jax.numpy.take_along_axis(logarithms, targets[:, None], 1).mean()
