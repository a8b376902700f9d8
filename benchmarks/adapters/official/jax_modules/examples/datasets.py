"""Random images of the form of MNIST, instead of a download; each batch that is taken ends the step before it.

JAX runs behind Python without bounds, so that the step is waited for: its results are among the arrays that live.
"""

import jax
import numpy
from race_marks import note

_IMAGES = 4096


class _NotedLabels(numpy.ndarray):
    """Labels whose every batch is noted."""

    def __getitem__(self, chosen):
        jax.block_until_ready(jax.live_arrays())
        note()
        return numpy.asarray(self)[chosen]


def mnist(permute_train=False):  # noqa: FBT002 - as the original
    """Return images and labels, as one-hot rows, of training and test."""
    del permute_train
    stream = numpy.random.RandomState(0)
    images = stream.rand(_IMAGES, 28 * 28).astype(numpy.float32)
    labels = numpy.eye(10, dtype=numpy.float32)[stream.randint(0, 10, _IMAGES)]
    return images, labels.view(_NotedLabels), images[:16], labels[:16]
