"""The step of TensorFlow 2 with stages taken away, for the breakdown of a step.

Steps of TensorFlow 2 whose graph tells when each of its parts was computed.

The time of day at which a tensor was computed, as a tensor of the same graph.
"""

import time

import tensorflow as tf

from steptime.libraries.tensorflow.startup import clear_away


def ablation_stages_of(tf, strategy, batches, *, together):
    """Return the stages of ``Session.stages``, each a compiled function of its own, whose graph is built.

    Results are what keeps a function from being pruned: all gradients leave the function that applies them to
    nothing.

    Args:
        tf: TensorFlow.
        strategy: as in ``TensorFlowSession``.
        batches: of this worker, of which one is taken and held.
        together: whether there are other workers.
    """
    training = strategy.training
    take = batches.taker()
    held = take()

    def on(function, *arguments):
        compiled = tf.function(strategy.wrap(function), autograph=False)
        compiled.get_concrete_function(*arguments)  # builds its graph, and runs nothing
        return lambda: compiled(*arguments)

    stages = {name: on(getattr(training, name), *held) for name in ("forward", "backward", "local")}
    stages["input"] = take
    if together:
        stages["exchange"] = on(training.step, *held)
        _, gradients = stages["backward"]()
        # As results of operations they lie on a device, which collectives ask for; arguments lie nowhere.
        combine = lambda pieces: training.combine([tf.identity(piece) for piece in pieces])  # noqa: E731 - wrapped
        stages["communication"] = on(combine, gradients)
    clear_away()
    return stages


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


class StampedSteps(object):
    """The same step as the session's, with an operation behind each gradient that tells the time."""

    def __init__(self, strategy, batches):
        """Prepare the function; its graph is built in the first step.

        Args:
            strategy: as in ``TensorFlowSession``.
            batches: of this worker.
        """
        stamp = Stamps()
        training = strategy.training
        self._marks = strategy.marks
        self._run = batches.feed(strategy.wrap(lambda inputs, targets: training.stamped(inputs, targets, stamp)))
        self._pieces = [(variable.name, 4 * variable.shape.num_elements()) for variable in strategy.network.variables]
        self._seen = None

    def step(self, mark):
        """Run one step, tell ``mark`` of its phases, and return the loss."""
        loss, moments = self._run()
        end = time.monotonic()
        moments = (moments.numpy() + (end - time.time())).tolist()
        count = len(self._pieces)
        ready, done = moments[2 : 2 + count], moments[2 + count :]
        phases = {"input": moments[0], "forward": moments[1], "backward": max(ready), "exchange": max(done)}
        latest = moments[0]
        for name in self._marks:
            latest = max(latest, min(phases.get(name, end), end))
            mark(name, latest)
        if self._seen is None:
            clear_away()
            self._seen = []
        if "exchange" in self._marks:
            # A moment may be noted a little late, when many operations are ready at once.
            self._seen += [[name, size, min(at), at[1]] for (name, size), at in zip(self._pieces, zip(ready, done))]
        return loss

    def transfers(self):
        """Return each gradient's journey since the last call, and forget it; None where nothing is exchanged."""
        seen, self._seen = sorted(self._seen or (), key=lambda piece: piece[2]), []
        return seen if "exchange" in self._marks else None
