"""The ablated step in TensorFlow 2: compiled functions of parts of the step, and a graph that notes the time."""

import time

import tensorflow as tf

from steptime.libraries.tensorflow.startup import collect_garbage
from steptime.worker.ablated_step import AblatedStep


class TensorFlowAblation(AblatedStep):
    """Each stage is a compiled function of its own; a marked step has an operation behind each tensor of interest.

    Results are what keeps a function from being pruned: all gradients leave the function that applies them to
    nothing.
    """

    def __init__(self, strategy, batches, marks, *, several, cuda):
        """Take a session's parts.

        Args:
            strategy: as in ``TensorFlowSession``.
            batches: of this worker.
            marks: the phases whose ends the graph can note.
            several: whether there are other workers.
            cuda: whether on a GPU, to which batches are copied.
        """
        self.marks = marks
        self._strategy = strategy
        self._batches = batches
        self._several = several
        self._cuda = cuda
        self._marked = None
        self._pieces = [(variable.name, 4 * variable.shape.num_elements()) for variable in strategy.network.variables]
        self._seen = None

    def stages(self):
        """Build the graph of every stage, on one batch that is held."""
        training = self._strategy.training
        take = self._batches.taker()
        held = take()

        def on(function, *arguments):
            return compile_on(self._strategy.wrap(function), *arguments)

        stages = {name: on(getattr(training, name), *held) for name in ("forward", "backward", "local")}
        stages["input"] = take
        if self._cuda:
            stages["h2d"] = self._batches.copies()(self._strategy.wrap(training.step))
        if self._several:
            stages["exchange"] = on(training.step, *held)
            _, gradients = stages["backward"]()
            # As results of operations they lie on a device, which collectives ask for; arguments lie nowhere.
            combine = lambda pieces: training.combine([tf.identity(piece) for piece in pieces])  # noqa: E731 - wrapped
            stages["communication"] = on(combine, gradients)
        collect_garbage()
        return stages

    def marked_step(self, mark):
        if self._marked is None:
            stamps, training = TimeStamps(), self._strategy.training
            self._marked = self._batches.feed(
                self._strategy.wrap(lambda inputs, targets: training.stamped(inputs, targets, stamps))
            )
        _, moments = self._marked()
        end = time.monotonic()
        moments = (moments.numpy() + (end - time.time())).tolist()
        count = len(self._pieces)
        ready, done = moments[2 : 2 + count], moments[2 + count :]
        phases = {"input": moments[0], "forward": moments[1], "backward": max(ready), "exchange": max(done)}
        latest = moments[0]
        for name in self.marks:
            latest = max(latest, min(phases.get(name, end), end))
            mark(name, latest)
        if self._seen is None:
            collect_garbage()  # the first step built the graph
            self._seen = []
        if "exchange" in self.marks:
            # A moment may be noted a little late, when many operations are ready at once.
            self._seen += [[name, size, min(at), at[1]] for (name, size), at in zip(self._pieces, zip(ready, done))]

    def transfers(self):
        seen, self._seen = sorted(self._seen or (), key=lambda piece: piece[2]), []
        return seen if "exchange" in self.marks else None


def compile_on(function, *arguments):
    """Return what runs ``function``, compiled, on ``arguments``; its graph is built here, and nothing is run."""
    compiled = tf.function(function, autograph=False)
    compiled.get_concrete_function(*arguments)
    return lambda: compiled(*arguments)


class TimeStamps(object):
    """Called with a tensor of float32, returns when it was there, and the tensor.

    The moment is in seconds of the host's time of day. What uses the returned tensor waits until the moment is noted;
    otherwise it would be noted when all else that is ready has been computed.

    TensorFlow takes the operation that reads the clock for one with a state, and would run all such operations one
    after the other, in the order in which they were written. In a function of its own the operation has no state, and
    waits for its tensor only.
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
