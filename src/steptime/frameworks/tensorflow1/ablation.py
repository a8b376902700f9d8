"""The ablated step in a graph of TensorFlow 1: parts of the graph that are run alone, on a batch that is held."""

import numpy
import tensorflow

from steptime.worker.session import AblatedStep

tf1 = tensorflow.compat.v1


class GraphAblation(AblatedStep):
    """Gradients that are exchanged without being computed are fed; they are zeros, because the servers apply them."""

    def __init__(self, session, strategy, take):
        """Take a session's parts.

        Args:
            session: TensorFlow's session of this worker.
            strategy: has ``batches`` (``HeldBatches``); ``stages``, which are ``{stage: fetches}``; ``open_stages``
                for what they need; and ``communication``, which is what exchanges and the gradients that it wants, or
                None.
            take: what runs a callable that takes a batch.
        """
        self._session = session
        self._strategy = strategy
        self._take = take

    def stages(self):
        session, strategy = self._session, self._strategy
        strategy.open_stages(session)

        def on_held(fetches):
            run = session.make_callable(fetches, feed_list=[strategy.batches.hold])
            return lambda: run(True)

        stages = {name: on_held(fetches) for name, fetches in strategy.stages.items()}
        take_one = session.make_callable([tensor.op for tensor in strategy.batches.fresh])
        stages["input"] = lambda: self._take(take_one)
        if strategy.communication:
            fetches, wanted = strategy.communication
            zeros = [numpy.zeros(each.shape.as_list(), numpy.float32) for each in wanted]
            exchange = session.make_callable(fetches, feed_list=wanted)
            stages["communication"] = lambda: exchange(*zeros)
        return stages


class HeldBatches(object):
    """Batches as a step takes them, or the same one over and over.

    A switch in the graph chooses, because feeding a batch instead would change what TensorFlow makes of the graph: it
    leaves operations unfused, or still takes the batch that is not needed.

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
