"""A batch that can be held: what the anatomy of a step needs, and training does not."""

import tensorflow

tf1 = tensorflow.compat.v1


class HeldBatches(object):
    """Batches as a step takes them, or the same one over and over.

    A switch in the graph chooses, because feeding a batch instead would change what TensorFlow makes of the graph: it
    leaves operations unfused, or still takes the batch that nobody needs.

    ``hold``
        The tensor to feed: whether ``tensors`` are those of the held batch.
    ``fresh``
        The next batch, whatever is held.
    """

    def __init__(self, batches):
        """Build upon ``batches``, where their tensors are."""
        self._batches = batches
        self.threads, self.ahead = batches.threads, batches.ahead
        self.fresh = batches.tensors
        held = [tf1.Variable(each, trainable=False, collections=[], use_resource=True) for each in self.fresh]
        self._starters = [variable.initializer for variable in held]
        self.hold = tf1.placeholder_with_default(False, ())
        self.tensors = tf1.cond(
            self.hold, lambda: [variable.read_value() for variable in held], lambda: list(batches.take())
        )

    def start(self, session):
        """Begin to load, and keep the first batch."""
        self._batches.start(session)
        session.run(self._starters)

    def explain(self, error, steps):
        """As the batches do it, which are one ahead."""
        self._batches.explain(error, steps + 1)
