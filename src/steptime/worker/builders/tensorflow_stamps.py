"""The time of day at which a tensor was computed, as a tensor of the same graph."""

import tensorflow as tf


class Stamps(object):
    """Called with a tensor of float32, returns when it was there, and the tensor.

    The moment is in seconds of the host's time of day. What uses the returned tensor waits until the moment is noted;
    otherwise it would be noted when all else that is ready has been computed.

    The operation that tells the time has a state for TensorFlow, which would run all such operations one after the
    other, in the order in which they were written. In a function of its own it has none, and waits for its tensor
    only.
    """

    def __init__(self):
        anything = tf.TensorSpec(None, tf.float32)
        self._now = tf.function(_now, autograph=False).get_concrete_function(anything)

    def __call__(self, tensor):
        moment = tf.raw_ops.PartitionedCall(args=[tensor], Tout=[tf.float64], f=self._now)[0]
        with tf.control_dependencies([moment]):
            return moment, tf.identity(tensor)


def _now(after):
    with tf.control_dependencies([after]):
        return tf.timestamp()
